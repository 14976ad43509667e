"""How much a ledger's Gaussian releases of one party give away: the paper's bound, and the exact figure.

T releases with noise multipliers sigma_i are as hard to tell from none as two normal distributions whose means are
mu = sqrt(sum 1/sigma_i^2) standard deviations apart, with a sensitivity of C; of 2C, if the party is not absent but
replaced by another (`neighbours`).

    exact   delta(eps) = Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu), solved for eps
    RDP     min over alpha of alpha mu^2/2 + log((alpha-1)/alpha) - (log delta + log alpha)/(alpha - 1)

Both come from Google's dp-accounting. The exact one is what budgets are held against; the paper's is shown beside
it, because the same noise has a larger epsilon there. A release that no formula here knows is refused, not ignored.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from colonnade.errors import AccountingError
from colonnade.extras import need
from colonnade.privacy.events import Event

if TYPE_CHECKING:
    from colonnade.privacy.ledger import Entry

MEANINGLESS = 100.0  # e^100: no attack is ruled out
LARGEST_DELTA = 1e-3  # that is told without a word: one in so many promises may be broken as a whole
Neighbours = Literal["absent", "replaced"]
SENSITIVITY: dict[str, float] = {"absent": 1.0, "replaced": 2.0}  # in units of the clipping norm
ORDERS = 1 + np.exp(np.linspace(-6, 12, 3000))  # of the RDP bound; its minimum lies well inside
LARGEST = 1e4  # epsilons beyond this are all the same to anybody


def mean_shift(releases: Iterable[Entry], neighbours: Neighbours = "absent") -> float:
    """mu of some Gaussian releases of one party; infinite if one of them left unchanged.

    Raises:
        AccountingError: a release passed a mechanism that this does not know.
    """
    total = 0.0
    for release in releases:
        precision = release.event.precision(release.rows)
        if release.event.bare:
            return math.inf
        if precision is None:
            raise refusal(release)
        total += precision
    return SENSITIVITY[neighbours] * math.sqrt(total)


def supports(event: Event) -> bool:
    """Whether `mean_shift` knows an event: Gaussian noise, and what has no bound at all."""
    return event.bare or event.precision(1) is not None


def refusal(release: Entry) -> AccountingError:
    """What an accountant answers to a release that it does not support."""
    return AccountingError(
        f"a release of {release.owner!r} in round {release.number} passed the mechanism {release.mechanism!r}, "
        "which no accountant here knows; nothing is said about its epsilon"
    )


def shift_of(sigma: float, releases: int, neighbours: Neighbours = "absent") -> float:
    """mu of so many releases with one noise multiplier."""
    return SENSITIVITY[neighbours] * math.sqrt(releases) / sigma


def exact_epsilon(mu: float, delta: float) -> float:
    """The smallest epsilon that holds with this delta."""
    check_delta(delta)
    if mu == 0 or not math.isfinite(mu):
        return mu  # nothing was released; or it was released without noise
    loss = _dp("dp_accounting.pld.privacy_loss_mechanism").GaussianPrivacyLoss(1 / mu)
    if loss.get_delta_for_epsilon(0.0) <= delta:
        return 0.0
    if loss.get_delta_for_epsilon(LARGEST) > delta:
        return math.inf
    solve = need("scipy.optimize", extra="privacy", purpose="an epsilon").brentq
    return float(solve(lambda epsilon: loss.get_delta_for_epsilon(epsilon) - delta, 0.0, LARGEST, xtol=1e-9))


def rdp_epsilon(mu: float, delta: float) -> float:
    """The paper's bound on the same."""
    check_delta(delta)
    if mu == 0 or not math.isfinite(mu):
        return mu  # nothing was released; or it was released without noise
    accountant = _dp("dp_accounting.rdp").RdpAccountant(orders=ORDERS)
    accountant.compose(_dp("dp_accounting").GaussianDpEvent(1 / mu))
    return float(accountant.get_epsilon(delta))


def largest_shift(epsilon: float, delta: float) -> float:
    """The largest mu that keeps to an epsilon: what a budget buys."""
    check_delta(delta)
    if not (epsilon > 0 and math.isfinite(epsilon)):
        raise AccountingError(f"epsilon = {epsilon:g}: needed a number above 0, e.g. 8")
    loss = _dp("dp_accounting.pld.privacy_loss_mechanism").GaussianPrivacyLoss
    solve = need("scipy.optimize", extra="privacy", purpose="a budget").brentq
    high = 1.0
    while loss(1 / high).get_delta_for_epsilon(epsilon) < delta:
        high *= 2
    found = solve(lambda mu: loss(1 / mu).get_delta_for_epsilon(epsilon) - delta, 1e-9, high, xtol=1e-12, rtol=1e-12)
    return float(found) * (1 - 1e-9)  # on the safe side of the last digit


def calibrate(epsilon: float, delta: float, releases: int, neighbours: Neighbours = "absent") -> float:
    """The smallest noise multiplier with which so many releases cost at most `epsilon`, by the exact figure."""
    if releases < 1:
        raise AccountingError(f"{releases} releases: needed at least one to calibrate the noise for")
    return shift_of(1.0, releases, neighbours) / largest_shift(epsilon, delta)


def affordable(sigma: float, epsilon: float, delta: float, neighbours: Neighbours = "absent") -> int:
    """How many releases with this noise cost at most `epsilon`."""
    worth = (largest_shift(epsilon, delta) * sigma / SENSITIVITY[neighbours]) ** 2
    return math.floor(worth * (1 + 1e-8))  # calibrated noise affords what it was calibrated for


def of_its_size(epsilon: float, delta: float) -> str:
    """What must be said of a figure that rules nothing out, as a sentence to add; empty: of another one."""
    if epsilon > MEANINGLESS:
        return " Figures of this size promise nothing."
    if delta > LARGEST_DELTA:
        return f" A delta of {delta:g} promises little: with about that chance anything may be told."
    return ""


def check_delta(delta: float) -> None:
    """Refuse what is no probability."""
    if not 0 < delta < 1:
        raise AccountingError(f"delta = {delta:g}: needed a probability between 0 and 1, e.g. 1e-5")


def _dp(module: str) -> Any:
    return need(module, extra="privacy", purpose="an epsilon")
