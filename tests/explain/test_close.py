"""Two parties that contribute about as much are not told apart."""

from __future__ import annotations

import numpy as np
import pytest

import colonnade as cn
from colonnade.explain.explain import explain


def explained(weights: tuple[float, ...]) -> tuple[list[float], list[str]]:
    """Shapley values and what is said, where each party has one column of such a weight in a number to predict."""
    x = np.random.default_rng(0).normal(size=(600, len(weights)))
    y = x @ np.array(weights) + np.random.default_rng(1).normal(size=600)
    columns = {f"p{k}": x[:, [k]] for k in range(len(weights))}
    federation = cn.Federation.from_arrays(columns, y, task="regression")
    run = cn.fit(federation, "one_message", model={"encoder": "ridge"}, seed=0)
    found = explain(run, federation)
    assert found.shapley is not None
    return found.shapley, [note for note in found.notes if "not clear who" in note]


def test_equal_parties_are_said_to_be_so_and_others_are_not() -> None:
    values, told = explained((1.0, 1.0, 0.1))
    first, second = sorted(values)[:0:-1]
    assert len(told) == 1 and told[0].startswith("it is not clear who contributes most: the Shapley values of p")
    assert f"differ by {first - second:.4f}" in told[0]
    assert explained((2.0, 1.0, 0.1))[1] == []


@pytest.mark.parametrize(("weights", "count"), [((1.0, 1.0), 1), ((2.0, 0.2), 0)])
def test_of_two_parties_it_is_said_once(weights: tuple[float, ...], count: int) -> None:
    assert len(explained(weights)[1]) == count
