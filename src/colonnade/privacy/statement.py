"""What a run's ledger promises, in words: whose privacy, against whom, by how much, and what is not covered."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from colonnade.privacy.accounting import Neighbours, exact_epsilon, mean_shift, rdp_epsilon
from colonnade.privacy.events import LabelExposure, Release
from colonnade.privacy.settings import PrivacySettings
from colonnade.wire.messages import COORDINATOR, Purpose

WORLDS = {
    "absent": "its uploads being zero before noise (sensitivity C)",
    "replaced": "its uploads being those of any other columns (sensitivity 2C)",
}
LABELS = {
    LabelExposure.FULL: "Labels are NOT protected: parties can read the training labels off what is sent down.",
    LabelExposure.NONE: "No label, and nothing made from one, is sent down.",
}


@dataclass(frozen=True)
class Spent:
    """What training cost one party."""

    party: str
    releases: int
    exact: float
    rdp: float


@dataclass(frozen=True)
class Statement:
    """The promise of a run, from its ledger and its settings."""

    spent: tuple[Spent, ...]  # empty: nobody sent anything in training
    delta: float
    neighbours: Neighbours
    exposure: LabelExposure
    label_epsilon: float | None
    simulated: bool  # the noise can be drawn again by whoever knows the seed
    uncovered: tuple[tuple[str, int], ...]  # purpose, releases without noise

    @classmethod
    def of(cls, ledger: Iterable[Release], settings: PrivacySettings, exposure: LabelExposure) -> Statement:
        """Account for what the parties released."""
        ups = [release for release in ledger if release.owner != COORDINATOR]
        train = [r for r in ups if r.purpose is Purpose.TRAIN]
        parties = sorted({r.owner for r in train})
        spent = tuple(_spent(p, [r for r in train if r.owner == p], settings) for p in parties)
        bare = [r.purpose.value for r in ups if r.purpose is not Purpose.TRAIN and r.mechanism == "none"]
        uncovered = tuple((purpose, bare.count(purpose)) for purpose in sorted(set(bare)))
        # Label noise has only ever been drawn from the seed so far: separate organisations have none yet.
        simulated = settings.labels.mechanism != "none" or any(dict(r.parameters).get("simulated") for r in train)
        labels = settings.labels.epsilon
        return cls(spent, settings.delta, settings.neighbours, exposure, labels, simulated, uncovered)

    @property
    def worst(self) -> Spent | None:
        """The party that training cost most: the federation's figure."""
        return max(self.spent, key=lambda spent: spent.exact, default=None)

    def lines(self) -> list[str]:
        """The answer to the four questions."""
        return [self._columns(), self._against(), self._labels(), *self._not_covered()]

    def _columns(self) -> str:
        worst = self.worst
        if worst is None:
            return "Columns: no party sent anything in training (epsilon 0 for training, unit PARTY)."
        if not math.isfinite(worst.exact):
            return "Columns: uploads of training left without noise; there is no epsilon."
        return (
            f"Columns: epsilon {worst.exact:.3f} (exact accountant; {worst.rdp:.3f} by the paper's RDP bound), delta "
            f"{self.delta:g}, unit PARTY, against {WORLDS[self.neighbours]}; the largest of {len(self.spent)} parties, "
            f"{worst.party} with {worst.releases} releases."
        )

    def _against(self) -> str:
        who = "Against whom: the coordinator and the other parties, by what they were sent in training"
        return f"{who}." + (" This is a simulation: whoever knows its seed can take the noise away." * self.simulated)

    def _labels(self) -> str:
        if self.exposure is LabelExposure.EPS:
            facts = "delta 0, unit LABEL (one row's whole label)"
            return f"Labels: epsilon {self.label_epsilon:g}, {facts}, against the parties."
        return LABELS[self.exposure]

    def _not_covered(self) -> Sequence[str]:
        bare = ", ".join(f"{count} releases for {purpose}" for purpose, count in self.uncovered)
        told = [f"Not covered: {bare}, which left without noise."] if bare else []
        rest = "a party's own network, should it be given away; predictions; columns that another party holds too"
        return [*told, f"Not covered: {rest}; choosing settings; the last bits of floating-point noise."]

    def to_json(self) -> dict[str, Any]:
        """Plain values; no epsilon without what belongs to it."""
        worst = self.worst
        return {
            "unit": "PARTY",
            "neighbours": self.neighbours,
            "delta": self.delta,
            "accountant": "exact",
            "epsilon": _number(worst.exact if worst else 0.0),
            "epsilon_rdp": _number(worst.rdp if worst else 0.0),
            "parties": {s.party: {"releases": s.releases, "epsilon": _number(s.exact)} for s in self.spent},
            "label_exposure": self.exposure.value,
            "label_epsilon": self.label_epsilon,
            "simulated": self.simulated,
            "uncovered": dict(self.uncovered),
        }


def _number(epsilon: float) -> float | None:
    """JSON has no infinity: none at all."""
    return epsilon if math.isfinite(epsilon) else None


def _spent(party: str, releases: Sequence[Release], settings: PrivacySettings) -> Spent:
    shift = mean_shift(releases, settings.neighbours)
    return Spent(party, len(releases), exact_epsilon(shift, settings.delta), rdp_epsilon(shift, settings.delta))
