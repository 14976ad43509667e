"""The label holder's side after the answers: its own score of the judged rows, and what another adds to it."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from colonnade.joining.gain import Gain, balanced_folds, gain_of
from colonnade.joining.question import Labelled, Sample
from colonnade.joining.scores import cross_fitted
from colonnade.joining.sides import lifted
from colonnade.randomness import stream
from colonnade.tasks import Task

MOST = 100_000  # rows that the label holder's own score is fitted on


@dataclass(frozen=True)
class Judge:
    """The judged rows, with true labels; nothing of it leaves the label holder."""

    task: Task
    truth: Tensor = field(repr=False)
    own: Tensor | None = field(repr=False)  # (J, K) cross-fitted scores; None: the label holder has no columns
    folds: Tensor = field(repr=False)
    weights: Tensor | None = field(repr=False)
    sides: Tensor | None = field(default=None, repr=False)  # (J, G), where interactions were asked for

    @classmethod
    def of(
        cls, labelled: Labelled, columns: Tensor | None, sample: Sample, seed: int = 0, sides: Tensor | None = None
    ) -> Judge:
        """Fit the own score on all labelled rows, with true labels: told, judged and others.

        Args:
            labelled: the labels, and the rows that may train.
            columns: the label holder's own (N, ...), by row number; None: it has none.
            sample: of these rows.
            seed: of folds and models.
            sides: (N, G) of the label holder's columns, where interactions were asked for.
        """
        task, weights, judged = labelled.task, labelled.weights, sample.judged
        chosen = _enough(labelled.rows, judged, seed)  # the judged rows come first
        truth, heavy = labelled.values[chosen], None if weights is None else weights[chosen]
        folds = balanced_folds(truth, seed)
        own = None
        if columns is not None:
            places = torch.arange(len(judged))
            targets = task.expand(truth, torch.float64)
            own = cross_fitted(task, columns[chosen].to(torch.float32), targets, folds, places, heavy, seed)
        at = slice(0, len(judged))
        asked = None if sides is None else sides[judged]
        return cls(task, truth[at], own, folds[at], None if heavy is None else heavy[at], asked)

    def gain(self, levels: Tensor) -> Gain:
        """What a candidate's scores (J, K) add; lifted ones, where there are any, left out."""
        plain = levels if self.sides is None else levels[:, :1]
        return gain_of(self.task, self.truth, self.own, plain, self.folds, self.weights)

    def interaction(self, levels: Tensor) -> Gain | None:
        """What products of lifted scores and sides add to all scores and sides; None: they were not asked for."""
        if self.sides is None:
            return None
        apart, products = lifted(levels, self.sides)
        known = apart if self.own is None else torch.cat([self.own, apart], dim=1)
        return gain_of(self.task, self.truth, known, products, self.folds, self.weights)


def _enough(rows: Tensor, judged: Tensor, seed: int) -> Tensor:
    """The judged rows and others, as many as are worth fitting."""
    others = rows[~torch.isin(rows, judged)]
    if len(judged) + len(others) > MOST:
        drawn = stream(seed, "worth own rows").permutation(len(others))[: max(0, MOST - len(judged))]
        others = others[torch.from_numpy(drawn)]
    return torch.cat([judged, others])
