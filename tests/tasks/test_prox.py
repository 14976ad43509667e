"""The z-step against slow truth: Wright's omega function, a generic optimiser row by row, scalar roots."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.special
import torch
from scipy.optimize import brentq, minimize
from scipy.special import expit, softmax

from colonnade.admm.step import residuals, update_dual, update_z
from colonnade.tasks import TASKS, newton, newton_captured
from colonnade.tasks.multiclass import Multiclass
from colonnade.tasks.prox import prox_cross_entropy, prox_logistic, prox_poisson, prox_squared, wright_omega
from tests.reference.zstep import by_optimiser, gradient, objective, oracle

RHOS = [0.05, 0.1, 0.25, 1, 2, 20]
SCALES = [1, 5, 100, 1000]


def rows(count: int, scale: float, soft: bool = False, classes: int = 10, seed: int = 0) -> tuple[np.ndarray, ...]:
    """Logits of a scale, duals as an earlier exact z-step leaves them, hard or soft labels."""
    rng = np.random.default_rng(seed)
    total = scale * rng.normal(size=(count, classes))
    targets = (
        rng.dirichlet(np.full(classes, 0.3), count) if soft else np.eye(classes)[rng.integers(classes, size=count)]
    )
    dual = softmax(scale * rng.normal(size=(count, classes)), axis=1) - targets
    return total, dual, targets


def ours(total: np.ndarray, dual: np.ndarray, targets: np.ndarray, rho: float) -> np.ndarray:
    return prox_cross_entropy(*(torch.from_numpy(a) for a in (total, dual, targets)), rho).numpy()


@pytest.mark.parametrize("soft", [False, True], ids=["hard", "soft"])
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("rho", RHOS)
class TestCrossEntropy:
    def test_it_is_the_oracles(self, rho: float, scale: float, soft: bool) -> None:
        problem = rows(200, scale, soft)
        z = ours(*problem, rho)
        np.testing.assert_allclose(z, oracle(*problem, rho), rtol=0, atol=1e-7 * max(1, scale))

    def test_it_is_optimal(self, rho: float, scale: float, soft: bool) -> None:
        total, dual, targets = rows(500, scale, soft, seed=1)
        slope = np.abs(gradient(ours(total, dual, targets, rho), total, dual, targets, rho)).max(axis=1)
        assert (slope <= 1e-9 * (1 + rho * np.abs(total).max(axis=1))).all()

    def test_the_dual_is_the_gradient_of_the_loss(self, rho: float, scale: float, soft: bool) -> None:
        """After an exact z-step lambda = softmax(z) - y: it carries the label."""
        total, dual, targets = (torch.from_numpy(a) for a in rows(500, scale, soft, seed=2))
        z = update_z(total, dual, targets, rho, Multiclass(10))
        new = update_dual(dual, total, z, rho)
        torch.testing.assert_close(new, z.softmax(1) - targets, rtol=0, atol=1e-9 * max(1, rho * scale))
        if not soft and scale <= 5:  # beyond, a row that is right has p = 1 and lambda = 0 to the last bit
            assert torch.equal(new.argmin(1), targets.argmax(1))

    def test_no_generic_optimiser_does_better(self, rho: float, scale: float, soft: bool) -> None:
        problem = rows(8, scale, soft, seed=3)
        z, slow = ours(*problem, rho), by_optimiser(*problem, rho)
        best = objective(slow, *problem, rho)
        assert (objective(z, *problem, rho) <= best + 1e-9 * (1 + np.abs(best))).all()
        if scale <= 5:  # beyond, L-BFGS-B itself stops short
            np.testing.assert_allclose(z, slow, atol=1e-4)

    def test_float32_is_as_good_as_its_input(self, rho: float, scale: float, soft: bool) -> None:
        problem = [a.astype(np.float32) for a in rows(200, scale, soft, seed=4)]
        z = ours(*problem, rho)
        assert z.dtype == np.float32
        exact = oracle(*(a.astype(np.float64) for a in problem), rho)
        np.testing.assert_allclose(z, exact, rtol=3e-7, atol=3e-7 * scale)


class TestHardRows:
    def test_plain_newton_cycles_and_ours_does_not(self) -> None:
        """The example of the planning notes: q = (20, 0), y = the second class, rho 0.05."""
        total, targets = torch.tensor([[20.0, 0.0]]).double(), torch.tensor([[0.0, 1.0]]).double()
        dual, rho = torch.zeros(1, 2).double(), 0.05
        z, seen = total.clone(), []
        for _ in range(40):  # Newton without a line search
            p = z.softmax(1)
            hessian = torch.diag(p[0] + rho) - torch.outer(p[0], p[0])
            slope = p - targets - dual + rho * (z - total)
            seen.append(slope.abs().max().item())
            z = z - torch.linalg.solve(hessian, slope[0])
        assert min(seen) > 0.1
        solved = prox_cross_entropy(total, dual, targets, rho).numpy()
        np.testing.assert_allclose(solved, oracle(total.numpy(), dual.numpy(), targets.numpy(), rho), atol=1e-8)

    def test_most_rows_need_the_line_search_at_small_rho(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """So that nobody takes it out: without it, these rows fail."""
        problem = rows(300, 5)
        monkeypatch.setattr("colonnade.tasks.newton.ARMIJO", -1e30)  # accepts every step
        slope = np.abs(gradient(ours(*problem, 0.05), *problem, 0.05)).max(axis=1)
        assert (slope > 1e-3).mean() > 0.2

    def test_rows_are_solved_on_their_own(self) -> None:
        problem = rows(64, 100)
        together = ours(*problem, 0.1)
        apart = np.concatenate([ours(*(a[i : i + 1] for a in problem), 0.1) for i in range(64)])
        np.testing.assert_allclose(together, apart, rtol=0, atol=1e-8)

    def test_no_rows_are_no_problem(self) -> None:
        empty = torch.zeros(0, 3)
        assert prox_cross_entropy(empty, empty, empty, 1.0).shape == (0, 3)
        assert prox_logistic(empty, empty, empty, 1.0).shape == (0, 3)

    @pytest.mark.parametrize("soft", [False, True], ids=["hard", "soft"])
    @pytest.mark.parametrize("kind", [np.float32, np.float64])
    def test_few_newton_steps_are_enough(self, kind: type, soft: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        """One row that cannot take a step for rounding would hold up its whole batch."""
        steps: list[int] = []
        choose = newton.choose

        def counted(*problem: Any) -> Any:
            steps.append(1)
            return choose(*problem)

        monkeypatch.setattr(newton, "choose", counted)
        for rho in RHOS:
            for scale in SCALES:
                steps.clear()
                ours(*(a.astype(kind) for a in rows(500, scale, soft, seed=4)), rho)
                assert len(steps) <= 25, f"rho {rho}, logits of {scale}"


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", SCALES)
def test_pieces_in_graphs_give_the_same_bits(
    scale: float, kind: torch.dtype, weighted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop of graphs with pieces that run at once; tests/engines/test_gpu.py has real graphs."""
    monkeypatch.setattr(newton_captured, "record", lambda work, _: SimpleNamespace(replay=work))
    monkeypatch.setattr(newton_captured, "take_aside", lambda work, _: work())
    for rho in RHOS:
        for seed in range(3):  # the first of a shape is solved step by step, the second captured, the third filled in
            problem = [torch.from_numpy(a).to(kind) for a in rows(100, scale, soft=seed == 2, seed=seed)]
            each = rho * torch.rand(100, 1, dtype=torch.float64) + 0.01 if weighted else rho
            solved = newton_captured.solve_captured(*problem, each)
            assert torch.equal(solved, newton.solve(newton.pose(*problem, each), each))


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("rho", RHOS)
def test_logistic_is_the_scalar_root(rho: float, scale: float) -> None:
    rng = np.random.default_rng(0)
    total = scale * rng.normal(size=(30, 4))
    targets = np.where(rng.random((30, 4)) < 0.2, rng.random((30, 4)), rng.integers(2, size=(30, 4)))  # some soft
    dual = expit(scale * rng.normal(size=(30, 4))) - targets
    z = prox_logistic(*(torch.from_numpy(a) for a in (total, dual, targets)), rho).numpy()
    a = total + (dual + targets) / rho
    for place in np.ndindex(total.shape):

        def slope(x: float, at: tuple[int, ...] = place) -> float:
            return expit(x) - targets[at] - dual[at] + rho * (x - total[at])

        root = brentq(slope, a[place] - 1 / rho - 1e-6, a[place] + 1e-6, xtol=1e-13, rtol=1e-14)
        assert abs(z[place] - root) <= 1e-8 * max(1, scale)


