"""[privacy]: what a run promises, and the protection those settings ask for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from pydantic import Field, model_validator

from colonnade.config import Settings
from colonnade.errors import ConfigError
from colonnade.privacy.accounting import Neighbours, calibrate
from colonnade.privacy.gaussian import Gaussian, NoiseSource
from colonnade.privacy.labels.settings import LabelSettings
from colonnade.privacy.mechanism import Budget, Mechanism, Protection, Unchanged


class PrivacySettings(Settings):
    """Whose privacy, by how much, and what is not covered."""

    mechanism: Literal["none", "gaussian"] = Field(
        "none", description="what stands before every upload: nothing, or clipping and Gaussian noise (unit: the party)"
    )
    clip: float | None = Field(None, gt=0, allow_inf_nan=False, description="Frobenius norm C of a party's upload")
    sigma: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="noise per cell, in units of C; unset: calibrated for epsilon"
    )
    epsilon: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="budget of each party for training; it stops before passing it"
    )
    delta: float = Field(1e-5, gt=0, lt=1, description="of epsilon")
    neighbours: Neighbours = Field(
        "absent", description="absent: the party's uploads are zero (sensitivity C); replaced: by another's (2C)"
    )
    evaluation: Literal["none", "simulated"] = Field(
        "none",
        description="with noise, looks at validation and test rows: none leave; simulated: unprotected, never deployed",
    )
    labels: LabelSettings = Field(LabelSettings(), description="protection of the labels")

    @model_validator(mode="after")
    def _whole(self) -> PrivacySettings:
        if self.mechanism == "gaussian":
            if self.clip is None:
                raise ValueError("mechanism = 'gaussian' needs clip, the norm of uploads, e.g. clip = 0.005")
            if self.sigma is None and self.epsilon is None:
                raise ValueError("mechanism = 'gaussian' needs sigma (the noise), epsilon (the budget), or both")
        else:
            given = [name for name in ("clip", "sigma", "epsilon") if getattr(self, name) is not None]
            if given:
                raise ValueError(f"{', '.join(given)} promise a protection that mechanism = 'none' does not give")
        return self

    @property
    def protects(self) -> bool:
        """Whether uploads are noised."""
        return self.mechanism != "none"

    def evaluates(self) -> bool:
        """Whether anything leaves for a look at validation or test rows."""
        return not self.protects or self.evaluation == "simulated"

    def noise(self, releases: int) -> float:
        """The noise multiplier: as given, or the smallest that so many releases of one party need."""
        if self.sigma is not None:
            return self.sigma
        if self.epsilon is None:
            raise ConfigError("privacy: there is neither sigma nor epsilon to calibrate the noise for")
        return calibrate(self.epsilon, self.delta, max(1, releases), self.neighbours)

    def protection(self, releases: int, source: NoiseSource) -> Protection:
        """The mechanisms before each purpose; `releases` is how often the busiest party speaks in training."""
        if not self.protects or self.clip is None:
            return Protection()
        budget = None if self.epsilon is None else Budget(self.epsilon, self.delta, self.neighbours)
        plain: Mechanism = Unchanged()
        looks = plain if self.evaluation == "simulated" else None
        return Protection(Gaussian(self.clip, self.noise(releases), source), looks, plain, budget)


def last_affordable(turns: Iterable[tuple[int, tuple[str, ...]]], releases: int) -> int:
    """The last of some turns (number and speakers) in which nobody has spoken more often than `releases`."""
    spoken: dict[str, int] = {}
    last = 0
    for number, speakers in turns:
        for party in speakers:
            spoken[party] = spoken.get(party, 0) + 1
        if any(spoken[party] > releases for party in speakers):
            return last
        last = number
    return last
