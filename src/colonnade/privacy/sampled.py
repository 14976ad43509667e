"""Training at home with noise: what DP-SGD at the parties costs one row (unit ROW).

A step of a party draws every training row by chance (rate q), cuts the gradient of each drawn row to norm C, adds
N(0, sigma^2 C^2) to their sum and moves its model by that alone. Whoever sees anything computed from the model, be it
all models of all steps, sees at most what `steps` such releases tell.

The unit is all that all parties hold about one row, its columns and its label, added or removed. The row may be at
every one of M parties, each of which trains on its own part of it with draws and noise of its own: M x T releases
compose, one after the other.

    PLD     the figure that counts: privacy loss distributions, pessimistic (Google's dp-accounting)
    RDP     a bound on the same, which is a little larger

Both know that sampling hides: this holds only as long as nobody else knows which rows were drawn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

from colonnade.errors import AccountingError
from colonnade.extras import need
from colonnade.privacy.accounting import MEANINGLESS, check_delta, refusal
from colonnade.privacy.events import Event, Hides, Kind, Unit, positive

if TYPE_CHECKING:
    from colonnade.privacy.ledger import Entry

FINEST, COARSEST = 1e-5, 1e-3  # steps of the privacy loss in which distributions are composed
LEAST, MOST = 0.1, 1e5  # noise multipliers among which one is looked for
PRECISE = 1.0005  # ratio of two noise multipliers that are as good as equal
ORDERS = (*range(2, 33), *range(36, 65, 4), 80, 96, 128, 192, 256, 512)  # of RDP; whole ones have a closed form


@dataclass(frozen=True)
class SampledGaussianEvent(Event):
    """A party's whole training at home: so many steps, each with drawn rows, clipped gradients and Gaussian noise."""

    kind: ClassVar[Kind] = Kind(
        "sampled gaussian",
        "trained at home by steps on drawn rows, with clipped gradients of each row and Gaussian noise",
        Hides.COLUMNS,
    )

    rate: float  # with which each step draws a row
    clip: float  # norm of one row's gradient
    sigma: float  # in units of the clipping norm
    steps: int  # of this party, at most
    at_parties: int  # that train so; a row may be at all of them
    simulated: bool = False  # draws and noise can be drawn again
    grid: float | None = None  # step of the noisy sums
    unit: Unit = field(default=Unit.ROW, kw_only=True)

    def __post_init__(self) -> None:
        positive(rate=self.rate, clip=self.clip, sigma=self.sigma, steps=self.steps, at_parties=self.at_parties)
        if self.rate > 1:
            raise ValueError(f"rate = {self.rate:g}: a probability was needed")

    @property
    def releases(self) -> int:
        """Sampled Gaussian releases that one row takes part in: the steps of all parties."""
        return self.steps * self.at_parties

    def to_dp_event(self, rows: int, sensitivity: float = 1.0) -> Any | None:
        """All steps of all parties, for one row added or removed; None: rows that are replaced are not accounted for.

        The event of one party stands for those of all: they train with the same settings.
        """
        return sampled_releases(self.rate, self.sigma, self.releases) if sensitivity == 1 else None


def sampled_releases(rate: float, sigma: float, releases: int) -> Any:
    """So many sampled Gaussian releases, in the terms of dp-accounting."""
    dp = need("dp_accounting", extra="privacy", purpose="an epsilon")
    return dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(sigma)), releases)


def supports(event: Event) -> bool:
    """Whether the accountant of sampled steps knows an event."""
    return isinstance(event, SampledGaussianEvent)


def sampled_events(releases: Iterable[Entry]) -> tuple[SampledGaussianEvent, ...]:
    """The different events of some releases.

    Raises:
        AccountingError: a release passed another mechanism.
    """
    found: dict[SampledGaussianEvent, None] = {}
    for release in releases:
        if not isinstance(release.event, SampledGaussianEvent):
            raise refusal(release)
        found[release.event] = None
    return tuple(found)


