"""Who adds, from this process's point of view: the roster, the key pairs that are here, and the grids all agreed on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from colonnade.errors import ConfigError
from colonnade.identity.cipher import KEY, KeyPair
from colonnade.privacy.gaussian import Gaussian
from colonnade.privacy.mechanism import Mechanism, Unchanged
from colonnade.privacy.secure_sum.fixed_point import Grid
from colonnade.privacy.secure_sum.masks import Masker
from colonnade.privacy.secure_sum.noise import share_deviation
from colonnade.privacy.secure_sum.roster import Roster
from colonnade.privacy.secure_sum.summand import NoisySummand, Opener, Summand
from colonnade.privacy.settings import PrivacySettings
from colonnade.randomness import stream


@dataclass(frozen=True)
class Adders:
    """The parties of a secure sum; `pairs` are of those that live in this process."""

    roster: Roster
    privacy: PrivacySettings
    pairs: Mapping[str, KeyPair] = field(default_factory=dict, repr=False)

    def mechanisms(self, training: Mechanism) -> tuple[Mechanism, Mechanism]:
        """What stands before training, and before evaluation and prediction; `training` is without the sum."""
        maskers = {name: Masker(name, pair, self.roster) for name, pair in self.pairs.items()}
        plain = Summand(self._grids(0.0)[1], maskers)
        if isinstance(training, Unchanged):
            return plain, plain
        if not isinstance(training, Gaussian):  # counts of a method's own: whole numbers fit any grid
            counts = training.event.counted(1)
            if counts is not None and counts.trials > plain.grid.largest:
                raise ConfigError(
                    f"privacy.secure_sum.largest = {plain.grid.largest:g}: counts of up to {counts.trials} would "
                    "not fit"
                )
            return Summand(plain.grid, maskers, training, self.privacy.secure_sum.colluders), plain
        noisy = NoisySummand(
            self._grids(training.sigma)[0],
            maskers,
            clip=training.clip,
            sigma=training.sigma,
            colluders=self.privacy.secure_sum.colluders,
            source=training.source,
        )
        return noisy, plain

    def predicting(self) -> tuple[Mechanism, Opener]:
        """What stands before predictions, and what opens them."""
        return self.mechanisms(Unchanged())[1], Opener(self.roster, *self._grids(0.0))

    def opener(self, releases: int) -> Opener:
        """What the coordinator reads sums with; it needs nobody's key."""
        sigma = self.privacy.noise(releases) if self.privacy.protects else 0.0
        return Opener(self.roster, *self._grids(sigma))

    def _grids(self, sigma: float) -> tuple[Grid, Grid]:
        """The whole numbers of training, and those of evaluation and prediction."""
        s, parties, clip = self.privacy.secure_sum, len(self.roster.names), self.privacy.clip
        evaluating = Grid(parties, s.largest)
        if not sigma or clip is None:
            return evaluating, evaluating
        return Grid(parties, clip, share_deviation(sigma, clip, parties, s.colluders)), evaluating


def simulated(run: str, parties: Sequence[str], seed: int, privacy: PrivacySettings) -> Adders:
    """All parties in one process, with keys from the seed: a simulation can be repeated to the byte."""
    pairs = {party: KeyPair.restore(stream(seed, "mask key", party).bytes(KEY)) for party in parties}
    return Adders(Roster.of(run, {party: pair.public for party, pair in pairs.items()}), privacy, pairs)
