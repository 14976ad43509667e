"""A claim and the game that tests it: how many releases, how many runs, and what the ledger says of them."""

from __future__ import annotations

from dataclasses import dataclass

from colonnade.audit.bound import Bound, epsilon_of_mu, runs_for
from colonnade.audit.game import Shape, lower_bound
from colonnade.privacy.accounting import SENSITIVITY, Neighbours, shift_of
from colonnade.privacy.mechanism import Mechanism

CLEAREST = 3.0  # mu of a game; beyond it even a perfect player needs ever more runs to be believed
FEWEST = 250  # runs
DRAWS = 1_000_000  # of noise in one game: about a minute


@dataclass(frozen=True)
class Trial:
    """A mechanism, what is claimed of it, and how the game is played against it."""

    mechanism: Mechanism
    clip: float
    sigma: float
    releases: int = 2  # noise that is used twice needs two to be seen
    runs: int = 1000
    delta: float = 1e-5
    shape: Shape = (8, 4)
    neighbours: Neighbours = "absent"

    @property
    def mu(self) -> float:
        """What is claimed, in the measure of the game."""
        return shift_of(self.sigma, self.releases, self.neighbours)

    @property
    def claimed(self) -> float:
        """The epsilon that the exact accountant gives a ledger of these releases."""
        return epsilon_of_mu(self.mu, self.delta)

    @property
    def shows_half_noise(self) -> bool:
        """Whether there are enough runs to show noise that is too small by a factor of two."""
        return self.runs >= runs_for(self.mu)

    def bound(self, seed: int, mechanism: Mechanism | None = None) -> Bound:
        """Play, against the mechanism itself or against another one that claims the same."""
        against = self.mechanism if mechanism is None else mechanism
        return lower_bound(against, self.shape, self.releases, self.runs, self.delta, self.clip, seed, self.neighbours)


def plan(
    mechanism: Mechanism,
    releases: int,
    delta: float = 1e-5,
    neighbours: Neighbours = "absent",
    draws: int = DRAWS,
) -> Trial | None:
    """The trial of a run's mechanism; None where it claims nothing, because it adds no noise.

    The game plays as many of the run's releases as it can tell apart, and as many runs as half the noise needs to
    show, up to `draws` of noise: those grow with sigma squared, whatever the number of releases.
    """
    claimed = mechanism.event.clipped
    if claimed is None or releases < 1:
        return None
    clip, sigma = claimed
    clear = int((CLEAREST * sigma / SENSITIVITY[neighbours]) ** 2)
    played = min(releases, max(2, min(clear, draws // (4 * FEWEST))))  # fewer releases need more runs, no more draws
    wanted = runs_for(shift_of(sigma, played, neighbours))
    runs = max(FEWEST, min(wanted, draws // (4 * played)))  # two worlds, two parties
    return Trial(mechanism, clip, sigma, played, runs, delta, neighbours=neighbours)
