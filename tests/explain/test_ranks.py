"""Rank correlations agree with SciPy's, ties and all."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from colonnade.explain.ranks import average_ranks, kendall, places, spearman

few = st.integers(-3, 3).map(float)  # few values, so that ties are common
pairs = st.lists(st.tuples(few, few), min_size=2, max_size=12)


@given(pairs)
@settings(max_examples=60)
def test_they_agree_with_scipy(both: list[tuple[float, float]]) -> None:
    one, other = [list(side) for side in zip(*both, strict=True)]
    assert average_ranks(one).tolist() == stats.rankdata(one).tolist()
    if len(set(one)) == 1 or len(set(other)) == 1:
        assert spearman(one, other) is None and kendall(one, other) is None
        return
    assert spearman(one, other) == pytest.approx(stats.spearmanr(one, other).statistic, abs=1e-12)
    assert kendall(one, other) == pytest.approx(stats.kendalltau(one, other).statistic, abs=1e-12)


def test_places_count_from_the_largest_and_keep_the_order_of_equals() -> None:
    assert places([2.0, 5.0, 2.0, 9.0]) == [3, 2, 4, 1]


def test_an_order_and_its_reverse() -> None:
    up = [1.0, 2.0, 3.0]
    assert math.isclose(spearman(up, up) or 0, 1) and math.isclose(kendall(up, up[::-1]) or 0, -1)
