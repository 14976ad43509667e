"""The Poisson binomial mechanism (VFL-PBM): whole numbers whose sum estimates a sum of bounded values, and its cost.

    x in [-1, 1], q ~ Binomial(n, 1/2 + theta x), S = sum_k q_k, estimate of sum_k x_k: (S - n M/2) / (theta n)

The cost of one cell of one release, as a Renyi divergence of order alpha, with p, q = 1/2 +- theta:

    local  who sees q_k itself:         n/(alpha-1) log(p^alpha q^(1-alpha) + q^alpha p^(1-alpha))
    sum    who sees S only, one x_k changes:  D(Bin(n, p) + R || Bin(n, q) + R), R = the other parties' trials

The second is exact, by convolution, at the worst R. Any R is a mixture of sums of (M-1) n trials of which j have
probability p and the others q, and the divergence is quasi-convex; over j it is largest at an end (all p, or all q):
the tests try every j of small cases, a proof is not known to us. 8 alpha n theta^2 / M is often quoted; it is *not* a
bound. If one row changes at all M parties (unit ROW), the sum helps nobody: M times the local value.

Cells add up: d_f change with one row of a party, b d_f with the whole party; so do releases. After a row's first use
the party's network carries it on, so from then on all cells may change with it: a run's figure counts all of them.
Parties that tell others their own counts (colluders) hide nobody, so a sum is over the other ones.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from colonnade.errors import ConfigError, GateError
from colonnade.privacy.accounting import check_delta, refusal
from colonnade.privacy.by_row import uniforms
from colonnade.privacy.events import Event, Hides, Kind, positive
from colonnade.privacy.gaussian import NoiseSource, SystemNoise, check_width

if TYPE_CHECKING:
    from colonnade.privacy.ledger import Entry

Floats = NDArray[np.float64]
View = Literal["local", "sum", "row"]  # who sees what: each party's counts; their sum; one row changes everywhere
ORDERS = tuple(1 + math.exp(e / 8) for e in range(-40, 57))  # of the conversion to epsilon
MOST_TRIALS = 255  # per party: a count is one byte


def local_rdp(alpha: float, trials: int, theta: float) -> float:
    """What one cell of one release costs, if the party's own count is seen."""
    _check(alpha, trials, theta)
    high, low = math.log(0.5 + theta), math.log(0.5 - theta)
    both = np.logaddexp(alpha * high + (1 - alpha) * low, alpha * low + (1 - alpha) * high)
    return float(trials / (alpha - 1) * both)


def sum_rdp(alpha: float, trials: int, theta: float, parties: int) -> float:
    """What one cell costs the party that changes, if only the sum over all parties is seen."""
    _check(alpha, trials, theta)
    if parties < 1:
        raise ConfigError(f"a sum is over at least 1 party; what came is {parties}")
    others = (parties - 1) * trials
    return max(divergence(alpha, trials, theta, others, j) for j in (0, others))


def divergence(alpha: float, trials: int, theta: float, others: int, high: int) -> float:
    """D_alpha of the sum when one party goes from +1 to -1, beside `others` trials, `high` of them at 1/2 + theta."""
    here = _log_sum(trials + high, 0.5 + theta, others - high, 0.5 - theta)
    there = _log_sum(high, 0.5 + theta, trials + others - high, 0.5 - theta)
    return float(np.logaddexp.reduce(alpha * here + (1 - alpha) * there) / (alpha - 1))


def cell_rdp(alpha: float, trials: int, theta: float, parties: int, view: View) -> float:
    """What one cell of one release costs in a view."""
    if view == "sum":
        return sum_rdp(alpha, trials, theta, parties)
    return local_rdp(alpha, trials, theta) * (parties if view == "row" else 1)


