"""The game against counts (Poisson binomial): every number is drawn as Binomial(n, 1/2 + theta x), x in [-1, 1].

One world uploads numbers beyond +1 in some cells, the other beyond -1. All that a player can use is the sum S of the
counts there, Binomial(N, 1/2 + theta) against Binomial(N, 1/2 - theta), N trials in all. So the claim is a curve: the
smallest rate of misses that goes with a rate of false alarms (Neyman and Pearson). Upper limits on both rates below
that curve contradict it; the smallest theta whose curve allows them is a lower bound on theta, and its exact

    delta(epsilon) = sum_k max(0, P[S = k | +] - e^epsilon P[S = k | -])

a lower bound on the epsilon of these counts. As with noise, this assumes that the mechanism draws counts as its ledger
says, if perhaps with another theta.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from colonnade.audit import noise
from colonnade.audit.bound import CONFIDENCE, WEAK, upper_limit
from colonnade.audit.checks import Check, judged, scipy
from colonnade.audit.claims import Counts
from colonnade.audit.full_shape import CLIPPING, ENOUGH_CELLS, ENOUGH_ROWS, FIRST, FRESH, LOW_BITS, MOST_RELEASES, SIZE
from colonnade.audit.game import WHAT, Pairs, play
from colonnade.audit.shapes import Layout
from colonnade.privacy.mechanism import Mechanism

CLEAREST = 2.0  # means of the two worlds' sums, in deviations
FEWEST = 250
BEYOND = 1e6  # how far beyond its bound an upload is


@dataclass(frozen=True)
class CountBound:
    """What a game against counts showed."""

    epsilon: float  # lower bound, of the counts that were played
    claimed: float  # the exact figure of the same counts under the claim
    theta: float  # lower bound
    fpr: float
    fnr: float
    runs: int
    confidence: float = CONFIDENCE


@dataclass(frozen=True)
class CountTrial:
    """A claim about counts, and how the game is played against it."""

    claim: Counts
    layout: Layout  # of the uploads of games
    cells: int = 1  # that differ between the worlds
    part: float = 1.0  # how far they differ, in units of the bound
    runs: int = 1000
    delta: float = 1e-5

    @property
    def trials(self) -> int:
        """N: of all cells that differ."""
        return self.claim.trials * self.cells

    @property
    def theta(self) -> float:
        """What is claimed of such canaries."""
        return self.part * self.claim.theta

    def play(self, mechanism: Mechanism, seed: int) -> tuple[CountBound, Pairs]:
        """Play both worlds, and judge."""
        first = 2 * seed * self.runs
        present, absent = (
            play(mechanism, self.layout, self._upload(sign)[None], self.runs, first + world * self.runs)
            for world, sign in enumerate((1.0, -1.0))
        )
        there, gone = (seen[:, 0, : self.cells].sum(dim=1) for seen in (present, absent))
        middle = self.trials / 2  # "present" from here on
        positives, negatives = self.runs - int((gone < middle).sum()), self.runs - int((there >= middle).sum())
        wins = float((there > gone).sum() + 0.5 * (there == gone).sum())
        return self._bound(positives, negatives), Pairs(wins, self.runs, auc_of(self.trials, self.theta))

    def _upload(self, sign: float) -> Tensor:
        """Means of counts (D,): beyond the bound where the worlds differ, and in the middle elsewhere."""
        upload = torch.full((self.layout.cells,), self.claim.trials / 2, dtype=torch.float64)
        over = BEYOND if self.part == 1 else 1.0
        upload[: self.cells] += sign * over * self.claim.trials * self.theta
        return upload

    def _bound(self, positives: int, negatives: int) -> CountBound:
        limits = [upper_limit(errors, self.runs, (1 - CONFIDENCE) / 2) for errors in (positives, negatives)]
        theta = smallest_theta(self.trials, *limits)
        told = epsilon_of_counts(self.trials, self.theta, self.delta)
        found = epsilon_of_counts(self.trials, theta, self.delta)
        return CountBound(found, told, theta, positives / self.runs, negatives / self.runs, self.runs)


def plan_counts(claim: Counts, layout: Layout, draws: int, delta: float) -> CountTrial:
    """Cells and canaries so that the worlds are moderately clear, and runs that show theta too large by a quarter."""
    small = layout.smaller(1)
    apart = 4 * claim.theta * math.sqrt(claim.trials)  # of one cell, roughly
    cells = max(1, min(small.cells, int((CLEAREST / apart) ** 2)))
    part = min(1.0, CLEAREST / (apart * math.sqrt(cells)))
    base = CountTrial(claim, small, cells, part, FEWEST, delta)
    return replace(base, runs=max(FEWEST, min(_runs_for(base), draws // 2)))


def _runs_for(trial: CountTrial) -> int:
    """Runs that show a theta that is larger by a quarter, three deviations out of luck in both worlds."""
    n, theta, runs = trial.trials, min(0.499, WEAK * trial.theta), FEWEST
    middle = math.ceil(n / 2) - 1  # the largest sum that is told to be absent
    tail = scipy("stats").binom
    rates = float(tail.sf(middle, n, 0.5 - theta)), float(tail.cdf(middle, n, 0.5 + theta))
    while runs < 2**20:
        unlucky = [min(runs, math.ceil(runs * rate + 3 * math.sqrt(runs * rate))) for rate in rates]
        alarms, misses = (upper_limit(errors, runs, (1 - CONFIDENCE) / 2) for errors in unlucky)
        if misses < least_misses(n, trial.theta, alarms):
            return runs
        runs = runs * 5 // 4
    return runs


def least_misses(trials: int, theta: float, alarms: float) -> float:
    """The smallest rate of misses of any player whose rate of false alarms is `alarms`."""
    binomial = scipy("stats").binom
    k = np.arange(trials + 1)
    there, gone = binomial.pmf(k, trials, 0.5 + theta), binomial.pmf(k, trials, 0.5 - theta)
    above = np.concatenate([np.cumsum(gone[::-1])[::-1], [0.0]])  # P[S >= k | -]
    at = int(np.argmax(above <= alarms))  # "present" from here on
    missed = float(there[:at].sum())
    if at > 0 and gone[at - 1] > 0:
        missed -= (alarms - above[at]) / gone[at - 1] * float(there[at - 1])  # and now and then one below
    return max(0.0, missed)


def smallest_theta(trials: int, alarms: float, misses: float) -> float:
    """The smallest theta that allows such rates; 0: any does."""
    low, high = 0.0, 0.4999
    if least_misses(trials, high, alarms) > misses:
        return high
    for _ in range(40):
        middle = (low + high) / 2
        if least_misses(trials, middle, alarms) > misses:
            low = middle
        else:
            high = middle
    return low


def epsilon_of_counts(trials: int, theta: float, delta: float) -> float:
    """The exact epsilon at this delta of the sum of so many trials."""
    if theta <= 0:
        return 0.0
    log = scipy("stats").binom.logpmf
    k = np.arange(trials + 1)
    there, gone = log(k, trials, 0.5 + theta), log(k, trials, 0.5 - theta)

    def spent(epsilon: float) -> float:
        return float(np.clip(np.exp(there) - np.exp(np.minimum(there, epsilon + gone)), 0, None).sum()) - delta

    if spent(0.0) <= 0:
        return 0.0
    return float(scipy("optimize").brentq(spent, 0.0, trials * math.log((0.5 + theta) / (0.5 - theta)), xtol=1e-9))


def auc_of(trials: int, theta: float) -> float:
    """The ceiling of pairs: S of one world less S of the other is Binomial(2 N, 1/2 + theta) - N."""
    binomial = scipy("stats").binom
    return float(binomial.sf(trials, 2 * trials, 0.5 + theta) + binomial.pmf(trials, 2 * trials, 0.5 + theta) / 2)


@dataclass(frozen=True)
class FullCounts:
    """Counts at the run's own shape: of uploads far beyond the bound on either side, and of zeros."""

    layout: Layout
    claim: Counts
    high: Tensor = field(repr=False)  # (K, D)
    low: Tensor = field(repr=False)  # (K, D)
    middle: Tensor = field(repr=False)  # (R, 2, D)

    def checks(self) -> Iterator[Check]:
        """What a claim of counts says of single releases."""
        everything = (self.high, self.low, self.middle.flatten(0, 1))
        releases = sum(map(len, everything))
        shown: dict[str, object] = {"shape": str(self.layout), "releases": releases}
        told = f"{releases} releases of the run's own shape, {self.layout}"
        yield judged(
            CLIPPING,
            self._too_far(),
            "uploads move the chances FURTHER than the ledger says: bounding does not hold, or theta is larger",
            f"uploads beyond the bound move the chances no further than theta: {told}",
            **shown,
        )
        yield judged(
            SIZE,
            (too_even(self.middle.reshape(1, -1), self.claim.trials),),
            "the counts vary LESS than so many trials do",
            f"counts of zeros vary as so many trials do: {told}",
            **shown,
        )
        yield judged(
            FRESH,
            noise.dependent(self.middle - self.claim.trials / 2, self.layout),
            "draws were used TWICE: between parties, releases, rows or numbers of one upload",
            "no trace of draws that were used twice: between parties, releases, rows and numbers",
            **shown,
        )
        strange = sum(int(((s != s.trunc()) | (s < 0) | (s > self.claim.trials)).sum()) for s in everything)
        wrong = "some numbers are NO counts, which tells more than a count does"
        means = wrong if strange else f"all are whole numbers from 0 to {self.claim.trials}"
        yield Check(LOW_BITS, means, f"{strange:,} no counts", "0 no counts", failed=strange > 0, facts=shown)

    def _too_far(self) -> Iterator[float]:
        """All counts together and those of each row, at most as large as at +1, at least as small as at -1."""
        binomial, n = scipy("stats").binom, self.claim.trials
        chance = 0.5 + self.claim.theta
        for counts in (self.high, n - self.low):  # the second is a count of misses, with the same chance at most
            yield float(binomial.sf(int(counts.sum()) - 1, n * counts.numel(), chance))
            for table in self.layout.tables(counts):
                rows = table.sum(dim=2)
                most = float(binomial.sf(int(rows.max()) - 1, n * table.shape[2], chance))
                yield min(1.0, rows.numel() * most)


