"""From error rates to a lower bound on epsilon, through Gaussian differential privacy.

A mechanism that satisfies mu-GDP leaves every test with Phi^-1(1 - FPR) - Phi^-1(FNR) <= mu. So upper limits on both
rates give a lower limit on mu, and the exact Gaussian curve turns it into epsilon at a delta:

    delta = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu)

The plain (epsilon, delta) bound would use the same rates but is far weaker: it does not see half the noise with 10,000
runs. This one assumes that the mechanism *is* a Gaussian one, which is what the ledger says of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from colonnade.audit.checks import FALSE_ALARM, scipy
from colonnade.errors import ConfigError

CONFIDENCE = 1 - FALSE_ALARM  # of the whole statement: shared among all rates of all scores
WEAK = 1.25  # what is to be seen: noise at 0.8 of what the ledger says, or uploads that much longer


@dataclass(frozen=True)
class Bound:
    """What a game showed: with the stated confidence the mechanism spends at least this epsilon."""

    epsilon: float
    mu: float  # the Gaussian-DP parameter behind it
    fpr: float  # observed: said "present" of an absent party
    fnr: float  # observed: said "absent" of a present party
    score: str  # the score that gave the bound
    runs: int  # games in each of the two worlds
    releases: int  # per game
    delta: float
    confidence: float = CONFIDENCE

    def above(self, claimed: float) -> bool:
        """Whether the bound contradicts a claimed epsilon: then code or ledger is wrong."""
        return self.epsilon > claimed


def upper_limit(errors: int, runs: int, alpha: float) -> float:
    """The one-sided Clopper-Pearson limit: the true rate is above it with probability at most `alpha`."""
    if not 0 <= errors <= runs or runs < 1:
        raise ConfigError(f"an error rate needs 0 to `runs` errors in at least 1 run; got {errors} in {runs}")
    if errors == runs:
        return 1.0
    return float(scipy("stats").beta.ppf(1 - alpha, errors + 1, runs - errors))


def mu_of_errors(false_positives: int, false_negatives: int, runs: int, alpha: float) -> float:
    """The smallest mu that is compatible with the errors, each rate at its upper limit; never below 0."""
    ndtri = scipy("special").ndtri
    limits = [upper_limit(errors, runs, alpha) for errors in (false_positives, false_negatives)]
    if max(limits) >= 1.0:
        return 0.0
    return max(0.0, -float(ndtri(limits[0])) - float(ndtri(limits[1])))


def delta_of_mu(epsilon: float, mu: float) -> float:
    """The exact Gaussian curve: the smallest delta at which mu-GDP is (epsilon, delta)-DP."""
    if mu <= 0:
        return 0.0
    log_ndtr = scipy("special").log_ndtr
    first = math.exp(float(log_ndtr(mu / 2 - epsilon / mu)))
    second = math.exp(epsilon + float(log_ndtr(-mu / 2 - epsilon / mu)))  # in logs: e^epsilon alone may overflow
    return max(0.0, first - second)


def epsilon_of_mu(mu: float, delta: float) -> float:
    """The inverse of the exact curve: the smallest epsilon at this delta."""
    if not 0 < delta < 1:
        raise ConfigError(f"delta must lie between 0 and 1; got {delta}; 1e-5 is usual")
    if delta_of_mu(0.0, mu) <= delta:
        return 0.0
    high = mu * mu / 2 + mu * math.sqrt(2 * math.log(1 / delta))  # the tail bound on the privacy loss
    root = scipy("optimize").brentq(lambda epsilon: delta_of_mu(epsilon, mu) - delta, 0.0, high, xtol=1e-12)
    return float(root)


def ceiling(mu: float) -> float:
    """The AUC that nobody can pass who tells two worlds of mu-GDP apart: Phi(mu / sqrt 2).

    It is the chance to say of one game of each world which is which; and that is a test of two worlds that are
    sqrt(2) mu apart, so nobody is right more often than Phi(sqrt(2) mu / 2).
    """
    return float(scipy("special").ndtr(mu / math.sqrt(2)))


def runs_for(mu: float, factor: float = WEAK, rates: int = 4) -> int:
    """Runs that show noise too small by `factor` where the ledger says `mu`, even with three deviations of bad luck.

    The stronger the protection that is claimed, the more runs: some 6,000 at mu = 1, and some twenty times that at 0.2.
    """
    if mu <= 0 or factor <= 1:
        raise ConfigError(f"needed mu > 0 and a factor > 1; got mu = {mu}, factor = {factor}")
    runs = 125
    while runs < 2**30 and not _shows(mu, factor, runs, rates):
        runs = runs * 5 // 4
    return runs  # too weak a claim for any game: even a player who is never wrong is not believed so far


def shown_by(mu: float, runs: int, rates: int = 4) -> float:
    """The smallest factor of too little noise that so many runs show, in steps of 4.6 %; infinite: none does."""
    for step in range(1, 60):
        factor = float(WEAK ** (step / 5))
        if _shows(mu, factor, runs, rates):
            return factor
    return math.inf


def _shows(mu: float, factor: float, runs: int, rates: int) -> bool:
    rate = float(scipy("special").ndtr(-factor * mu / 2))
    unlucky = min(runs, math.ceil(runs * rate + 3 * math.sqrt(runs * rate * (1 - rate))))
    return mu_of_errors(unlucky, unlucky, runs, (1 - CONFIDENCE) / rates) > mu
