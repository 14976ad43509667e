"""Head updates: the joint solve is least squares, the SGD step is the hand-written gradient."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from colonnade.admm.heads import joint_solve, sgd_step
from colonnade.models.heads import HeadSettings, apply_heads, open_heads

GROUPS = (("bank", "telco"), ("shop",))  # two groups of different width
WIDTHS = (4, 3)


def problem(batch: int, layers: int = 1, seed: int = 0) -> tuple[list[dict[str, Tensor]], list[Tensor], Tensor]:
    generator = torch.Generator().manual_seed(seed)
    settings = HeadSettings(layers=layers)
    heads = [open_heads(settings, g, w, 5, seed) for g, w in zip(GROUPS, WIDTHS, strict=True)]
    h = [torch.randn(len(g), batch, w, generator=generator).double() for g, w in zip(GROUPS, WIDTHS, strict=True)]
    return heads, h, torch.randn(batch, 5, generator=generator).double()


def flat(heads: list[dict[str, Tensor]]) -> np.ndarray:
    return np.concatenate([w.numpy() for head in heads for w in head["weight.0"]])


def columns(h: list[Tensor]) -> np.ndarray:
    return np.concatenate([e.numpy() for part in h for e in part], axis=1)


@pytest.mark.parametrize("kappa", [0.0, 0.01, 0.1, 3.0])
@pytest.mark.parametrize("batch", [7, 11, 12, 200], ids=lambda b: f"{b} rows, 11 columns")
def test_the_joint_solve_is_least_squares(batch: int, kappa: float) -> None:
    """argmin of a sum of squares, written as one stacked least-squares problem, wide and narrow."""
    heads, h, target = problem(batch)
    rho, beta = 0.7, 0.02
    H, before = columns(h), flat(heads)
    eye = np.eye(H.shape[1])
    left = np.concatenate([np.sqrt(rho / 2 / batch) * H, np.sqrt(beta) * eye, np.sqrt(kappa / 2) * eye])
    right = np.concatenate([np.sqrt(rho / 2 / batch) * target, 0 * before, np.sqrt(kappa / 2) * before])
    expected = np.linalg.lstsq(left, right, rcond=None)[0]
    solved = flat(joint_solve(heads, h, target, rho, beta, kappa))
    np.testing.assert_allclose(solved, expected, rtol=0, atol=1e-10)
    slope = 2 * beta * solved + kappa * (solved - before) + rho / batch * H.T @ (H @ solved - target.numpy())
    np.testing.assert_allclose(slope, 0, atol=1e-11)


def test_float32_comes_back_as_float32_and_is_solved_in_float64() -> None:
    heads, h, target = problem(50)
    exact = flat(joint_solve(heads, h, target, 1.0, 1e-6, 0.0))
    small = [{k: v.float() for k, v in head.items()} for head in heads]
    solved = joint_solve(small, [e.float() for e in h], target.float(), 1.0, 1e-6, 0.0)
    assert all(head["weight.0"].dtype is torch.float32 for head in solved)
    np.testing.assert_allclose(flat(solved), exact, atol=2e-6)


def test_alike_parties_share_what_one_would_do() -> None:
    """Two identical parties get equal halves; each solving alone would over-correct twofold."""
    h = torch.randn(1, 30, 4).double()
    head = {"weight.0": torch.zeros(2, 4, 3).double()}
    target = torch.randn(30, 3).double()
    both = joint_solve([head], [h.expand(2, 30, 4)], target, 1.0, 1e-9, 0.0)[0]["weight.0"]
    torch.testing.assert_close(both[0], both[1])
    one = joint_solve([{"weight.0": torch.zeros(1, 4, 3).double()}], [h], target, 1.0, 1e-9, 0.0)[0]["weight.0"]
    torch.testing.assert_close(both.sum(0), one[0], rtol=1e-5, atol=1e-6)


def test_one_sgd_step_on_linear_heads_is_the_gradient_written_by_hand() -> None:
    heads, h, pull = problem(20)
    lr, beta = 0.3, 0.02
    for old, new, e in zip(heads, sgd_step(heads, h, pull, lr, beta), h, strict=True):
        for k in range(len(e)):
            w = old["weight.0"][k]
            expected = w - lr * (e[k].T @ pull / 20 + 2 * beta * w)
            torch.testing.assert_close(new["weight.0"][k], expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("layers", [2, 3])
def test_one_sgd_step_on_mlp_heads_descends(layers: int) -> None:
    """Against a finite difference of the augmented Lagrangian in one direction."""
    heads, h, z = problem(20, layers)
    dual, rho, beta = 0.1 * torch.randn_like(z), 0.8, 0.01

    def lagrangian(shift: float) -> float:
        moved = [{k: v + shift * d[k] for k, v in head.items()} for head, d in zip(heads, step, strict=True)]
        total = sum(apply_heads(w, e).sum(0) for w, e in zip(moved, h, strict=True))
        reg = sum(v.square().sum() for head in moved for v in head.values())
        return float((dual * total).sum() / 20 + rho / 40 * (total - z).square().sum() + beta * reg)

    total = sum(apply_heads(w, e).sum(0) for w, e in zip(heads, h, strict=True))
    lr = 1e-3
    new = sgd_step(heads, h, dual + rho * (total - z), lr, beta)
    step = [{k: (n[k] - o[k]) / lr for k in o} for n, o in zip(new, heads, strict=True)]  # minus the gradient
    squared = sum(float(d.square().sum()) for s in step for d in s.values())
    eps = 1e-6
    assert (lagrangian(eps) - lagrangian(-eps)) / (2 * eps) == pytest.approx(-squared, rel=1e-5)


def test_old_heads_are_left_as_they_were() -> None:
    heads, h, pull = problem(20)
    before = flat(heads).copy()
    sgd_step(heads, h, pull, 0.1, 0.1)
    joint_solve(heads, h, pull, 1.0, 0.1, 0.1)
    np.testing.assert_array_equal(flat(heads), before)