@pytest.mark.parametrize("rho", RHOS)
def test_squared_error_is_a_weighted_mean(rho: float) -> None:
    total, dual, targets = (torch.randn(20, 3).double() for _ in range(3))
    z = prox_squared(total, dual, targets, rho)
    torch.testing.assert_close(z, (targets + dual + rho * total) / (1 + rho), rtol=0, atol=1e-14)
    torch.testing.assert_close(z - targets - dual + rho * (z - total), torch.zeros_like(z), rtol=0, atol=1e-12)


@pytest.mark.parametrize("scale", [0.1, 1.0, 20.0])
@pytest.mark.parametrize("rho", RHOS)
def test_poisson_is_the_scalar_root(rho: float, scale: float) -> None:
    rng = np.random.default_rng(0)
    total, dual = scale * rng.normal(size=(40, 2)), scale * rng.normal(size=(40, 2))
    targets = rng.poisson(3.0, size=(40, 2)).astype(float)
    z = prox_poisson(*(torch.from_numpy(a) for a in (total, dual, targets)), rho).numpy()
    for at in np.ndindex(total.shape):
        a = total[at] + (dual[at] + targets[at]) / rho

        def slope(x: float, at: tuple[int, ...] = at) -> float:
            return np.exp(x) - targets[at] - dual[at] + rho * (x - total[at])

        low = min(a - 1, a - np.exp(min(a, 700.0)) / rho - 1)
        root = brentq(slope, max(low, -1e6), a + 1e-9, xtol=1e-13, rtol=1e-14)
        assert abs(z[at] - root) <= 1e-9 * max(1.0, abs(root))


