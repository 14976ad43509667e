"""Step sizes against SciPy, and at the edges of the box."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor

from colonnade.models.step_sizes import step_sizes
from colonnade.tasks import TASKS, Task

OUTPUTS = {"binary": 1, "count": 1}


def problem(name: str, seed: int, moves: int = 4, scale: float = 1.0) -> tuple[Task, Tensor, Tensor, Tensor, Tensor]:
    """Outputs, moves of which some help, targets and weights of 60 rows."""
    rng, k = np.random.default_rng(seed), OUTPUTS.get(name, 3)
    task = TASKS[name](k)
    total, move = rng.normal(size=(60, k)), scale * rng.normal(size=(moves, 60, k))
    hidden = total + 0.5 * move[0] + 0.3 * move[1] - 0.2 * move[-1]
    drawn: Any = {
        "binary": lambda: rng.random(hidden.shape) < 1 / (1 + np.exp(-hidden)),
        "multilabel": lambda: rng.random(hidden.shape) < 1 / (1 + np.exp(-hidden)),
        "multiclass": lambda: np.eye(k)[(hidden + rng.gumbel(size=hidden.shape)).argmax(axis=1)],
        "regression": lambda: hidden + 0.1 * rng.normal(size=hidden.shape),
        "count": lambda: rng.poisson(np.exp(hidden)),
    }[name]()
    y, weights = torch.from_numpy(drawn.astype(float)), torch.from_numpy(rng.uniform(0.1, 3, size=60))
    return task, torch.from_numpy(total), torch.from_numpy(move), y, weights


def lost(task: Task, total: Tensor, moves: Tensor, y: Tensor, weights: Tensor | None, a: Any) -> float:
    there = total + torch.einsum("m,mbk->bk", torch.as_tensor(a, dtype=torch.float64), moves)
    return float(task.loss(there, y, weights))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", list(TASKS))
def test_no_general_solver_finds_better_ones(name: str, seed: int, weighted: bool) -> None:
    task, total, moves, y, weights = problem(name, seed)
    heavy = weights if weighted else None
    found = step_sizes(task, total, moves, y, heavy)
    assert bool(((found >= 0) & (found <= 1)).all())
    slow = minimize(
        lambda a: lost(task, total, moves, y, heavy, a), np.full(4, 0.25), bounds=[(0, 1)] * 4, method="L-BFGS-B",
        options={"ftol": 1e-15, "gtol": 1e-9},
    )  # fmt: skip
    assert lost(task, total, moves, y, heavy, found) <= slow.fun + 1e-8
    np.testing.assert_allclose(found.numpy(), slow.x, rtol=0, atol=1e-4)


def test_what_harms_gets_nothing_and_what_is_too_short_all() -> None:
    task, total, _, y, _ = problem("regression", 0)
    gap = y - total
    found = step_sizes(task, total, torch.stack([-gap, 0.1 * gap]), y)
    assert found.tolist() == [0, 1]


def test_equal_moves_share_what_is_due() -> None:
    """Their curvature has no inverse; any division does, as long as the sum is right."""
    task, total, _, y, _ = problem("regression", 1)
    found = step_sizes(task, total, (y - total).expand(3, -1, -1), y)
    assert float(found.sum()) == pytest.approx(1, abs=1e-6)


def test_a_move_whose_loss_overflows_is_not_taken_too_far() -> None:
    task, total, moves, y, _ = problem("count", 2)
    wild = torch.stack([moves[0], 2000 * moves[1].abs()])
    found = step_sizes(task, total, wild, y)
    assert np.isfinite(lost(task, total, wild, y, None, found))
    assert lost(task, total, wild, y, None, found) <= lost(task, total, wild, y, None, [0, 0])


def test_no_moves_and_no_rows() -> None:
    task, total, moves, y, _ = problem("binary", 0)
    assert step_sizes(task, total, moves[:0], y).tolist() == []
    assert step_sizes(task, total, 0 * moves, y).tolist() == [0.25] * 4
    assert len(step_sizes(task, total[:0], moves[:, :0], y[:0])) == 4