def sampled_epsilon(events: Sequence[SampledGaussianEvent], delta: float) -> float:
    """What one row may lose by what all parties' training released; PLD.

    Args:
        events: of one party or of several. Equal ones are the same event: each stands for all parties.
        delta: of the guarantee.
    """
    return _epsilon(tuple(dict.fromkeys((e.rate, e.sigma, e.releases) for e in events)), delta)


def sampled_rdp(events: Sequence[SampledGaussianEvent], delta: float) -> float:
    """The same by RDP."""
    return _rdp(tuple(dict.fromkeys((e.rate, e.sigma, e.releases) for e in events)), delta)


def epsilon_of_steps(rate: float, sigma: float, releases: int, delta: float) -> tuple[float, float]:
    """What so many steps of all parties together cost one row, by PLD and by RDP."""
    check_steps(rate, releases)
    if not 0 < sigma < math.inf:
        raise AccountingError(f"sigma = {sigma:g}: needed a noise multiplier above 0")
    return _epsilon(((rate, sigma, releases),), delta), _rdp(((rate, sigma, releases),), delta)


def calibrate_steps(epsilon: float, delta: float, rate: float, releases: int) -> float:
    """The smallest noise multiplier with which so many steps of all parties cost one row at most `epsilon`, by PLD.

    To a part in a thousand, on the safe side.
    """
    check_steps(rate, releases)
    if not 0 < epsilon <= MEANINGLESS:
        raise AccountingError(f"epsilon = {epsilon:g}: needed a number above 0, and at most {MEANINGLESS:g}")
    check_delta(delta)
    return _calibrated(epsilon, delta, rate, releases)


def check_steps(rate: float, releases: int) -> None:
    """Refuse what no training can be."""
    if not 0 < rate <= 1:
        raise AccountingError(f"rate = {rate:g}: needed the probability with which a step draws a row, above 0")
    if releases < 1:
        raise AccountingError(f"{releases} steps: needed at least one")


Releases = tuple[tuple[float, float, int], ...]  # rate, sigma, how many


@lru_cache(maxsize=256)  # a report asks for the same figure at every party
def _rdp(releases: Releases, delta: float) -> float:
    check_delta(delta)
    accountant = need("dp_accounting.rdp", extra="privacy", purpose="an epsilon").RdpAccountant(orders=ORDERS)
    for rate, sigma, count in releases:
        accountant.compose(sampled_releases(rate, sigma, count))
    return float(accountant.get_epsilon(delta))


@lru_cache(maxsize=256)
def _epsilon(releases: Releases, delta: float) -> float:
    """Never above the RDP bound, which holds too; beyond `MEANINGLESS` that bound itself."""
    bound = _rdp(releases, delta)
    if bound > MEANINGLESS:
        return bound
    pld = need("dp_accounting.pld", extra="privacy", purpose="an epsilon")
    fine = min(COARSEST, max(FINEST, 1e-4 * bound))
    accountant = pld.PLDAccountant(value_discretization_interval=fine)
    for rate, sigma, count in releases:
        accountant.compose(sampled_releases(rate, sigma, count))
    return min(bound, float(accountant.get_epsilon(delta)))


@lru_cache(maxsize=256)
def _calibrated(epsilon: float, delta: float, rate: float, releases: int) -> float:
    """By the RDP bound first, which is quick to compute and a little too careful."""

    def first(low: float, high: float, fits: Callable[[Releases, float], float], precise: float) -> float:
        while high / low > precise:
            middle = math.sqrt(low * high)
            enough = fits(((rate, middle, releases),), delta) <= epsilon
            low, high = (low, middle) if enough else (middle, high)
        return high

    if _rdp(((rate, MOST, releases),), delta) > epsilon:
        raise AccountingError(
            f"epsilon {epsilon:g} (unit ROW, PLD accountant) would take noise of more than {MOST:g} times the clipping "
            f"norm in {releases:,} steps of rate {rate:.3g}; needed fewer steps or rows in each, or a larger epsilon"
        )
    careful = first(LEAST, MOST, _rdp, 1.02)
    low = max(LEAST, careful / 2)
    return first(low, careful, _epsilon, PRECISE)
