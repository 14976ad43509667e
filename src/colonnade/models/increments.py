"""Increments: local models that grow by whole models, each weighed by somebody else before it counts.

    F_k = sum_t w_kt D_kt        D_kt: a new local model of party k, fitted by itself

While it trains, the newest one is *pending*: it was fitted and is told about, and belongs to the model once its weight
is known; without one it is dropped. So a restart needs it, and a model that is kept, saved or predicts does not.
Parties of one cohort may have different numbers of increments.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from colonnade.layout import canonical
from colonnade.models.cohort import Cohort
from colonnade.models.computing import Computing
from colonnade.models.heads import apply_heads
from colonnade.models.local import LOCAL, PENDING, Explains, FitsWeighted, Regressor, Regressors, StartsAgain, shortened
from colonnade.models.stack import Mode, Way

WEIGHTS, COUNT = f"{LOCAL}weights", f"{LOCAL}count"  # (P, T) of the increments, and how many each party has
THERE = f"{PENDING}there"  # (P,) whether a party has one; not there outside of training


@dataclass
class OwnIncrements:
    """Those of one party. Models are cohorts of one, with a head where it is a network."""

    first: Cohort = field(repr=False)  # as it was opened; never fitted
    models: list[Cohort] = field(default_factory=list, repr=False)
    weights: list[float] = field(default_factory=list)
    pending: Cohort | None = field(default=None, repr=False)

    def fresh(self, number: int) -> Cohort:
        """A model that has learned nothing; regressors draw by `number`."""
        model = self.first.pick([0])
        if isinstance(model.encoder, Regressors):
            last = self.pending or (self.models[-1] if self.models else self.first)
            model.encoder.members = [_again(_regressor(last), _regressor(model), number)]
        return model

    def settle(self, weight: float) -> None:
        """The pending increment counts so much from now on; with no weight it is forgotten."""
        if self.pending is not None and weight > 0:
            self.models.append(self.pending)
            self.weights.append(weight)
        self.pending = None

    def output(self, x: Tensor) -> Tensor:
        """(1, B, K): the weighted sum, without what is pending."""
        total = torch.zeros(1, x.shape[1], self.first.schema.outputs, dtype=torch.float64, device=x.device)
        for weight, model in zip(self.weights, self.models, strict=True):
            total += weight * said(model, x).double()
        return total

    def copied(self) -> OwnIncrements:
        """A copy that grows by itself; models that were settled, which nobody changes, are shared."""
        pending = None if self.pending is None else self.pending.pick([0])
        return OwnIncrements(self.first, list(self.models), list(self.weights), pending)


class Increments:
    """The increments of all parties of a cohort as one `LocalModel`, whose output is their weighted sum."""

    gradients = False  # an increment has them while it is fitted; the sum is never moved

    def __init__(self, parties: Sequence[OwnIncrements], training: bool = False) -> None:
        self.parties, self.training = list(parties), training
        self.parameters: dict[str, Tensor] = {}
        self.buffers: dict[str, Tensor] = {}
        first = self.parties[0].first.encoder
        self.way: Way = first.way
        self.computing: Computing = first.computing

    @classmethod
    def of(cls, cohort: Cohort) -> Increments:
        """No increment, for the local models and heads of a cohort as they were opened."""
        return cls([OwnIncrements(cohort.pick([place])) for place in range(len(cohort.names))])

    @staticmethod
    def within(cohort: Cohort) -> Increments:
        """Those of a cohort that was opened for them."""
        assert isinstance(cohort.encoder, Increments)
        return cohort.encoder

    @property
    def first(self) -> list[Regressor]:
        """The regressors, as they were opened; none where they are networks."""
        return [_regressor(own.first) for own in self.parties if isinstance(own.first.encoder, Regressors)]

    def output(self, x: Tensor, mode: Mode) -> Tensor:
        """(P, B, K): what counts already, whatever the mode."""
        found = torch.cat([own.output(mine) for own, mine in zip(self.parties, x.split(1), strict=True)])
        return found.to(self.parties[0].first.schema.dtype)

    def newest(self, x: Tensor) -> Tensor | None:
        """(P, B, K): the pending increments, zero where a party has none; None outside of training."""
        if not self.training:
            return None
        outputs = self.parties[0].first.schema.outputs
        none = torch.zeros(1, x.shape[1], outputs, dtype=self.parties[0].first.schema.dtype, device=x.device)
        each = zip(self.parties, x.split(1), strict=True)
        return torch.cat([none if own.pending is None else said(own.pending, mine) for own, mine in each])

    def explained(self) -> WeightedSum | None:
        """What says what each column of the first party adds to its outputs; None: its models do not say so."""
        own = self.parties[0]
        models = [_regressor(model) for model in own.models if isinstance(model.encoder, Regressors)]
        told = [model for model in models if isinstance(model, Explains)]
        return WeightedSum(told, own.weights) if told and len(told) == len(own.models) else None

    def tensors(self) -> dict[str, Tensor]:
        """Weights and models of all increments; a party with fewer of them has zeros in the places of the others."""
        counts = [len(own.models) for own in self.parties]
        weights = torch.zeros(len(self.parties), max(counts), dtype=torch.float64)
        for place, own in enumerate(self.parties):
            weights[place, : counts[place]] = torch.tensor(own.weights, dtype=torch.float64)
        out = {WEIGHTS: weights, COUNT: torch.tensor(counts)}
        for number in range(max(counts)):
            models = [own.models[number] if number < len(own.models) else None for own in self.parties]
            out |= {f"{LOCAL}{number}.{name}": value for name, value in _stacked(models).items()}
        pending = [own.pending for own in self.parties]
        if self.training:
            out[THERE] = torch.tensor([model is not None for model in pending])
        if any(model is not None for model in pending):
            out |= {f"{PENDING}model.{name}": value for name, value in _stacked(pending).items()}
        return out

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Put increments back; what is pending only where it is among the tensors."""
        self.training, counts = THERE in tensors, tensors[COUNT].tolist()
        there = tensors[THERE].tolist() if self.training else [False] * len(counts)
        for place, own in enumerate(self.parties):
            own.models, own.pending = [], None
            own.weights = tensors[WEIGHTS][place, : counts[place]].tolist()
            for number in range(counts[place]):
                own.models.append(_restored(own.first, tensors, f"{LOCAL}{number}.", place))
            own.pending = _restored(own.first, tensors, f"{PENDING}model.", place) if there[place] else None

    def pick(self, index: Sequence[int]) -> Increments:
        """A copy with some of the parties."""
        return Increments([self.parties[place].copied() for place in index], self.training)

    def put(self, index: Sequence[int], part: Increments) -> None:
        """Take picked copies in place of those they were made of."""
        self.training = self.training or part.training
        for place, own in zip(index, part.parties, strict=True):
            self.parties[place] = own

    def blank(self) -> Increments:
        """Parties without any increment, whose first models know nothing of their numbers."""
        return Increments([OwnIncrements(own.first.blank()) for own in self.parties], self.training)


