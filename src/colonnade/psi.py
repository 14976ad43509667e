"""Population stability: how far a distribution has moved, by counts in the same bins then and now.

    PSI = sum over bins of (q - p) ln(q / p),    p, q: shares of the rows then and now

A bin that is empty on one side counts as half a row there, or the sum would be infinite; one that is empty on both
sides does not count. Two samples of n and m rows from one distribution over k bins have a PSI of about
(k - 1) (1/n + 1/m), and n m / (n + m) times it is close to a chi-square with k - 1 degrees of freedom: what chance
alone gives is told beside every value, and a value that chance often gives is not called a shift.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

import numpy as np

SOME, LARGE = 0.1, 0.25  # the usual thresholds
FEWEST = 50  # rows on either side; with fewer nothing is said
HALF = 0.5  # a row, in place of none
STABLE, CHANCE, SHIFT, LARGE_SHIFT, TOO_FEW, MISSING = (
    "stable", "within chance", "some shift", "large shift", "too few rows to say", "not comparable",
)  # fmt: skip
Z95 = 1.6448536269514722  # the 95 % quantile of the normal distribution


def psi(then: np.ndarray, now: np.ndarray) -> float:
    """Of counts (k,) in the same bins; NaN where one side has no row at all."""
    first, second = np.asarray(then, dtype=np.float64), np.asarray(now, dtype=np.float64)
    used = (first > 0) | (second > 0)
    n, m = first.sum(), second.sum()
    if not n or not m:
        return math.nan
    p, q = np.maximum(first[used], HALF) / n, np.maximum(second[used], HALF) / m
    return float(((q - p) * np.log(q / p)).sum())


def by_chance(bins: int, n: int, m: int) -> float:
    """About what two samples of n and m rows from one distribution over so many bins give."""
    return max(bins - 1, 0) * (1 / n + 1 / m) if n and m else math.nan


def often_by_chance(bins: int, n: int, m: int) -> float:
    """What they exceed in one of twenty cases: the chi-square quantile by Wilson and Hilferty."""
    k = bins - 1
    if k < 1 or not n or not m:
        return math.nan if not n or not m else 0.0
    return float(k * (1 - 2 / (9 * k) + Z95 * math.sqrt(2 / (9 * k))) ** 3 * (1 / n + 1 / m))


@dataclass(frozen=True)
class Shift:
    """One column, or one score: how far it has moved, and what to call that."""

    name: str
    psi: float | None
    chance: float | None  # what chance alone gives, about
    verdict: str
    rows: tuple[int, int]  # counted then and now
    note: str = ""

    @classmethod
    def of(cls, name: str, then: np.ndarray, now: np.ndarray, note: str = "") -> Shift:
        """Of counts in the same bins."""
        n, m, value = int(np.sum(then)), int(np.sum(now)), psi(then, now)
        bins = int(((np.asarray(then) > 0) | (np.asarray(now) > 0)).sum())
        expected, often = by_chance(bins, n, m), often_by_chance(bins, n, m)
        if min(n, m) < FEWEST or (often > LARGE and value <= often):
            return cls(name, _number(value), _number(expected), TOO_FEW, (n, m), note)
        if value < SOME:
            verdict = STABLE
        elif value <= often:
            verdict = CHANCE
        else:
            verdict = SHIFT if value < LARGE else LARGE_SHIFT
        return cls(name, value, expected, verdict, (n, m), note)

    @classmethod
    def missing(cls, name: str, then: np.ndarray, why: str) -> Shift:
        """A column that cannot be compared."""
        return cls(name, None, None, MISSING, (int(np.sum(then)), 0), why)

    @property
    def alarming(self) -> bool:
        """Whether a model should not be trusted with it unseen: a large shift, or a column that is not what it was."""
        return self.verdict in (LARGE_SHIFT, MISSING)

    def to_json(self) -> dict[str, object]:
        """Plain values."""
        return {**asdict(self), "rows": list(self.rows)}


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value
