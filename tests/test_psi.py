"""Population stability against sums written out by hand, and what must hold for all counts."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from colonnade.psi import CHANCE, FEWEST, LARGE_SHIFT, SHIFT, STABLE, TOO_FEW, Shift, by_chance, often_by_chance, psi
from colonnade.randomness import stream

COUNTS = st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 10_000)), min_size=1, max_size=12)


def by_hand(then: list[int], now: list[int]) -> float:
    """Bin by bin, in plain Python."""
    n, m, total = sum(then), sum(now), 0.0
    for before, after in zip(then, now, strict=True):
        if before == after == 0:
            continue
        p = (before if before else 0.5) / n
        q = (after if after else 0.5) / m
        total += (q - p) * math.log(q / p)
    return total


@given(COUNTS)
def test_it_is_the_sum_by_hand(pairs: list[tuple[int, int]]) -> None:
    then, now = (list(side) for side in zip(*pairs, strict=True))
    found = psi(np.array(then), np.array(now))
    if not sum(then) or not sum(now):
        assert math.isnan(found)
    else:
        assert found == pytest.approx(by_hand(then, now), rel=1e-9, abs=1e-12)
        assert found >= 0 and found == pytest.approx(psi(np.array(now), np.array(then)))


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=12).filter(any), st.integers(1, 50))
def test_the_same_shares_have_not_moved(counts: list[int], times: int) -> None:
    assert psi(np.array(counts), times * np.array(counts)) == pytest.approx(0, abs=1e-12)


@given(COUNTS, st.randoms())
def test_the_order_of_bins_does_not_matter(pairs: list[tuple[int, int]], shuffled: object) -> None:
    order = stream(1, "test").permutation(len(pairs))
    then, now = np.array(pairs).T
    assert psi(then, now) == pytest.approx(psi(then[order], now[order]), nan_ok=True)


def test_a_textbook_value() -> None:
    assert psi(np.array([50, 50]), np.array([75, 25])) == pytest.approx(
        0.25 * math.log(1.5) - 0.25 * math.log(0.5), rel=1e-12
    )


def test_what_chance_gives() -> None:
    draw, share, values = stream(3, "test"), np.full(10, 0.1), []
    for _ in range(300):
        values.append(psi(draw.multinomial(2000, share), draw.multinomial(1000, share)))
    assert np.mean(values) == pytest.approx(by_chance(10, 2000, 1000), rel=0.1)
    assert np.mean(np.array(values) > often_by_chance(10, 2000, 1000)) == pytest.approx(0.05, abs=0.03)
    scipy = pytest.importorskip("scipy.stats")
    for bins in (2, 5, 10, 33):
        assert often_by_chance(bins, 100, 100) == pytest.approx(scipy.chi2.ppf(0.95, bins - 1) / 50, rel=0.03)


@pytest.mark.parametrize(
    ("then", "now", "verdict"),
    [
        ([500, 500], [510, 490], STABLE),
        ([5000, 5000], [3300, 6700], SHIFT),
        ([5000, 5000], [1000, 9000], LARGE_SHIFT),
        ([30, 19], [500, 500], TOO_FEW),
        ([50] * 10, [0] * 10, TOO_FEW),
        ([100] * 10, [10, 2, 9, 3, 8, 4, 7, 4, 3, 10], TOO_FEW),  # 10 bins and 60 rows: chance gives 0.3 at times
        ([40] * 10, [54, 27, 52, 29, 50, 31, 48, 33, 32, 44], STABLE),
    ],
)
def test_words(then: list[int], now: list[int], verdict: str) -> None:
    shift = Shift.of("age", np.array(then), np.array(now))
    assert shift.verdict == verdict and shift.alarming == (verdict == LARGE_SHIFT)
    assert min(shift.rows) >= FEWEST or verdict == TOO_FEW


def test_a_value_that_chance_often_gives_is_no_shift() -> None:
    then, now = np.full(10, 30), np.array([31, 14, 24, 12, 27, 15, 25, 13, 22, 17])
    shift = Shift.of("age", then, now)
    assert shift.psi is not None and 0.1 <= shift.psi <= often_by_chance(10, 300, 200)
    assert shift.verdict == CHANCE


def test_a_shift_beyond_chance_is_named_also_of_few_rows() -> None:
    then, now = np.array([500, 300, 150, 50]), np.array([0, 2, 8, 60])
    assert Shift.of("x", then, now).verdict == LARGE_SHIFT
