"""one_message: stacked generalisation over parties (Wolpert, 1992): labels go down once, scores come up once.

    coordinator  before round 1: the labels of all training rows, once; plain or noisy     down: a bit or a byte a row
    party        J models, each fitted to these labels without one fold of the rows        (models/crossfit.py)
                 s_k = the score of the model that has not seen the row                     up: b x d_c, once
    coordinator  W, b = argmin sum_i loss(sum_k s_ik W_k + b, y_i) + |W|^2/2, with its TRUE labels
    prediction   sum_k s_k W_k + b,  s_k = the mean of the J scores

Parties never learn from each other, so nothing goes back after the scores, and one round is a whole training. The stack
weighs scores that overlap, corrects what noisy labels did to them, and stays with the label holder; their unweighted
sum would count what two parties both know twice. Scores are features of the stack: the coordinator needs each, and a
secure sum cannot stand in the way.

Any subset: a stack is fitted for every set of parties, where they are few, so that a prediction without some of them is
that of the stack that was fitted without them.

A sum of scores misses what only shows when columns of two parties are seen together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from colonnade.config import Settings
from colonnade.errors import ConfigError
from colonnade.methods._given import OPENING, release_in_bits
from colonnade.methods._steps import local_steps, party_code
from colonnade.methods._teach import Labelled, teach
from colonnade.methods.base import Received, Reply, State, Uploads
from colonnade.models.classifier import Classifier
from colonnade.models.cohort import Cohort
from colonnade.models.crossfit import CrossFit, folds_of, regressors_of
from colonnade.models.optimise import AdamW, Optimiser
from colonnade.models.schema import Group, Schema
from colonnade.models.stack import Mode
from colonnade.models.stacking import fit_stack
from colonnade.privacy.events import LabelExposure
from colonnade.privacy.labels import Labels
from colonnade.privacy.sealed import Array, Upload
from colonnade.randomness import stream
from colonnade.schedule import RoundPlan

HELD_OUT = 10  # every so-many-eth row of a fold's training rows tells when to stop
MOST_PARTIES = 8  # for which a stack of every subset is fitted,
MOST_NUMBERS = 2**22  # if all of them together have no more numbers


class OneMessage(Settings):
    """Parties fit the labels by themselves and send cross-fitted scores once; the label holder stacks them."""

    name: ClassVar[str] = "one_message"
    needs_uploads: ClassVar[Literal["each", "total", "nothing"]] = "each"
    exposes: ClassVar[LabelExposure] = LabelExposure.FULL
    pools: ClassVar[bool] = False
    needs_gradients: ClassVar[bool] = False
    gives_labels: ClassVar[bool] = True
    once: ClassVar[bool] = True

    folds: int = Field(5, ge=2, description="parts of the training rows; a party has a model without each of them")
    local_steps: int = Field(400, ge=1, description="gradient steps of a network on each fold, the best moment kept")
    optimiser: Optimiser = Field(AdamW(lr=5e-3, weight_decay=1e-2), description="local optimiser of networks")

    def open_party(self, cohort: Cohort) -> None:
        """A local model and a head for every fold, all with the same first weights."""
        task = cohort.schema.task
        for model in regressors_of(cohort.encoder):
            if isinstance(model, Classifier):
                model.check_task(task.family, task.words)
        cohort.own_heads()
        everyone = range(len(cohort.names))
        members = [cohort.pick(everyone) for _ in range(self.folds)]
        cohort.head, cohort.encoder = {}, CrossFit(members)

    def open_coordinator(self, schema: Schema, labels: Labels) -> tuple[State, Reply | None]:
        """The labels of all training rows go down once; before the first score, the stack knows how frequent they are.

        `cache.` is about training rows, and no part of the model.
        """
        parties, outputs = [p for group in schema.groups for p in group.parties], schema.outputs
        stacks, width = len(_subsets(len(parties), outputs)), len(parties) * outputs
        usual = labels.task.constant(labels.held_out(schema.train).mean(dim=0)).to(schema.device, torch.float64)
        state = {
            "stack.weight": schema.zeros(stacks, width, outputs).double(),
            "stack.bias": usual.repeat(stacks, 1),
            "stack.rows": torch.zeros((), dtype=torch.int64),
            "cache.scores": schema.zeros(len(parties), schema.rows, outputs),
            "cache.seen": torch.zeros(len(parties), schema.rows, dtype=torch.bool, device=schema.device),
            "cache.parties": torch.tensor([party_code(party) for party in parties]),
        }
        return state, release_in_bits(schema, labels)

    def upload_arrays(self, schema: Schema, group: Group) -> Mapping[str, Array]:
        """What a party sends per row."""
        return {"o": Array(schema.outputs)}

    def upload(self, cohort: Cohort, x: Tensor, training: bool) -> Upload:
        """Scores: of training rows by the models that have not seen them."""
        if not training or cohort.asked is None or not isinstance(cohort.encoder, CrossFit):
            return Upload(self.computed(cohort, x, Mode.PREDICT))
        folds = folds_of(cohort.schema, self.folds)[cohort.asked.cpu()]
        return Upload({"o": cohort.encoder.out_of_fold(x, folds)})

    def computed(self, cohort: Cohort, x: Tensor, mode: Mode) -> dict[str, Tensor]:
        """The mean score of the folds' models."""
        return {"o": cohort.encode(x, mode)}

    def coordinate(self, state: State, plan: RoundPlan, uploads: Uploads, labels: Labels) -> Reply:
        """Keep the scores, each the first time that it comes; nothing is answered."""
        speakers = torch.tensor([party_code(party) for party in plan.senders], dtype=torch.int64)
        places = torch.isin(state["cache.parties"].cpu(), speakers).nonzero()[:, 0]
        told, rows = _each(uploads), plan.rows
        for place in places.tolist():
            fresh = ~state["cache.seen"][place, rows]
            new = rows[fresh]
            state["cache.scores"][place, new] = told[place, fresh].to(state["cache.scores"])
            state["cache.seen"][place, new] = True
        return Reply()

    def learn(self, cohort: Cohort, plan: RoundPlan, uploaded: Mapping[str, Tensor], reply: Received) -> None:
        """All that is ever learned: the models of every fold, when the labels come."""
        if plan.number != OPENING or not isinstance(cohort.encoder, CrossFit):
            return
        s, told = cohort.schema, reply.common
        folds, targets = folds_of(s, self.folds)[s.train.cpu()], s.task.expand(told["targets"], s.dtype)
        steps = local_steps(cohort, plan, self.local_steps)
        each = [steps] * len(cohort.names) if isinstance(steps, int) else steps
        for fold, member in enumerate(cohort.encoder.members):
            at = (folds != fold).nonzero()[:, 0]
            held = torch.zeros(len(at), dtype=torch.bool)
            drawn = stream(s.seed, "held out", number=fold).permutation(len(at))
            held[torch.from_numpy(drawn[: len(at) // HELD_OUT])] = True
            weights = told["weights"][at.to(told["weights"].device)] if "weights" in told else None
            here = at.to(cohort.device)
            given = Labelled(s.train.to(cohort.device)[here], targets[here], weights, held.to(cohort.device))
            teach(member, given, each, self.optimiser, fold)

    def fit_at_home(self, state: State, labels: Labels) -> None:
        """A stack of every subset of parties, on the rows of which every party's score has come."""
        rows = state["cache.seen"].all(dim=0).nonzero()[:, 0]
        if len(rows) == int(state["stack.rows"]):
            return  # no row that was not known before
        scores = state["cache.scores"][:, rows]  # (M, B, K)
        targets = labels.held_out(rows)
        parties, _, outputs = scores.shape
        for place, subset in enumerate(_subsets(parties, outputs)):
            chosen = list(subset)
            stack = fit_stack(labels.task, _features(scores[chosen]), targets, labels.weights(rows, targets))
            weight = torch.zeros(parties, outputs, outputs, dtype=torch.float64)
            weight[chosen] = stack.weight.view(len(chosen), outputs, outputs)
            state["stack.weight"][place] = weight.flatten(0, 1).to(rows.device)
            state["stack.bias"][place] = stack.bias.to(rows.device)
        state["stack.rows"] = torch.tensor(len(rows))

    def predict(self, state: State, uploads: Uploads) -> Tensor:
        """The stack of all parties."""
        return _stacked(state, _each(uploads), -1)

    def predict_without(self, state: State, uploads: Uploads, present: Sequence[Tensor]) -> Tensor:
        """The stack that was fitted for those present."""
        told, here = _each(uploads), torch.cat(tuple(present))
        stacks = len(state["stack.bias"])
        if not bool(here.all()) and stacks == 1:
            raise ConfigError(
                f"one_message keeps a stack for every set of parties up to {MOST_PARTIES} of them and "
                f"{MOST_NUMBERS:,} numbers; this run has {len(here)} parties and {told.shape[2]} outputs, so that it "
                "has no answer without one of them; wait until all are there (--absent refuse)"
            )
        subset = sum(2**place for place in here.nonzero()[:, 0].tolist())
        told = told.masked_fill(~here[:, None, None].to(told.device), 0)  # what stands there is no upload
        return _stacked(state, told, subset - 1 if stacks > 1 else -1)


def _subsets(parties: int, outputs: int) -> list[tuple[int, ...]]:
    """The sets of parties that have a stack: all but the empty one, numbered by their bits; or only the last."""
    everyone = tuple(range(parties))
    if parties > MOST_PARTIES or (2**parties - 1) * parties * outputs**2 > MOST_NUMBERS:
        return [everyone]
    return [tuple(k for k in everyone if number >> k & 1) for number in range(1, 2**parties)]


def _stacked(state: State, told: Tensor, place: int) -> Tensor:
    """Logits (B, K) of scores (M, B, K)."""
    logits = _features(told).double() @ state["stack.weight"][place] + state["stack.bias"][place]
    return logits.to(told.dtype)


def _features(scores: Tensor) -> Tensor:
    """(M, B, K) -> (B, M K)."""
    return scores.transpose(0, 1).flatten(1)


def _each(uploads: Uploads) -> Tensor:
    """Every party's scores, (M, B, K): group by group."""
    return torch.cat([group["o"] for group in uploads.groups])