def too_even(counts: Tensor, trials: int) -> float:
    """Of draws (K, D) the one that varies least, by Chernoff's bound on a Q = sum (q - n/2)^2 that small.

    It is the least e^(t Q) E[e^(-t (q - n/2)^2)]^D over t > 0.
    """
    squares = (np.arange(trials + 1) - trials / 2) ** 2
    logs = scipy("stats").binom.logpmf(np.arange(trials + 1), trials, 0.5)
    cells, total = counts[0].numel(), float((counts - trials / 2).square().sum(dim=1).min())
    rates = np.geomspace(1e-4, 30.0, 400) / max(trials, 1)
    bounds = [t * total + cells * float(np.logaddexp.reduce(logs - t * squares)) for t in rates]
    return min(1.0, len(counts) * math.exp(min(0.0, *bounds)))


def play_full_counts(mechanism: Mechanism, layout: Layout, claim: Counts, seed: int) -> FullCounts:
    """A few releases at the full shape."""
    number, n = FIRST + seed * 4 * MOST_RELEASES, claim.trials
    times = max(1, min(MOST_RELEASES, math.ceil(ENOUGH_ROWS / layout.rows)))
    zeros = max(2, min(MOST_RELEASES, math.ceil(ENOUGH_CELLS / (2 * layout.cells))))

    def released(mean: float, parties: list[str]) -> Tensor:
        nonlocal number
        number += 1
        upload = torch.full((len(parties), layout.cells), mean, dtype=torch.float64)
        return layout.join(mechanism(layout.split(upload), parties, number, WHAT))

    high, low = (
        torch.cat([released(n / 2 + sign * BEYOND * n, ["audited"]) for _ in range(times)]) for sign in (1, -1)
    )
    middle = torch.stack([released(n / 2, ["audited", "bystander"]) for _ in range(zeros)])
    return FullCounts(layout, claim, high, low, middle)
