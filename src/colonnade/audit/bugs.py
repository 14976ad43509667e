"""Planted bugs: each is a mistake that has been made somewhere, or could be, wrapped around correct code.

An audit that has never seen a bug proves nothing. `first_failure` plays against a target with one of them, at the full
shape first, and says which check saw it; `ledger_caught` lets a message pass that the ledger does not know of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from colonnade.audit.checks import Check
from colonnade.audit.claims import claim_of
from colonnade.audit.target import Target
from colonnade.audit.travelled import unlogged
from colonnade.errors import ConfigError
from colonnade.privacy.around import Around
from colonnade.privacy.gate import Gate
from colonnade.privacy.ledger import Entry, Ledger
from colonnade.privacy.mechanism import Mechanism, Protection
from colonnade.privacy.pbm import PoissonBinomial
from colonnade.privacy.sealed import Array, Release, Upload
from colonnade.wire.messages import Purpose

Arrays = dict[str, Tensor]
MANY_ROWS = 100  # of an upload that is "large"
ONE_IN = 1000  # rows


@dataclass(frozen=True)
class Drawn:
    """What a mistake is made of: an upload, noise for it, and what the ledger says of both. Arrays are (P, ...)."""

    upload: Arrays
    noise: Arrays  # in float64, on the grid
    clip: float
    grid: float

    def on_grid(self, values: Mapping[str, Tensor]) -> Arrays:
        """Cut towards zero to whole steps, so that only the mistake at hand shows."""
        return {name: (value.double() / self.grid).trunc() * self.grid for name, value in values.items()}

    def plus_noise(self, values: Mapping[str, Tensor]) -> Arrays:
        """Values on the grid, and the noise."""
        return {name: value + self.noise[name] for name, value in self.on_grid(values).items()}

    @property
    def short(self) -> Arrays:
        """The upload as it should be clipped."""
        return clipped({n: v.double() for n, v in self.upload.items()}, self.clip)


Distort = Callable[[Drawn], Arrays]


@dataclass
class Planted(Around):
    """A mechanism with a bug: it says the same of itself as the correct one inside."""

    clip: float
    grid: float
    distort: Distort
    every: int = 1  # how many releases share one draw
    _drawn: Arrays = field(default_factory=dict, init=False, repr=False)
    _calls: int = field(default=0, init=False)

    def __call__(self, upload: Mapping[str, Tensor], parties: Sequence[str], number: int, what: str) -> Arrays:
        """The upload, protected wrongly. What the inner one makes of a zero upload is its noise."""
        fits = self._drawn.keys() == upload.keys() and all(self._drawn[k].shape == v.shape for k, v in upload.items())
        if self._calls % self.every == 0 or not fits:
            nothing = {name: torch.zeros_like(value, dtype=torch.float64) for name, value in upload.items()}
            self._drawn = dict(self.inner(nothing, parties, number, what))
        self._calls += 1
        made = self.distort(Drawn(dict(upload), self._drawn, self.clip, self.grid))
        return {name: made[name].to(value) for name, value in upload.items()}


def clipped(upload: Mapping[str, Tensor], clip: float) -> Arrays:
    """Each party's arrays (P, ...) together, scaled down to norm `clip` where they are longer."""
    factor = _factors(upload, clip)
    return {n: v * factor.to(v.dtype).view(-1, *[1] * (v.dim() - 1)) for n, v in upload.items()}


def _factors(upload: Mapping[str, Tensor], clip: float) -> Tensor:
    """(P,)."""
    squares = torch.stack([value.double().flatten(1).square().sum(dim=1) for value in upload.values()])
    return (clip * (1 - 1e-9) / squares.sum(dim=0).sqrt().clamp(min=1e-300)).clamp(max=1.0)


def _sum(d: Drawn) -> Arrays:
    return d.plus_noise(d.short)


def _weaker(factor: float) -> Distort:
    def distort(d: Drawn) -> Arrays:
        return replace(d, noise=d.on_grid({n: factor * v for n, v in d.noise.items()})).plus_noise(d.short)

    return distort


def _unclipped(d: Drawn) -> Arrays:
    return d.plus_noise(d.upload)


def _row_by_row(d: Drawn) -> Arrays:
    rows = {n: v.double().flatten(2).norm(dim=2).clamp(min=1e-30) for n, v in d.upload.items()}  # (P, B)
    factors = {n: (d.clip / v).clamp(max=1.0).view(*v.shape, *[1] * (d.upload[n].dim() - 2)) for n, v in rows.items()}
    return d.plus_noise({n: v.double() * factors[n] for n, v in d.upload.items()})


def _if_small(d: Drawn) -> Arrays:
    small = all(value.shape[1] < MANY_ROWS for value in d.upload.values())
    return d.plus_noise(d.short if small else d.upload)


def _but_one_row(d: Drawn) -> Arrays:
    out = d.short
    for name, value in out.items():
        value[:, ONE_IN - 1 :: ONE_IN] = d.upload[name][:, ONE_IN - 1 :: ONE_IN].double()
    return d.plus_noise(out)


