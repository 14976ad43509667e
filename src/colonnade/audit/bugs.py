"""Planted bugs: each is a mistake that has been made somewhere, wrapped around a correct mechanism or ledger.

An audit that has never seen a bug proves nothing. `caught` plays the game against a mechanism with one of them;
`ledger_caught` lets a message pass that the ledger does not know of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from colonnade.audit.around import Around
from colonnade.audit.travelled import unlogged
from colonnade.audit.trial import Trial
from colonnade.errors import ConfigError
from colonnade.privacy.gate import Gate
from colonnade.privacy.ledger import Entry, Ledger
from colonnade.privacy.mechanism import Mechanism, Protection
from colonnade.privacy.sealed import Array, Release, Upload
from colonnade.wire.messages import Purpose

Arrays = dict[str, Tensor]
Distort = Callable[[Arrays, Arrays, float], Arrays]  # upload, noise, clipping norm -> what leaves


@dataclass
class Planted(Around):
    """A mechanism with a bug: it says the same of itself as the correct one inside."""

    clip: float
    distort: Distort
    every: int = 1  # how many releases share one draw
    _drawn: Arrays = field(default_factory=dict, init=False, repr=False)
    _calls: int = field(default=0, init=False)

    def __call__(self, upload: Mapping[str, Tensor], parties: Sequence[str], number: int, what: str) -> Arrays:
        """The upload, protected wrongly. What the inner one makes of a zero upload is its noise."""
        fits = self._drawn.keys() == upload.keys() and all(self._drawn[k].shape == v.shape for k, v in upload.items())
        if self._calls % self.every == 0 or not fits:
            nothing = {name: torch.zeros_like(value) for name, value in upload.items()}
            self._drawn = dict(self.inner(nothing, parties, number, what))
        self._calls += 1
        return self.distort(dict(upload), self._drawn, self.clip)


def clipped(upload: Mapping[str, Tensor], clip: float) -> Arrays:
    """Each party's arrays (P, ...) together, scaled down to norm `clip` where they are longer."""
    squares = torch.stack([value.double().flatten(1).square().sum(dim=1) for value in upload.values()])
    factor = (clip / squares.sum(dim=0).sqrt().clamp(min=1e-300)).clamp(max=1.0)  # (P,)
    return {n: v * factor.to(v.dtype).view(-1, *[1] * (v.dim() - 1)) for n, v in upload.items()}


def _sum(upload: Arrays, noise: Arrays, clip: float) -> Arrays:
    short = clipped(upload, clip)
    return {name: short[name] + noise[name] for name in upload}


def _half(upload: Arrays, noise: Arrays, clip: float) -> Arrays:
    return _sum(upload, {name: value / 2 for name, value in noise.items()}, clip)


def _unclipped(upload: Arrays, noise: Arrays, clip: float) -> Arrays:
    return {name: value + noise[name] for name, value in upload.items()}


def _row_by_row(upload: Arrays, noise: Arrays, clip: float) -> Arrays:
    lengths = {name: value.flatten(2).norm(dim=2).clamp(min=1e-30) for name, value in upload.items()}  # (P, B)
    factors = {n: (clip / v).clamp(max=1.0).view(*v.shape, *[1] * (upload[n].dim() - 2)) for n, v in lengths.items()}
    return {name: value * factors[name] + noise[name] for name, value in upload.items()}


def _shared(upload: Arrays, noise: Arrays, clip: float) -> Arrays:
    return _sum(upload, {name: value[:1].expand_as(value) for name, value in noise.items()}, clip)


# Name -> (what leaves, how many releases share a draw). "none" is the wrapper without a bug: it must not be caught.
MISTAKES: dict[str, tuple[Distort, int]] = {
    "none": (_sum, 1),
    "half_noise": (_half, 1),
    "no_clipping": (_unclipped, 1),
    "row_clipping": (_row_by_row, 1),  # each row to C, where the whole upload was promised
    "reused_noise": (_sum, 2),  # the same draw for two releases
    "shared_noise": (_shared, 1),  # the same draw for all parties of a cohort
}
BUGS = (*(name for name in MISTAKES if name != "none"), "unlogged_release")


def plant(bug: str, mechanism: Mechanism, clip: float) -> Planted:
    """A mechanism with the bug of this name."""
    if bug not in MISTAKES:
        raise ConfigError(f"no planted bug of a mechanism is called {bug!r}; known: {', '.join(MISTAKES)}")
    distort, every = MISTAKES[bug]
    return Planted(mechanism, clip, distort, every)


def caught(bug: str, trial: Trial, seed: int) -> bool:
    """Whether the audit sees a planted bug: the bound rises above the claim, or a message is missing in the ledger."""
    if bug == "unlogged_release":
        return ledger_caught(trial.mechanism)
    return trial.bound(seed, plant(bug, trial.mechanism, trial.clip)).above(trial.claimed)


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