class WeightedSum:
    """The contributions of several models to their weighted sum (it `Explains`)."""

    def __init__(self, models: Sequence[Explains], weights: Sequence[float]) -> None:
        self.models, self.weights = list(models), list(weights)
        self.counts_from = getattr(models[0], "counts_from", None)

    def contributions(self, x: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
        """The weighted sum of what they say."""
        found = [model.contributions(x, start) for model in self.models]
        values = sum(w * value for w, (value, _) in zip(self.weights, found, strict=True))
        base = sum(w * base for w, (_, base) in zip(self.weights, found, strict=True))
        return torch.as_tensor(values), torch.as_tensor(base)


def fit_regressor(model: Cohort, x: Tensor, target: Tensor, weights: Tensor, effort: int | None) -> None:
    """Fit the regressor of a cohort of one to a target (B, K) whose cells count differently (B, K)."""
    regressor = _regressor(model)
    with torch.no_grad():
        if isinstance(regressor, FitsWeighted):
            regressor.fit_weighted(x[0], target, weights, effort)
        else:
            regressor.approach(x[0], shortened(target, weights), 1.0, effort or 1)


def said(model: Cohort, x: Tensor) -> Tensor:
    """(1, B, K) what one increment says of columns (1, B, ...)."""
    if isinstance(model.encoder, Regressors):
        return model.encoder.output(x, Mode.PREDICT)  # all rows at once: those that it was fitted to are known to trees
    with torch.no_grad():
        return apply_heads(model.head, model.encode(x, Mode.PREDICT))


def _again(last: Regressor, first: Regressor, number: int) -> Regressor:
    """A regressor that begins from nothing, from the last one where it can."""
    return last.again(number) if isinstance(last, StartsAgain) else copy.deepcopy(first)


def _regressor(model: Cohort) -> Regressor:
    assert isinstance(model.encoder, Regressors)
    return model.encoder.members[0]


def _stacked(models: Sequence[Cohort | None]) -> dict[str, Tensor]:
    """The tensors of cohorts of one with a party axis; zeros for those that are not there."""
    told = [None if model is None else _tensors(model) for model in models]
    some = next(tensors for tensors in told if tensors is not None)
    return {
        name: canonical(torch.cat([torch.zeros_like(value) if one is None else one[name] for one in told]))
        for name, value in some.items()
    }


def _tensors(model: Cohort) -> dict[str, Tensor]:
    return {name: value for name, value in model.model().items() if not name.startswith("scaling.")}


def _restored(first: Cohort, tensors: Mapping[str, Tensor], start: str, place: int) -> Cohort:
    """The model of one party whose tensors have names that begin so."""
    model = first.pick([0])
    own = {name.removeprefix(start): value[[place]] for name, value in tensors.items() if name.startswith(start)}
    model.restore(own)
    return model
