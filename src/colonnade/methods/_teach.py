"""Local models of a cohort that fit labels by themselves, without a word of the others.

Networks take gradient steps on the task's loss, on batches in an order of the run's seed; of so many moments the one is
kept that is best on the rows held out, for each party by itself. All other local models fit as they can
(`models/lesson.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from colonnade.methods._given import own_loss, who_holds
from colonnade.models.cohort import Cohort
from colonnade.models.crossfit import scores
from colonnade.models.descend import descend
from colonnade.models.heads import dropout_keys
from colonnade.models.lesson import Lesson, learn
from colonnade.models.local import Regressors
from colonnade.models.optimise import Optimiser
from colonnade.randomness import dropout_key, stream

BATCH = 256  # rows of a gradient step
MOMENTS = 20  # of a training at which the rows held out are looked at


@dataclass(frozen=True)
class Labelled:
    """Rows of a cohort with labels, and which of them are held out."""

    rows: Tensor = field(repr=False)  # (B,) row numbers
    targets: Tensor = field(repr=False)  # (B, K)
    weights: Tensor | None = field(repr=False)  # (B,)
    held_out: Tensor = field(repr=False)  # (B,)


def teach(cohort: Cohort, given: Labelled, steps: Sequence[int], optimiser: Optimiser, number: int) -> None:
    """Fit the local models of all parties of a cohort; `steps` by party, `number` tells apart several such fits."""
    if isinstance(cohort.encoder, Regressors):
        x = cohort.x(given.rows)
        with torch.no_grad():
            for k, model in enumerate(cohort.encoder.members):
                if steps[k] > 0:
                    learn(model, _lesson(cohort, k, x[k], given), steps[k])
        return
    _descend(cohort, given, steps, optimiser, number)
    cohort.optimiser.clear()  # nothing goes on from here
    cohort.graphs.clear()
    cohort.make_canonical()


def _lesson(cohort: Cohort, k: int, x: Tensor, given: Labelled) -> Lesson:
    """What one party has of the rows."""
    held, task = cohort.holding(given.rows), cohort.schema.task
    if held is None:
        return Lesson(task, x, given.targets, given.weights, given.held_out)
    mine, weights = held[k], None if given.weights is None else given.weights[held[k]]
    return Lesson(task, x[mine], given.targets[mine], weights, given.held_out[mine])


def _descend(cohort: Cohort, given: Labelled, steps: Sequence[int], optimiser: Optimiser, number: int) -> None:
    learning, seed = (~given.held_out).nonzero()[:, 0], cohort.schema.seed
    judging = given.held_out.nonzero()[:, 0]
    best = torch.full((len(cohort.names),), torch.inf, dtype=torch.float64, device=cohort.device)
    kept, every = cohort.model(), max(1, max(steps) // MOMENTS)
    batches = Batches(len(learning), seed, f"fold {number}", learning.device)
    for step in range(max(steps)):
        some = learning[batches.next()]
        keys = [dropout_key(seed, party, step + 1) for party in cohort.names]
        inputs = {"x": cohort.x(given.rows[some]), "key": dropout_keys(keys, cohort.device)}
        inputs |= {"targets": given.targets[some]} | who_holds(cohort, given.rows[some])
        if given.weights is not None:
            inputs["weights"] = given.weights[some]
        active = [int(step < own) for own in steps]
        parts = (("head", "encoder"),)
        descend(cohort, own_loss, inputs, steps=active, optimiser=optimiser, parts=parts, round_number=step + 1)
        if len(judging) and ((step + 1) % every == 0 or step + 1 == max(steps)):
            loss = _losses(cohort, given, judging)
            better = loss < best
            best = torch.where(better, loss, best)
            now = cohort.model()
            kept = {name: _chosen(better, now[name], value) for name, value in kept.items()}
    if len(judging):
        cohort.restore({name: value for name, value in kept.items() if not name.startswith("scaling.")})


class Batches:
    """Places (b,) of the rows of one gradient step after the other: every row once, then in another order."""

    def __init__(self, rows: int, seed: int, purpose: str, device: torch.device) -> None:
        self.rows, self.seed, self.purpose, self.device = rows, seed, purpose, device
        self.epoch, self.at = -1, rows
        self.order = torch.empty(0, dtype=torch.int64)

    def next(self) -> Tensor:
        """The rows of the next step."""
        size = min(BATCH, self.rows)
        if self.at + size > self.rows:
            self.epoch, self.at = self.epoch + 1, 0
            drawn = stream(self.seed, f"batches of {self.purpose}", number=self.epoch).permutation(self.rows)
            self.order = torch.from_numpy(drawn).to(self.device)
        self.at += size
        return self.order[self.at - size : self.at]


def _losses(cohort: Cohort, given: Labelled, at: Tensor) -> Tensor:
    """(P,) the loss of each party's model on some of the rows; infinite where it is no number."""
    task, outputs = cohort.schema.task, scores(cohort, cohort.x(given.rows[at])).double()
    targets, weights = given.targets[at].double(), None if given.weights is None else given.weights[at]
    held = cohort.holding(given.rows[at])
    if held is not None:  # what a party does not hold is the same constant at every moment
        outputs = outputs.masked_fill(~held.unsqueeze(2), 0)
    return torch.stack([task.loss(own, targets, weights) for own in outputs]).nan_to_num(nan=torch.inf)


def _chosen(better: Tensor, now: Tensor, before: Tensor) -> Tensor:
    """Of each party (P, ...) what is better."""
    return torch.where(better.view(-1, *[1] * (now.dim() - 1)), now, before)