def pbm_epsilon(
    delta: float, trials: int, theta: float, *, parties: int, cells: int, releases: int, view: View
) -> float:
    """The epsilon of so many releases in which so many cells change: additive RDP, converted at the best order."""
    check_delta(delta)
    count = cells * releases
    if count == 0:
        return 0.0
    return min(_converted(count * cell_rdp(alpha, trials, theta, parties, view), alpha, delta) for alpha in ORDERS)


@dataclass(frozen=True)
class Counted:
    """Counts that a party released, as an accountant sees them."""

    trials: int
    theta: float
    among: int  # honest parties whose counts only show as a sum; 1: the party's own counts are seen
    cells: int  # over all releases

    @classmethod
    def of(cls, releases: Iterable[Entry]) -> tuple[Counted, ...]:
        """The releases of one party, alike ones together.

        Raises:
            AccountingError: a release holds no counts.
        """
        cells: Counter[tuple[int, float, int]] = Counter()
        for release in releases:
            part = release.event.counted(release.rows)
            if part is None:
                raise refusal(release)
            cells[part.trials, part.theta, part.among] += part.cells
        return tuple(cls(*key, count) for key, count in sorted(cells.items()))

    def everywhere(self, parties: int) -> Counted:
        """What a row costs that changes at all parties: the sum hides nothing of it."""
        return Counted(self.trials, self.theta, 1, self.cells * parties)


def supports(event: Event) -> bool:
    """Whether this accountant knows an event: counts, and sums of counts."""
    return event.counted(1) is not None


def counted_epsilon(parts: Iterable[Counted], delta: float, shift: float = 0.0) -> float:
    """The epsilon of counts of several kinds; unit PARTY, neighbours: replaced, which absent ones are within.

    `shift` is mu of Gaussian releases beside them, whose divergence of order alpha is alpha mu^2/2.
    """
    check_delta(delta)
    known = [part for part in parts if part.cells]
    if not known and not shift:
        return 0.0
    noise = shift**2 / 2
    costs = (alpha * noise + sum(p.cells * _cost(alpha, p.trials, p.theta, p.among) for p in known) for alpha in ORDERS)
    return min(_converted(cost, alpha, delta) for cost, alpha in zip(costs, ORDERS, strict=True))


@cache
def _cost(alpha: float, trials: int, theta: float, among: int) -> float:
    return sum_rdp(alpha, trials, theta, among) if among > 1 else local_rdp(alpha, trials, theta)


def _converted(cost: float, alpha: float, delta: float) -> float:
    """From a Renyi divergence of order alpha to an epsilon; never below 0."""
    return max(0.0, cost + math.log1p(-1 / alpha) - (math.log(delta) + math.log(alpha)) / (alpha - 1))


def estimate(total: Tensor, parties: Tensor | int, trials: int, theta: float) -> Tensor:
    """An unbiased estimate of the sum of the parties' values from the sum of their counts."""
    return (total - parties * (trials / 2)) / (theta * trials)


def expected(values: Tensor, trials: int, theta: float) -> Tensor:
    """The mean of the counts of some values in [-1, 1]: what the mechanism is given in their place."""
    return trials * (0.5 + theta * values.clamp(-1, 1))


@dataclass(frozen=True)
class PoissonBinomialEvent(Event):
    """Every number drawn as a count of trials whose chance it sets."""

    kind: ClassVar[Kind] = Kind(
        "poisson binomial", "every number drawn as a count of trials whose chance it sets", Hides.COLUMNS
    )
    summable: ClassVar[bool] = True  # a sum of counts hides each of them behind the others

    trials: int
    theta: float
    width: int  # counts per row
    simulated: bool = False  # the counts can be drawn again

    def __post_init__(self) -> None:
        positive(trials=self.trials, theta=self.theta, width=self.width)
        if self.theta >= 0.5:
            raise ValueError(f"theta = {self.theta:g}: below 1/2 was needed")

    def counted(self, rows: int, among: int = 1) -> Counted:
        """The counts of one release."""
        return Counted(self.trials, self.theta, among, rows * self.width)


