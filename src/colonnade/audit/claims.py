"""What a ledger's event says that a mechanism does, in the terms in which it can be played against."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from colonnade.privacy.accounting import SENSITIVITY, Neighbours
from colonnade.privacy.bounded import BoundedGaussianEvent
from colonnade.privacy.events import Event
from colonnade.privacy.gaussian import GaussianEvent
from colonnade.privacy.pbm import PoissonBinomialEvent
from colonnade.privacy.secure_sum.event import SumEvent
from colonnade.wire.numbers import Numbers


@dataclass(frozen=True)
class Additive:
    """Numbers that were made small, m, plus independent Gaussian noise of one deviation on each of them."""

    deviation: float
    largest: float  # that a number of m can be
    clip: float | None  # norm that m has at most; None: only each number has a bound
    grid: float | None = None  # step of what leaves; None: the event does not say one
    parts: int = 1  # how many parties' noise it is, each rounded by itself

    def reach(self, cells: int) -> float:
        """The largest norm of m."""
        return self.clip if self.clip is not None else self.largest * math.sqrt(cells)

    def shift(self, cells: int, releases: int, neighbours: Neighbours) -> float:
        """mu: how far so many releases of so many numbers are from those of another world."""
        return SENSITIVITY[neighbours] * self.reach(cells) * math.sqrt(releases) / self.deviation

    def rounded(self, seen: Tensor, numbers: Numbers) -> Tensor:
        """At most how far each number (..., D) is from m + noise: by the grid, the run's numbers and the wire's."""
        far = torch.full_like(seen, (1 + self.parts / 2) * (self.grid or 0.0))  # m is cut, noise is rounded
        if numbers.dtype is torch.float32 or numbers.name == "float32":
            far += 2.0**-23 * seen.abs()
        if not numbers.full and numbers.name != "float32":
            top = seen.abs().amax(dim=-1, keepdim=True)
            far += 2.0**-10 * seen.abs() + 2.0**-37 * top if numbers.name == "float16" else 0.01 * top
        return far


@dataclass(frozen=True)
class Counts:
    """Every number a count of `trials`, each of a chance between 1/2 - theta and 1/2 + theta."""

    trials: int
    theta: float


Claimed = Additive | Counts


def claim_of(event: Event) -> Claimed | None:
    """What can be played against; None: the event claims nothing that a game could contradict.

    Of a secure sum: the noise of the honest parties together; counts are claimed of each party by itself.
    """
    if isinstance(event, SumEvent):
        claim = claim_of(event.of) if event.of.summable else None
        return replace(claim, parts=honest_of(event)) if isinstance(claim, Additive) else claim
    if isinstance(event, GaussianEvent):
        return Additive(event.sigma * event.clip, event.clip, event.clip, event.grid)
    if isinstance(event, BoundedGaussianEvent):
        return Additive(event.deviation, event.bound, None, event.grid)
    if isinstance(event, PoissonBinomialEvent):
        return Counts(event.trials, event.theta)
    return None


def honest_of(event: SumEvent) -> int:
    """How many parties share the noise of a sum towards those that collude."""
    return int(event.parties - (event.colluders or 0))


def share_of(claim: Additive) -> Additive:
    """What each of the honest parties adds, that share the noise of a sum."""
    return replace(claim, deviation=claim.deviation / math.sqrt(claim.parts), parts=1)
