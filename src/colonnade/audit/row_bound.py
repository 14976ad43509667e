"""From error rates to a lower bound on epsilon, for steps on rows drawn by chance: through the accountant itself.

Whoever tells with few errors whether a row was there needs a mechanism that lets them. With (epsilon, delta(epsilon))
at every epsilon, which is what a privacy loss distribution gives, both hold of the rates of errors:

    1 - false negatives <= e^epsilon false positives + delta(epsilon), and with the two exchanged

The accountant's distribution is a little pessimistic, so a bound made from it is a little too low, never too high.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from colonnade.extras import need
from colonnade.privacy.accounting import MEANINGLESS
from colonnade.privacy.sampled import epsilon_of_steps, sampled_releases

POINTS = 60  # epsilons at which the curve is asked
WIDEST = 2.0**7  # how far from the ledger's noise another one is looked for, both ways
PRECISE = 1.01  # ratio of two noise multipliers that are as good as equal
ROUNDING = 1e-9  # of the curve; must not accuse anybody
STEP = 1e-3  # of the privacy loss, in units of about the figure


@dataclass(frozen=True)
class Steps:
    """So many sampled Gaussian releases."""

    rate: float
    sigma: float
    releases: int

    @property
    def apart(self) -> float:
        """About how many deviations the two worlds are apart (mu), as many small steps are a Gaussian together."""
        return self.rate * math.sqrt(self.releases * math.expm1(min(1 / self.sigma**2, 50.0)))

    def epsilon(self, delta: float, sigma: float | None = None) -> float:
        """By the accountant; with another noise, if one is given. Infinite noise costs nothing."""
        noise = self.sigma if sigma is None else sigma
        return 0.0 if math.isinf(noise) else epsilon_of_steps(self.rate, noise, self.releases, delta)[0]


def least_noise(steps: Steps, false_positives: float, false_negatives: float) -> float:
    """The smallest noise multiplier with which nobody has so few errors, found by halves; infinite: there is none.

    Args:
        steps: as the ledger says them; others have their rate and number.
        false_positives: the rate at most, of rows that were not there.
        false_negatives: the same of those that were.

    Returns:
        At most `steps.sigma` only if the ledger's own noise rules them out. Its epsilon is the lower bound.
    """
    low, high = steps.sigma / WIDEST, steps.sigma * WIDEST
    if allows(replace(steps, sigma=high), false_positives, false_negatives):
        return math.inf
    own = allows(steps, false_positives, false_negatives)
    low, high = (steps.sigma, high) if own else (low, steps.sigma)
    while high / low > PRECISE:
        middle = math.sqrt(low * high)
        if allows(replace(steps, sigma=middle), false_positives, false_negatives):
            low = middle
        else:
            high = middle
    return high


def allows(steps: Steps, false_positives: float, false_negatives: float) -> bool:
    """Whether so few errors are possible: true wherever nothing is promised any more."""
    if epsilon_of_steps(steps.rate, steps.sigma, steps.releases, 1e-5)[1] > MEANINGLESS:
        return True
    at, deltas = _curve(steps)
    pairs = ((false_positives, false_negatives), (false_negatives, false_positives))
    return all(1 - missed <= float((np.exp(at) * wrong + deltas).min()) + ROUNDING for wrong, missed in pairs)


@lru_cache(maxsize=256)
def _curve(steps: Steps) -> tuple[np.ndarray, np.ndarray]:
    """Epsilons, and the delta of each."""
    pld = need("dp_accounting.pld", extra="privacy", purpose="The audit")
    most = min(12.0, epsilon_of_steps(steps.rate, steps.sigma, steps.releases, 1e-5)[0] + 0.01)
    accountant = pld.PLDAccountant(value_discretization_interval=max(1e-5, STEP * most))
    accountant.compose(sampled_releases(steps.rate, steps.sigma, steps.releases))
    at = np.linspace(0.0, most, POINTS)
    return at, np.array([accountant.get_delta(float(one)) for one in at])
