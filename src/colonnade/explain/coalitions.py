"""What the coordinator would predict from some of the parties, from uploads it received once: nothing leaves.

A party that is left out counts as zeros (as in the neighbouring relation of the unit PARTY, and as a party that was
never there), or as its mean over the rows. With linear heads, zeros are a term of zero. Where a prediction is the sum
of the parties' terms, which is tried and not assumed, the terms are found once and coalitions are only added up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from colonnade.errors import ConfigError
from colonnade.evaluate.metrics import Metric
from colonnade.explain.shapley import Walk
from colonnade.methods.base import Method, State, Uploads, on_scale
from colonnade.tasks import Task

SUM_TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-9}  # relative to the largest logit


@dataclass(frozen=True)
class Coalitions:
    """A method, its state, and every party's uploads about some rows."""

    method: Method
    state: State = field(repr=False)
    uploads: Uploads = field(repr=False)
    parties: tuple[str, ...]
    places: tuple[tuple[int, int], ...]  # (group, place in it) of each party
    task: Task
    metric: Metric
    truth: Tensor = field(repr=False)
    silence: Literal["auto", "zero", "mean"] = "auto"
    weights: Tensor | None = field(default=None, repr=False)  # (B,) of the rows; None: all alike

    @cached_property
    def whole(self) -> Tensor:
        """The logits of everybody, (B, K)."""
        return self._predict(self.uploads)

    def score(self, logits: Tensor) -> float:
        """The score of logits, which are put on the scale of the labels first."""
        return self.metric(self.task, on_scale(self.state, logits), self.truth, self.weights)

    def gain(self, logits: Tensor) -> float:
        """The score as a number that rises with better predictions: contributions are its differences."""
        return self.metric.sign() * self.score(logits)

    def check(self) -> None:
        """Refuse uploads for which neither zeros nor a mean are silence."""
        if any(not value.is_floating_point() for group in self.uploads.groups for value in group.values()):
            raise ConfigError(
                f"uploads of {self.method.name} are codes; a code of zero or a mean of codes is no silence"
            )

    @cached_property
    def resolved(self) -> Literal["zero", "mean"]:
        """What silence means here."""
        if self.silence != "auto":
            return self.silence
        zeros = Uploads(tuple({k: torch.zeros_like(v) for k, v in group.items()} for group in self.uploads.groups))
        return "zero" if not bool(self._predict(zeros).any()) else "mean"

    @cached_property
    def _silent(self) -> tuple[dict[str, Tensor], ...]:
        self.check()
        if self.resolved == "zero":
            return tuple({k: torch.zeros_like(v) for k, v in group.items()} for group in self.uploads.groups)
        # An array without rows is about none: nothing of it differs from row to row, so it stays.
        rows = len(self.truth)
        return tuple(
            {k: v.mean(dim=1, keepdim=True).expand_as(v) if v.dim() > 2 and v.shape[1] == rows else v
             for k, v in group.items()}
            for group in self.uploads.groups
        )  # fmt: skip

    def logits(self, present: Sequence[int]) -> Tensor:
        """The logits that these parties give, all others silent."""
        groups = [{k: v.clone() for k, v in group.items()} for group in self._silent]
        for party in present:
            self._put(groups, party, self.uploads)
        return self._predict(Uploads(tuple(groups)))

    def without(self, party: int) -> Tensor:
        """The logits of everybody but one."""
        if self.additive:
            return self.whole.double() - self.terms[party]
        return self.logits([p for p in range(len(self.parties)) if p != party])

    def swapped(self, party: int, other: Uploads) -> Tensor:
        """The logits if one party had uploaded what it does in `other`."""
        groups = list(self.uploads.groups)
        g, _ = self.places[party]
        groups[g] = {k: v.clone() for k, v in groups[g].items()}
        self._put(groups, party, other)
        return self._predict(Uploads(tuple(groups)))

    def _put(self, groups: Sequence[object], party: int, source: Uploads) -> None:
        g, place = self.places[party]
        target = groups[g]
        assert isinstance(target, dict)
        for name, value in source.groups[g].items():
            target[name][place] = value[place]

    def _predict(self, uploads: Uploads) -> Tensor:
        with torch.no_grad():
            return self.method.predict(self.state, uploads)

    @cached_property
    def nobody(self) -> Tensor:
        """The logits of silence."""
        return self.logits([]).double()

    @cached_property
    def terms(self) -> Tensor:
        """What each party alone adds to silence, (M, B, K) in double precision."""
        return torch.stack([self.logits([party]).double() - self.nobody for party in range(len(self.parties))])

    @cached_property
    def additive(self) -> bool:
        """Whether everybody's logits are the sum of the terms, on these rows."""
        gap = (self.nobody + self.terms.sum(dim=0) - self.whole).abs().max()
        return float(gap) <= SUM_TOLERANCE.get(self.whole.dtype, 1e-4) * (1 + float(self.whole.abs().max()))

    def walk(self) -> Walk:
        """A coalition to change party by party; it begins with nobody."""
        return _Adding(self, self.nobody.clone()) if self.additive else _Asking(self)


@dataclass
class _Adding:
    """Predictions are sums: a party that joins adds its term."""

    game: Coalitions
    total: Tensor = field(repr=False)
    present: set[int] = field(default_factory=set)

    @property
    def value(self) -> float:
        """The score of the sum."""
        return self.game.gain(self.total)

    def flip(self, party: int) -> None:
        """Add or take away one term."""
        self.total.add_(self.game.terms[party], alpha=-1 if party in self.present else 1)
        self.present ^= {party}


@dataclass
class _Asking:
    """Anything else is predicted anew for every coalition."""

    game: Coalitions
    present: set[int] = field(default_factory=set)

    @property
    def value(self) -> float:
        """The score of the coalition."""
        return self.game.gain(self.game.logits(sorted(self.present)))

    def flip(self, party: int) -> None:
        """Let a party in or out."""
        self.present ^= {party}