@dataclass(frozen=True)
class PoissonBinomial:
    """The mechanism: expected counts go in, counts come out, every cell drawn on its own, in the numbers of the run.

    What goes in is clipped to [n/2 - n theta, n/2 + n theta], so whatever a method hands over keeps to the bound.
    """

    trials: int
    theta: float
    width: int  # counts that a party sends per row
    source: NoiseSource = field(default_factory=SystemNoise)

    def __post_init__(self) -> None:
        """Refuse what has no probability, or no byte."""
        _check(2.0, self.trials, self.theta)
        if self.trials > MOST_TRIALS:
            raise ConfigError(f"trials = {self.trials}: a count is one byte, so at most {MOST_TRIALS}")

    @cached_property
    def event(self) -> PoissonBinomialEvent:
        """What the ledger says of its releases."""
        return PoissonBinomialEvent(self.trials, self.theta, self.width, self.source.simulated)

    def __call__(
        self, upload: Mapping[str, Tensor], parties: Sequence[str], number: int, what: str
    ) -> Mapping[str, Tensor]:
        """Counts of the (P, B, d) expected counts, one independent draw per party."""
        if other := [name for name, value in upload.items() if not value.is_floating_point()]:
            raise GateError(f"the Poisson binomial mechanism draws counts itself; {other} are whole already")
        check_width(upload, self.width)
        drawn = []
        for place, party in enumerate(parties):
            binomial = self._binomial(party, number, what)
            drawn.append({name: self._counts(value[place], binomial) for name, value in upload.items()})
        return {name: torch.stack([d[name] for d in drawn]).to(value) for name, value in upload.items()}

    def _counts(self, means: Tensor, binomial: Callable[[Floats], Floats]) -> Tensor:
        chance = means.detach().cpu().double().numpy() / self.trials
        chance = np.clip(chance, 0.5 - self.theta, 0.5 + self.theta)
        return torch.from_numpy(binomial(chance).astype(np.uint8))

    def _binomial(self, party: str, number: int, what: str) -> Callable[[Floats], Floats]:
        """What draws counts: addressed in a simulation; else trial by trial from the operating system's cipher."""
        if self.source.simulated:
            generator = self.source.generator(party, number, what)
            return lambda chance: np.asarray(generator.binomial(self.trials, chance), dtype=np.float64)

        def tossed(chance: Floats) -> Floats:
            counts = np.zeros(chance.shape)
            for trial in range(self.trials):
                drawn = uniforms(self.source, (party,), number, f"{what}.{trial}", chance.size)[0].numpy()
                counts += drawn.reshape(chance.shape) <= chance
            return counts

        return tossed


def _log_sum(first: int, p: float, second: int, q: float) -> Floats:
    """Logarithms of the probabilities of Bin(first, p) + Bin(second, q); the shorter one is walked over."""
    short, long = sorted((_log_binomial(first, p), _log_binomial(second, q)), key=len)
    total = np.full(len(short) + len(long) - 1, -np.inf)
    for k, weight in enumerate(short):
        part = total[k : k + len(long)]
        np.logaddexp(part, weight + long, out=part)
    return total


def _log_binomial(count: int, p: float) -> Floats:
    logs = np.concatenate(([0.0], np.cumsum(np.log(np.arange(1, count + 1)))))  # log k!
    k = np.arange(count + 1)
    probabilities: Floats = logs[count] - logs - logs[::-1] + k * math.log(p) + (count - k) * math.log1p(-p)
    return probabilities


def _check(alpha: float, trials: int, theta: float) -> None:
    if not alpha > 1:
        raise ConfigError(f"alpha = {alpha:g}: the order of a divergence here is above 1")
    if trials < 1:
        raise ConfigError(f"trials = {trials}: needed at least 1")
    if not 0 < theta < 0.5:
        raise ConfigError(f"theta = {theta:g}: needed above 0 and below 1/2, so that no outcome is impossible")