def _shared(d: Drawn) -> Arrays:
    return replace(d, noise={n: v[:1].expand_as(v) for n, v in d.noise.items()}).plus_noise(d.short)


def _one_row_of_noise(d: Drawn) -> Arrays:
    return replace(d, noise={n: v[:, :1].expand_as(v) for n, v in d.noise.items()}).plus_noise(d.short)


def _noise_first(d: Drawn) -> Arrays:
    """Noise is added before clipping, so that it shrinks with a long upload."""
    factor = _factors(d.upload, d.clip)
    shape = {n: factor.view(-1, *[1] * (v.dim() - 1)) for n, v in d.upload.items()}
    return d.on_grid({n: (v.double() + d.noise[n]) * shape[n] for n, v in d.upload.items()})


def _in_floating_point(d: Drawn) -> Arrays:
    return {name: value + d.noise[name] for name, value in d.short.items()}


# Name -> (what leaves, how many releases share a draw). "none" is the wrapper without a bug: it must not be caught.
MISTAKES: dict[str, tuple[Distort, int]] = {
    "none": (_sum, 1),
    "half_noise": (_weaker(0.5), 1),
    "weak_noise": (_weaker(0.8), 1),
    "no_clipping": (_unclipped, 1),
    "row_clipping": (_row_by_row, 1),  # each row to C, where the whole upload was promised
    "large_unclipped": (_if_small, 1),  # uploads of 100 rows or more are not clipped
    "row_unclipped": (_but_one_row, 1),  # one row in a thousand is not clipped
    "reused_noise": (_sum, 2),  # the same draw for two releases
    "shared_noise": (_shared, 1),  # the same draw for all parties of a cohort
    "repeated_row": (_one_row_of_noise, 1),  # the same draw for all rows of an upload
    "noise_clipped": (_noise_first, 1),  # noise is added first, and clipped with the upload
    "float_sum": (_in_floating_point, 1),  # without a grid
}


def plant(bug: str, mechanism: Mechanism, clip: float) -> Planted:
    """A mechanism with the bug of this name."""
    if bug not in MISTAKES:
        raise ConfigError(f"no planted bug of a mechanism is called {bug!r}; known: {', '.join(MISTAKES)}")
    distort, every = MISTAKES[bug]
    grid = getattr(claim_of(mechanism.event), "grid", None) or 2.0**-1000
    return Planted(mechanism, clip, grid, distort, every)


@dataclass
class WiderChance(Around):
    """Counts whose chance moves further than the ledger says."""

    factor: float = 1.25

    def __call__(
        self, upload: Mapping[str, Tensor], parties: Sequence[str], number: int, what: str
    ) -> Mapping[str, Tensor]:
        """Counts with a larger theta."""
        if not isinstance(self.inner, PoissonBinomial):
            raise ConfigError("this bug is one of the Poisson binomial mechanism")
        wider = replace(self.inner, theta=min(0.49, self.factor * self.inner.theta))
        return wider(upload, parties, number, what)


@dataclass
class NoBound(Around):
    """Noise on numbers that nobody bounded."""

    def __call__(self, upload: Mapping[str, Tensor], parties: Sequence[str], number: int, what: str) -> Arrays:
        """The upload itself plus noise, on the grid."""
        grid = getattr(claim_of(self.event), "grid", None) or 1.0
        noise = self.inner({n: torch.zeros_like(v) for n, v in upload.items()}, parties, number, what)
        return {n: ((v.double() / grid).trunc() * grid + noise[n].double()).to(v) for n, v in upload.items()}


def first_failure(target: Target, seed: int) -> Check | None:
    """The first check that sees something wrong with a target: the full shape, then the games; None: none does."""
    return next((check for check in _all(target, seed) if check.failed), None)


def _all(target: Target, seed: int) -> Iterable[Check]:
    yield from target.at_full_shape(seed)
    yield from target.in_games(seed)


class Forgetful(Ledger):
    """A ledger that does not write down every second release."""

    def record(self, release: Entry) -> None:
        """Sometimes."""
        self._asked = getattr(self, "_asked", 0) + 1
        if self._asked % 2:
            super().record(release)


class OneForgotten(Ledger):
    """Passes on to a ledger everything that is recorded, but for one release."""

    def __init__(self, to: Ledger, place: int) -> None:
        super().__init__()
        self._to, self._place = to, place

    def record(self, release: Entry) -> None:
        """Remember it here, and write it down there, unless it is the one."""
        super().record(release)
        if len(self) - 1 != self._place:
            self._to.record(release)


def ledger_caught(mechanism: Mechanism, ledger: Ledger | None = None) -> bool:
    """Whether a ledger that forgets (or the one given) is seen to lack something that travelled."""
    ledger = Forgetful() if ledger is None else ledger
    gate = Gate("audit", ledger, {"h": Array(2)}, Protection.everywhere(mechanism))
    messages: list[Release] = []
    for number in range(1, 5):
        upload = Upload({"h": torch.full((1, 3, 2), float(number))})
        messages += gate.release(upload, ["audited"], number, Purpose.TRAIN, 3).releases
    return bool(unlogged(messages, ledger))
