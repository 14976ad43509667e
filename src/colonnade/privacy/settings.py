"""[privacy]: what a run promises, and the protection those settings ask for."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator

from colonnade.config import Settings
from colonnade.errors import ConfigError
from colonnade.privacy.accounting import Neighbours, affordable, calibrate, exact_epsilon, shift_of
from colonnade.privacy.by_row import LocalSteps, RowNoise
from colonnade.privacy.colluders import Colluders, in_short
from colonnade.privacy.declared import Declared
from colonnade.privacy.events import Event, LabelExposure, PlainEvent
from colonnade.privacy.gaussian import Gaussian, GaussianEvent, NoiseSource
from colonnade.privacy.grid import LARGEST, SMALLEST, step_of
from colonnade.privacy.labels.settings import LabelSettings
from colonnade.privacy.mechanism import Budget, Mechanism, Protection, Unchanged
from colonnade.privacy.sampled import calibrate_steps, epsilon_of_steps
from colonnade.privacy.secure_sum.event import SumEvent

if TYPE_CHECKING:
    from colonnade.privacy.secure_sum.adders import Adders


SAME = 1 + 1e-6  # ratio up to which two figures are one: another version of the library may round otherwise


class SumSettings(Settings):
    """The secure sum: the coordinator learns the total of the uploads, not the parts."""

    use: bool = Field(False, description="mask every upload, so that only the sum over all parties opens")
    colluders: int = Field(  # not 0: a party knows its own share, and every epsilon here is towards parties, too
        1, ge=1, description="parties that may tell their noise share to an attacker; each adds more, so that it holds"
    )
    largest: float = Field(
        1024.0, gt=0, le=2**40, description="largest number that leaves without noise; beyond it counts as diverged"
    )


class PrivacySettings(Settings):
    """Whose privacy, by how much, and what is not covered."""

    mechanism: Literal["none", "gaussian"] = Field(
        "none",
        description="nothing, or clipping and Gaussian noise: on every upload, or with unit = 'row' on every step",
    )
    unit: Literal["party", "row"] = Field(
        "party",
        description="whose presence is hidden: a party's, by noise on its uploads; or a row's at all parties, by noise "
        "in their training (local_only)",
    )
    clip: float | None = Field(
        None,
        ge=SMALLEST,
        le=LARGEST,
        description="norm C of a party's upload; with unit = 'row' of the gradient of one row (unset: 1)",
    )
    sigma: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="noise per cell, in units of C; unset: calibrated for epsilon"
    )
    epsilon: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="budget for training: of each party, which stops before passing it; with unit = 'row' of each row",
    )
    delta: float = Field(1e-5, gt=0, lt=1, description="of epsilon")
    neighbours: Neighbours = Field(
        "absent", description="absent: the party's uploads are zero (sensitivity C); replaced: by another's (2C)"
    )
    evaluation: Literal["none", "simulated"] = Field(
        "none",
        description="evaluation under noise; none: nothing leaves for it; simulated: unprotected, never deployed",
    )
    secure_sum: SumSettings = Field(SumSettings(), description="only the total of the uploads is opened")
    labels: LabelSettings = Field(LabelSettings(), description="protection of the labels")

    @model_validator(mode="before")
    @classmethod
    def _rows(cls, given: Any) -> Any:
        """The unit says which mechanism it takes."""
        if isinstance(given, Mapping) and given.get("unit") == "row":
            return {"mechanism": "gaussian", **given, "clip": 1.0 if given.get("clip") is None else given["clip"]}
        return given

    @model_validator(mode="after")
    def _whole(self) -> PrivacySettings:
        if self.unit == "row":
            self._check_rows()
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

    def _check_rows(self) -> None:
        if self.mechanism == "none":
            raise ValueError("unit = 'row' promises a protection that mechanism = 'none' does not give; leave that out")
        if self.neighbours != "absent":
            raise ValueError("unit = 'row' is about a row that is added or removed: neighbours = 'absent'")
        if self.evaluation != "none":
            raise ValueError(
                "evaluation is about noise on uploads; unit = 'row' promises nothing about validation and test rows"
            )
        if self.secure_sum.use:
            raise ValueError("unit = 'row' and secure_sum do not go together: parties upload nothing in training")

    @property
    def by_row(self) -> bool:
        """Whether parties train at home with noise, for every row."""
        return self.unit == "row" and self.mechanism != "none"

    @property
    def protects(self) -> bool:
        """Whether uploads are noised."""
        return self.mechanism != "none" and not self.by_row

    @property
    def noised(self) -> bool:
        """Whether there is any noise between columns and readers: on uploads, or in the training at home."""
        return self.mechanism != "none"

    def evaluates(self) -> bool:
        """Whether anything leaves for evaluation on validation or test rows."""
        return not self.protects or self.evaluation == "simulated"

    def in_words(self, parties: int = 0, own: Sequence[str] = ()) -> str:
        """The promise in one line, for whoever is asked to agree to it; `own` are parties of the label holder."""
        columns = "uploads leave as they are: no epsilon"
        if self.by_row:
            columns = self._rows_in_words()
        elif self.protects:
            noise = "calibrated" if self.sigma is None else f"{self.sigma:.4g}"
            limit = "no limit" if self.epsilon is None else f"epsilon {self.epsilon:g}"
            facts = f"delta {self.delta:g}, unit PARTY, neighbours {self.neighbours}, exact accountant, training only"
            columns = f"Gaussian noise (sigma {noise}, clip {self.clip:g}), {limit} ({facts})"
        colluders = Colluders(parties, self.secure_sum.colluders, tuple(own), self.protects)
        summed = f"; {in_short(colluders)}" if self.secure_sum.use else ""
        labels = self.labels
        noisy = f"; labels: {labels.mechanism}, epsilon {labels.epsilon} (delta 0, unit LABEL)"
        return columns + summed + (noisy if labels.protects else "; labels not protected")

    def _rows_in_words(self) -> str:
        noise = "calibrated" if self.sigma is None else f"{self.sigma:.4g}"
        limit = "no limit" if self.epsilon is None else f"epsilon {self.epsilon:g}"
        facts = f"delta {self.delta:g}, unit ROW at all parties, added or removed, PLD accountant, training rows only"
        return f"local training with noise (DP-SGD, sigma {noise}, clip {self.clip:g}), {limit} ({facts})"

    def exposure(self, method: LabelExposure) -> LabelExposure:
        """Who can read labels off the downlink of a run, given what its method exposes."""
        plain = not self.labels.protects or method is LabelExposure.NONE
        return method if plain else LabelExposure.EPS

    def noise(self, releases: int) -> float:
        """The noise multiplier: as given, or the smallest that so many releases of one party need."""
        if self.sigma is not None:
            return self.sigma
        if self.epsilon is None:
            raise ConfigError("privacy: there is neither sigma nor epsilon to calibrate the noise for")
        return calibrate(self.epsilon, self.delta, max(1, releases), self.neighbours)

    def protection(
        self,
        releases: int,
        source: NoiseSource,
        adders: Adders | None = None,
        own: Mechanism | None = None,
        may_evaluate: bool = True,
    ) -> Protection:
        """The mechanisms before each purpose.

        Args:
            releases: how often the busiest party uploads in training.
            source: of the noise.
            adders: who adds, under a secure sum.
            own: what the method itself puts before every upload of training.
            may_evaluate: whether anything may leave for evaluation, if the settings allow it.
        """
        if own is not None and self.protects:
            raise ConfigError(f"the method brings noise of its own ({own.event.name}); leave privacy.mechanism out")
        training: Mechanism = own or Unchanged()
        plain: Mechanism = Unchanged()
        if self.protects and self.clip is not None:
            training = Gaussian(self.clip, self.noise(releases), source)
        if adders is not None:
            training, plain = adders.mechanisms(training)
        budget = None if self.epsilon is None else Budget(self.epsilon, self.delta, self.neighbours)
        return Protection(training, plain if self.evaluates() and may_evaluate else None, plain, budget, source)

    def planned(self, releases: int, parties: int, otherwise: Event) -> tuple[Event, int]:
        """What the ledger of a party will say of training, and how often at most: its own budget ends it earlier.

        Every protection that settings can ask for has its line here, before anything is computed.

        Args:
            releases: how often the party would upload.
            parties: how many there are.
            otherwise: what stands before uploads where these settings ask for nothing.
        """
        event, times = otherwise, releases
        if self.protects and self.clip is not None:
            sigma = self.noise(releases)
            event = GaussianEvent(self.clip, sigma, simulated=False, grid=step_of(sigma * self.clip))
            if self.epsilon is not None:
                times = min(times, affordable(sigma, self.epsilon, self.delta, self.neighbours))
        if self.secure_sum.use:
            known = None if event.bare else float(self.secure_sum.colluders)
            event = SumEvent(event, float(parties), known, unit=event.unit)
        return event, times

    def spends(self, releases: int) -> float:
        """The exact epsilon of a party that releases so often in training."""
        if not self.protects:
            return math.inf if releases else 0.0
        return exact_epsilon(shift_of(self.noise(releases), releases, self.neighbours), self.delta)

    # -- unit ROW -------------------------------------------------------------------------------

    def row_noise(self, plan: LocalSteps, source: NoiseSource) -> RowNoise:
        """Draws and noise of parties that train at home.

        Raises:
            ConfigError: sigma and epsilon are both given, and these steps would cost more than epsilon.
        """
        sigma, limit = self.sigma_by_row(plan), self.epsilon
        if self.sigma is not None and limit is not None and (cost := self.row_epsilon(plan)) > limit * SAME:
            raise ConfigError(
                f"privacy: {plan.steps:,} steps at each of {plan.parties} parties with sigma {self.sigma:g} would cost "
                f"epsilon {cost:.4g} (unit ROW, PLD accountant, delta {self.delta:g}), more than {limit:g}; "
                "leave sigma out, which calibrates it, or train fewer rounds"
            )
        return RowNoise(self.clip or 1.0, sigma, plan, source)

    def sigma_by_row(self, plan: LocalSteps) -> float:
        """The noise multiplier: as given, or the smallest that so many steps of all parties need."""
        if self.sigma is not None:
            return self.sigma
        if self.epsilon is None:
            raise ConfigError("privacy: there is neither sigma nor epsilon to calibrate the noise for")
        return calibrate_steps(self.epsilon, self.delta, plan.rate, plan.releases)

    def row_epsilon(self, plan: LocalSteps) -> float:
        """What training costs a row that is at all parties; PLD."""
        return epsilon_of_steps(plan.rate, self.sigma_by_row(plan), plan.releases, self.delta)[0]

    def row_protection(self, plan: LocalSteps, source: NoiseSource) -> Protection:
        """Nothing leaves in training; what is said of other rows leaves as it is, once training is in the ledger."""
        noise = self.row_noise(plan, source)
        return Protection(Declared(noise.event), source=source, local=noise)

    def check_sum(
        self, parties: int, needs_uploads: str, silence: bool, lacking: bool, own: Sequence[str] = ()
    ) -> None:
        """Refuse a secure sum that cannot be, or would not hide anything.

        `silence` says that some may not upload, `lacking` that parties lack some of the training rows, `own` which
        parties belong to the label holder.
        """
        if not self.secure_sum.use:
            return
        if needs_uploads == "each":
            raise ConfigError(
                "privacy.secure_sum: this method needs every party's upload by itself; use one that needs only their "
                "sum, e.g. vimadmm_j"
            )
        if silence:
            raise ConfigError(
                "privacy.secure_sum opens only with all parties, and remembered uploads would be sent with their old "
                "noise again; use order = 'together', participation = 1 and absence.then = 'wait' or 'stop'"
            )
        if lacking:
            raise ConfigError(
                "privacy.secure_sum: of a row that only one party holds, the sum is what that party said; train on "
                "rows that all parties hold"
            )
        if parties - self.secure_sum.colluders < 2:
            raise ConfigError(
                f"privacy.secure_sum: with {parties} parties and {self.secure_sum.colluders} colluders no two honest "
                "ones are left, and nothing is hidden; it takes colluders + 2 parties"
            )
        if len(own) > self.secure_sum.colluders:
            raise ConfigError(
                f"privacy.secure_sum: {', '.join(own)} belong to the label holder, which knows what they add, and "
                f"colluders = {self.secure_sum.colluders} counts on fewer; set colluders = {len(own)}, or more"
            )


def protected(stored: Mapping[str, object]) -> bool:
    """Whether stored settings, of columns or of labels, name a mechanism; records of early versions do not say any."""
    plain = PlainEvent.kind.name
    return stored.get("mechanism", plain) != plain


def last_affordable(plans: Iterable[tuple[int, tuple[str, ...]]], releases: int) -> int:
    """The last of some rounds (number and senders) in which nobody has uploaded more often than `releases`."""
    passed: dict[str, int] = {}
    last = 0
    for number, senders in plans:
        for party in senders:
            passed[party] = passed.get(party, 0) + 1
        if any(passed[party] > releases for party in senders):
            return last
        last = number
    return last
