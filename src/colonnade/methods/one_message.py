"""one_message: stacked generalisation over parties (Wolpert, 1992): labels go down once, scores come up once.

    coordinator  before round 1: the labels of all training rows, once; plain or noisy     down: a bit or a byte a row
                 (the guest, which is the label holder's own party, gets them plain)
    party        J models, each fitted to these labels without one fold of the rows        (models/crossfit.py)
                 s_k = the score of the model that has not seen the row                     up: b x d_c, once
    coordinator  W, b = argmin sum_i loss(sum_k s_ik W_k + b, y_i) + |W|^2/2, with its TRUE labels
    prediction   sum_k s_k W_k + b,  s_k = the mean of the J scores
                 + T(c, s) where stack = "trees": boosted trees over the guest's columns c and all scores

Parties never learn from each other, so nothing goes back after the scores, and one round is a whole training. The stack
weighs scores that overlap, corrects what noisy labels did to them, and stays with the label holder; their unweighted
sum would count what two parties both know twice. Scores are features of the stack: the coordinator needs each, and a
secure sum cannot stand in the way.

Any subset: a stack is fitted for every set of parties, where they are few, so that a prediction without some of them is
that of the stack that was fitted without them. Of many parties, a combination of validation scores (`without.py`).

A sum of scores misses what only shows when columns of two parties are seen together. Trees on top of it see the
columns of one party, the guest, beside everybody's scores (models/top.py): it belongs to the label holder, and its
columns come with its scores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from colonnade.config import Settings
from colonnade.methods import _stacks, _top
from colonnade.methods._given import OPENING, release_in_bits
from colonnade.methods._guest import is_shown
from colonnade.methods._steps import local_steps
from colonnade.methods._teach import Labelled, teach
from colonnade.methods.base import Received, Reply, State, Uploads
from colonnade.models.cohort import Cohort
from colonnade.models.crossfit import CrossFit, folds_of
from colonnade.models.optimise import AdamW, Optimiser
from colonnade.models.schema import Group, Schema
from colonnade.models.stack import Mode
from colonnade.privacy.events import LabelExposure
from colonnade.privacy.labels import Labels
from colonnade.privacy.sealed import Array, Upload
from colonnade.randomness import stream
from colonnade.schedule import RoundPlan

HELD_OUT = 10  # every so-many-eth row of a fold's training rows tells when to stop


class OneMessage(Settings):
    """Parties fit the labels by themselves and send cross-fitted scores once; the label holder stacks them."""

    name: ClassVar[str] = "one_message"
    needs_uploads: ClassVar[Literal["each", "total", "nothing"]] = "each"
    exposes: ClassVar[LabelExposure] = LabelExposure.FULL
    pools: ClassVar[bool] = False
    needs_gradients: ClassVar[bool] = False
    gives_labels: ClassVar[bool] = True
    once: ClassVar[bool] = True
    lacking: ClassVar[bool] = True

    guest: str | None = Field(
        None,
        description="the label holder's own party: it fits true labels where the others get noisy ones; unset: the one "
        "whose table has the labels, in a simulation from tables; empty: nobody",
    )
    stack: Literal["linear", "trees"] = Field(
        "linear",
        description="how the label holder weighs scores; trees: it also gets the columns of its own party, the guest",
    )
    folds: int = Field(10, ge=2, description="parts of the training rows; a party has a model without each of them")
    local_steps: int = Field(400, ge=1, description="gradient steps of a network on each fold, the best moment kept")
    optimiser: Optimiser = Field(AdamW(lr=5e-3, weight_decay=1e-2), description="local optimiser of networks")

    @property
    def shows(self) -> str:
        """What the guest shows of its columns."""
        return "all of its columns" if self.stack == "trees" else ""

    @property
    def library(self) -> str | None:
        """What grows trees at the coordinator."""
        return "lightgbm" if self.stack == "trees" else None

    def open_party(self, cohort: Cohort) -> None:
        """A local model and a head for every fold, all with the same first weights."""
        if is_shown(self, cohort.names):
            _top.check_columns(cohort)
        cohort.own_heads()
        everyone = range(len(cohort.names))
        members = [cohort.pick(everyone) for _ in range(self.folds)]
        cohort.head, cohort.encoder = {}, CrossFit(members)

    def open_coordinator(self, schema: Schema, labels: Labels) -> tuple[State, Reply | None]:
        """The labels of all training rows go down once; before the first score, the stack knows how frequent they are.

        `cache.` is about training rows, and no part of the model.
        """
        return self._nothing(schema, labels) | _stacks.no_scores(schema), release_in_bits(schema, labels)

    def _nothing(self, schema: Schema, labels: Labels) -> State:
        """Stacks that know no score, and no trees on top of them."""
        top = _top.no_top(schema, self.guest) if self.shows and self.guest else {}
        return _stacks.no_stack(schema, labels) | top

    def upload_arrays(self, schema: Schema, group: Group) -> Mapping[str, Array]:
        """What a party sends per row; the guest may send its columns, too."""
        return {"o": Array(schema.outputs)} | (
            {_stacks.COLUMNS: _top.array(group)} if is_shown(self, group.parties) else {}
        )

    def upload(self, cohort: Cohort, x: Tensor, training: bool) -> Upload:
        """Scores: of training rows by the models that have not seen them."""
        if not training or cohort.asked is None or not isinstance(cohort.encoder, CrossFit):
            return Upload(self.computed(cohort, x, Mode.PREDICT))
        folds = folds_of(cohort.schema, self.folds)[cohort.asked.cpu()]
        return Upload({"o": cohort.encoder.out_of_fold(x, folds)} | self._columns(cohort, x))

    def computed(self, cohort: Cohort, x: Tensor, mode: Mode) -> dict[str, Tensor]:
        """The mean score of the folds' models."""
        return {"o": cohort.encode(x, mode)} | self._columns(cohort, x)

    def _columns(self, cohort: Cohort, x: Tensor) -> dict[str, Tensor]:
        return {_stacks.COLUMNS: _top.columns_of(cohort, x)} if is_shown(self, cohort.names) else {}

    def coordinate(self, state: State, plan: RoundPlan, uploads: Uploads, labels: Labels) -> Reply:
        """Keep the scores, each the first time that it comes; nothing is answered."""
        _stacks.keep_scores(state, plan, uploads)
        _top.keep_columns(state, plan.rows, uploads)
        return Reply()

    def learn(self, cohort: Cohort, plan: RoundPlan, uploaded: Mapping[str, Tensor], reply: Received) -> None:
        """All that is ever learned: the models of every fold, when the labels come; to the guest its own."""
        if plan.number != OPENING:
            return None
        if reply.common:
            return self._fit(cohort, plan, reply.common)
        places = range(len(cohort.names))
        for some in ([k for k in places if (cohort.names[k] == self.guest) is own] for own in (True, False)):
            if some:
                part = cohort.pick(some)
                self._fit(part, plan, {name: value[some[0]] for name, value in reply.own.items()})
                cohort.put(some, part)
        return None

    def _fit(self, cohort: Cohort, plan: RoundPlan, told: Mapping[str, Tensor]) -> None:
        """The models of every fold, fitted to the same labels at all parties of a cohort."""
        if not isinstance(cohort.encoder, CrossFit):
            return
        s = cohort.schema
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
        """A stack of every subset of parties, and trees on top of those that have the guest."""
        known = int(state["cache.seen"].sum())
        if known == int(state["stack.rows"]):
            return  # no score that was not known before
        _stacks.fit_stacks(state, labels)
        if self.shows and self.guest:
            _top.grow(state, labels, self.guest)
        state["stack.rows"] = torch.tensor(known)

    def remember(self, state: State, rows: Tensor, uploads: Uploads) -> None:
        """Scores of rows that are evaluated: should a party join, the others need not be asked about them again."""
        state["cache.scores"][:, rows] = _stacks.every_score(uploads).to(state["cache.scores"])
        state["cache.evaluated"][rows] = True
        _top.keep_columns(state, rows, uploads)

    def recall(self, state: State, rows: Tensor) -> Uploads | None:
        """The scores of these rows, as one group; None where some have not been evaluated."""
        return _stacks.evaluated(state, rows)

    def join(self, schema: Schema, kept: Sequence[State], labels: Labels) -> State:
        """The scores that several trainings kept, in the order of the schema's parties, and stacks of all of them."""
        state = self._nothing(schema, labels) | _stacks.joined_scores(schema, kept) | _top.joined_columns(kept)
        self.fit_at_home(state, labels)
        return state

    def take_over(self, state: State, kept: State, places: Tensor) -> None:
        """The scores of a former run, and the guest's columns where it shows them."""
        _stacks.take_over(state, kept, places)
        _top.take_over(state, kept, places)

    def beside(self, state: State, rows: Tensor, uploads: Uploads, asked: Sequence[str]) -> Uploads:
        """What those who were asked say now, and what the others said in the former run."""
        return _stacks.beside(state, rows, uploads, asked)

    def predict(self, state: State, uploads: Uploads) -> Tensor:
        """The stack of all parties."""
        told = _stacks.every_score(uploads)
        return _top.outputs(state, told, 2 ** len(told) - 1, _top.shown(uploads))

    def knows_subsets(self, state: Mapping[str, Tensor]) -> bool:
        """Whether there is a stack for every set of parties: not of many parties, whose sets are too many."""
        return len(state["stack.bias"]) > 1

    def predict_without(self, state: State, uploads: Uploads, present: Sequence[Tensor]) -> Tensor:
        """The stack that was fitted for those present."""
        told, here = _stacks.every_score(uploads), torch.cat(tuple(present))
        told = told.masked_fill(~here[:, None, None].to(told.device), 0)  # what stands there is no upload
        number = sum(2**place for place in here.nonzero()[:, 0].tolist())
        return _top.outputs(state, told, number, _top.shown(uploads))

    def scores(self, state: State, uploads: Uploads) -> Tensor:
        """s_k W_k: what the stack of all parties adds up, where there is no other."""
        told, weight = _stacks.every_score(uploads), state["stack.weight"][-1]
        parts = weight.view(len(told), told.shape[2], -1)  # (M, K, K)
        return torch.bmm(told.double(), parts).to(told.dtype)