def test_poisson_agrees_with_a_generic_optimiser() -> None:
    rng = np.random.default_rng(1)
    total, dual, targets = rng.normal(size=(25, 1)), rng.normal(size=(25, 1)), rng.poisson(2.0, size=(25, 1)) * 1.0
    z = prox_poisson(*(torch.from_numpy(a) for a in (total, dual, targets)), 0.7).numpy()

    def objective(x: np.ndarray) -> float:
        return float((np.exp(x) - targets[:, 0] * x - dual[:, 0] * x + 0.35 * (x - total[:, 0]) ** 2).sum())

    slow = minimize(objective, total[:, 0], method="L-BFGS-B", options={"ftol": 1e-15, "gtol": 1e-10}).x
    np.testing.assert_allclose(z[:, 0], slow, atol=1e-5)
    assert objective(z[:, 0]) <= objective(slow) + 1e-12


def test_wright_omega_is_scipys() -> None:
    x = np.concatenate([np.linspace(-690, 900, 400), np.linspace(-3, 3, 200), [1e6, 1e12]])
    np.testing.assert_allclose(wright_omega(torch.from_numpy(x)).numpy(), scipy.special.wrightomega(x), rtol=1e-12)
    assert wright_omega(torch.tensor([-1e5], dtype=torch.float64)).item() < 1e-300


@pytest.mark.parametrize("name", list(TASKS))
def test_a_row_of_weight_w_is_solved_with_dual_and_rho_divided_by_it(name: str) -> None:
    """Checked against the optimality condition w (mean(z) - y) - dual + rho (z - total) = 0 of the weighted row."""
    rng = np.random.default_rng(2)
    task = TASKS[name](3)
    total, dual = (torch.from_numpy(rng.normal(size=(50, 3))) for _ in range(2))
    dual = dual - dual.mean(dim=1, keepdim=True)
    targets = torch.from_numpy(rng.dirichlet(np.ones(3), size=50))
    weights = torch.from_numpy(rng.uniform(0.1, 5.0, size=(50, 1)))
    z = task.prox(total, dual / weights, targets, 0.8 / weights)
    gradient = weights * (task.mean(z) - targets) - dual + 0.8 * (z - total)
    assert float(gradient.abs().max()) < 1e-7


@pytest.mark.parametrize("name", list(TASKS))
def test_every_task_has_its_step(name: str) -> None:
    z = update_z(torch.zeros(2, 1), torch.zeros(2, 1), torch.ones(2, 1), 1.0, TASKS[name](1))
    assert z.shape == (2, 1)
    assert z.dtype is torch.float32


def test_residuals_are_root_mean_squares_of_rows() -> None:
    total, z = torch.tensor([[3.0, 4.0], [0.0, 0.0]]), torch.zeros(2, 2)
    gaps = residuals(total, z, torch.tensor([[0.0, 1.0], [1.0, 0.0]]))
    assert gaps.primal.item() == pytest.approx((25 / 2) ** 0.5)
    assert gaps.dual.item() == pytest.approx(1.0)
