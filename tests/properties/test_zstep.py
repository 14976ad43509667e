"""The z-step as a mathematical object: a minimum, symmetric in classes, independent over rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from colonnade.tasks.prox import prox_cross_entropy, prox_logistic, prox_poisson, prox_squared
from tests.reference.zstep import gradient, objective

Prox = Callable[..., torch.Tensor]
rhos = st.floats(0.05, 20)
seeds = st.integers(0, 2**31)


@st.composite
def problems(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Logits up to 1000, probability labels, duals in the range an earlier step can leave."""
    shape = draw(st.integers(1, 5)), draw(st.integers(2, 7))
    total = draw(arrays(np.float64, shape, elements=st.floats(-1000, 1000)))
    weight = draw(arrays(np.float64, shape, elements=st.floats(0, 1))) + 1e-3
    dual = draw(arrays(np.float64, shape, elements=st.floats(-1, 1)))
    return total, dual, weight / weight.sum(1, keepdims=True)


def solve(prox: Prox, problem: tuple[np.ndarray, ...], rho: float) -> np.ndarray:
    return prox(*(torch.from_numpy(np.ascontiguousarray(a)) for a in problem), rho).numpy()


@given(problems(), rhos, seeds)
def test_nothing_nearby_is_better(problem: tuple[np.ndarray, ...], rho: float, seed: int) -> None:
    z = solve(prox_cross_entropy, problem, rho)
    value = objective(z, *problem, rho)
    rng = np.random.default_rng(seed)
    for size in (1e-4, 1e-2, 1.0, 100.0):
        other = z + size * rng.normal(size=z.shape)
        assert (value <= objective(other, *problem, rho) + 1e-10 * (1 + np.abs(value))).all()


@given(problems(), rhos)
def test_the_gradient_vanishes(problem: tuple[np.ndarray, ...], rho: float) -> None:
    slope = np.abs(gradient(solve(prox_cross_entropy, problem, rho), *problem, rho)).max(1)
    assert (slope <= 1e-9 * (1 + rho * np.abs(problem[0]).max(1))).all()


@given(problems(), rhos, seeds)
def test_renaming_classes_renames_the_answer(problem: tuple[np.ndarray, ...], rho: float, seed: int) -> None:
    order = np.random.default_rng(seed).permutation(problem[0].shape[1])
    z = solve(prox_cross_entropy, problem, rho)
    renamed = solve(prox_cross_entropy, tuple(a[:, order] for a in problem), rho)
    np.testing.assert_allclose(renamed, z[:, order], rtol=0, atol=1e-7 * (1 + np.abs(z).max()))


@pytest.mark.parametrize("prox", [prox_cross_entropy, prox_logistic, prox_poisson, prox_squared])
@settings(max_examples=40)
@given(problem=problems(), rho=rhos)
def test_rows_do_not_know_each_other(prox: Prox, problem: tuple[np.ndarray, ...], rho: float) -> None:
    together = solve(prox, problem, rho)
    for i in range(len(together)):
        alone = solve(prox, tuple(a[i : i + 1] for a in problem), rho)
        np.testing.assert_allclose(together[i], alone[0], rtol=0, atol=1e-7 * (1 + np.abs(together[i]).max()))


@given(problems(), rhos, st.floats(-500, 500))
def test_a_common_shift_of_the_logits_shifts_the_answer(
    problem: tuple[np.ndarray, ...], rho: float, shift: float
) -> None:
    """Softmax does not see it and the penalty moves along, if the dual sums to zero as an exact step leaves it."""
    total, dual, targets = problem
    dual = dual - dual.mean(1, keepdims=True)
    z = solve(prox_cross_entropy, (total, dual, targets), rho)
    moved = solve(prox_cross_entropy, (total + shift, dual, targets), rho)
    np.testing.assert_allclose(moved, z + shift, rtol=0, atol=1e-6 * (1 + np.abs(z).max()))


@given(problems(), rhos)
@example((np.array([[3.25, 3.25]]), np.zeros((1, 2)), np.array([[1e-3, 0.999]])), 0.05)  # plain Newton jumps to and fro
def test_the_logistic_root_is_a_root(problem: tuple[np.ndarray, ...], rho: float) -> None:
    total, dual, targets = problem
    z = torch.from_numpy(solve(prox_logistic, problem, rho))
    slope = torch.sigmoid(z).numpy() - targets - dual + rho * (z.numpy() - total)
    assert (np.abs(slope) <= 1e-9 * (1 + rho * np.abs(total) + np.abs(dual))).all()
