"""Shapley values against their definition: every order of joining, one after the other."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import permutations

import numpy as np
import pytest

from colonnade.explain.shapley import exact, sampled


@dataclass
class TableWalk:
    """A game whose worth stands in a table, by the bits of the coalition."""

    worth: np.ndarray
    coalition: int = 0
    visits: list[int] = field(default_factory=list)

    @property
    def value(self) -> float:
        self.visits.append(self.coalition)
        return float(self.worth[self.coalition])

    def flip(self, party: int) -> None:
        self.coalition ^= 1 << party


def by_definition(worth: np.ndarray, parties: int) -> np.ndarray:
    total, count = np.zeros(parties), 0
    for order in permutations(range(parties)):
        inside = 0
        for party in order:
            total[party] += worth[inside | (1 << party)] - worth[inside]
            inside |= 1 << party
        count += 1
    return total / count


@pytest.mark.parametrize("parties", [1, 2, 3, 5])
def test_exact_values_are_those_of_the_definition(parties: int) -> None:
    worth = np.random.default_rng(parties).normal(size=2**parties)
    walk = TableWalk(worth)
    found = exact(walk, parties)
    np.testing.assert_allclose(found.values, by_definition(worth, parties), atol=1e-12)
    assert found.values.sum() == pytest.approx(worth[-1] - worth[0])
    assert found.errors is None and found.orders is None
    assert sorted(walk.visits) == list(range(2**parties))  # every coalition once


def test_sampled_values_lie_within_their_errors() -> None:
    worth = np.random.default_rng(0).normal(size=2**5)
    true = by_definition(worth, 5)
    found = sampled(lambda: TableWalk(worth), 5, 400, seed=1)
    assert found.errors is not None and found.orders == 400
    gap = np.abs(found.values - true)
    assert (gap < 4 * found.errors).all() and gap.max() > 0
    assert found.values.sum() == pytest.approx(worth[-1] - worth[0])  # of every order, and so of their mean
    more = sampled(lambda: TableWalk(worth), 5, 1600, seed=1)
    assert more.errors is not None
    np.testing.assert_allclose(more.errors, found.errors / 2, rtol=0.15)


def test_orders_repeat_with_the_seed() -> None:
    worth = np.random.default_rng(0).normal(size=2**4)
    same = [sampled(lambda: TableWalk(worth), 4, 5, seed=3).values for _ in range(2)]
    other = sampled(lambda: TableWalk(worth), 4, 5, seed=4).values
    assert (same[0] == same[1]).all() and (same[0] != other).any()
