"""The paper's convergence theorem, corrected, on a convex federation; and the counter-example to its printed form.

The printed proof uses |sum_k d_k|^2 <= 2 sum_k |d_k|^2, which holds for M <= 2 only; the right upper bound
on rho carries a factor M - 1. What does hold, with one factor frozen so that the problem is convex
(logits x_k A_k, A_k trained), full batch and rho > 0.7071: the augmented Lagrangian, taken after the dual
step and before the heads, never rises from round 1 on, if the heads move (i) jointly, (ii) damped by 1/M
with weight M rho, or (iii) undamped with two parties or mutually orthogonal columns; and the limit is the
minimum. Eight identical whitened parties inside the printed interval do rise.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from colonnade.admm.heads import joint_solve
from colonnade.admm.step import update_dual, update_z
from colonnade.tasks.multiclass import Multiclass

N, M, D, K, RHO, BETA, ROUNDS = 240, 6, 4, 3, 1.0, 0.02, 1500
Columns = Literal["correlated", "identical", "orthogonal", "whitened"]
Step = Literal["joint", "damped", "undamped"]


def columns(kind: Columns, parties: int, seed: int = 0) -> Tensor:
    """(M, N, d) columns of all parties."""
    rng = np.random.default_rng(seed)
    base = rng.normal(size=(N, D))
    if kind == "correlated":
        x = np.stack([0.7 * base + 0.7 * rng.normal(size=(N, D)) for _ in range(parties)])
    elif kind == "identical":
        x = np.stack([base] * parties)
    elif kind == "whitened":  # X'X / N = 1
        x = np.stack([np.linalg.qr(base)[0] * np.sqrt(N)] * parties)
    else:
        whole = np.linalg.qr(rng.normal(size=(N, parties * D)))[0] * np.sqrt(N)
        x = whole.reshape(N, parties, D).transpose(1, 0, 2).copy()
    return torch.from_numpy(x)


def labels(x: Tensor, seed: int = 0) -> np.ndarray:
    """Drawn from a softmax of all columns."""
    rng = np.random.default_rng(seed)
    score = np.einsum("mnd,mdk->nk", x.numpy(), rng.normal(size=(len(x), D, K))) * 1.5 / np.sqrt(len(x) * D)
    return (score + rng.gumbel(size=score.shape)).argmax(axis=1)


@dataclass
class Sharing:
    """Full-batch ADMM over linear parties, with the package's own steps."""

    x: Tensor  # (M, N, d)
    y: Tensor  # (N, K) one-hot
    beta: float
    step: Step
    lagrangian: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.a = torch.zeros(len(self.x), D, K, dtype=torch.float64)
        self.z, self.dual = torch.zeros_like(self.y), torch.zeros_like(self.y)

    @property
    def total(self) -> Tensor:
        return torch.bmm(self.x, self.a).sum(0)

    def run(self, rounds: int) -> None:
        for _ in range(rounds):
            total = self.total
            self.z = update_z(total, self.dual, self.y, RHO, Multiclass(10))
            self.dual = update_dual(self.dual, total, self.z, RHO)
            self.lagrangian.append(self._lagrangian(total))
            self._move(total)

    def _lagrangian(self, total: Tensor) -> float:
        gap = total - self.z
        loss = (self.z.logsumexp(1) - (self.y * self.z).sum(1)).mean()
        pull = ((self.dual * gap).sum() + RHO / 2 * gap.square().sum()) / N
        return float(loss + self.beta * self.a.square().sum() + pull)

    def _move(self, total: Tensor) -> None:
        v = self.z - total - self.dual / RHO
        if self.step == "joint":
            target = self.z - self.dual / RHO
            self.a = joint_solve([{"weight.0": self.a}], [self.x], target, RHO, self.beta, kappa=0)[0]["weight.0"]
            return
        d = 1 / len(self.x) if self.step == "damped" else 1.0
        own, moved = torch.bmm(self.x, self.a), []
        for k in range(len(self.x)):  # each on its own: rho/(2 d N) |x A - own - d v|^2 + beta |A|^2
            head, x = [{"weight.0": self.a[k : k + 1]}], [self.x[k : k + 1]]
            moved.append(joint_solve(head, x, own[k] + d * v, RHO / d, self.beta, kappa=0)[0]["weight.0"])
        self.a = torch.cat(moved)

    def rises(self) -> np.ndarray:
        """Changes of the Lagrangian, without round 0 -> 1."""
        return np.diff(self.lagrangian)[1:]

    def kkt(self) -> float:
        """The largest violation of the optimality conditions."""
        primal = (self.total - self.z).abs().max()
        dual = (self.dual - (self.z.softmax(1) - self.y)).abs().max()
        slope = (self.x.mT @ self.dual / N + 2 * self.beta * self.a).abs().max()
        return float(torch.stack([primal, dual, slope]).max())


CASES: list[tuple[Columns, int, Step]] = [
    ("correlated", M, "joint"),
    ("identical", M, "joint"),
    ("correlated", M, "damped"),
    ("identical", M, "damped"),
    ("correlated", 2, "undamped"),
    ("identical", 2, "undamped"),
    ("orthogonal", M, "undamped"),
]


@pytest.mark.parametrize(("kind", "parties", "step"), CASES)
def test_it_descends_to_the_minimum(kind: Columns, parties: int, step: Step) -> None:
    x = columns(kind, parties)
    classes = labels(x)
    admm = Sharing(x, torch.from_numpy(np.eye(K)[classes]), BETA, step)
    while admm.kkt() > 1e-9 and len(admm.lagrangian) < ROUNDS:
        admm.run(100)
    assert admm.rises().max() <= 1e-12
    assert admm.kkt() <= 1e-9
    # Logits, not weights: where columns coincide, many weights give the same logits.
    pooled = x.numpy().transpose(1, 0, 2).reshape(N, -1)
    central = LogisticRegression(C=1 / (2 * N * BETA), fit_intercept=False, tol=1e-12, max_iter=10_000)
    logits = pooled @ central.fit(pooled, classes).coef_.T
    ours = admm.total.numpy()
    np.testing.assert_allclose(centred(ours), centred(logits), rtol=0, atol=1e-6)


def centred(logits: np.ndarray) -> np.ndarray:
    """Softmax does not see a shift of all logits of a row."""
    return logits - logits.mean(axis=1, keepdims=True)


def test_the_printed_bound_is_not_enough() -> None:
    """8 identical whitened parties, rho 1, beta 0.05: mu / L^2 = (2 beta + rho) / 1 > rho, yet it rises."""
    x = columns("whitened", 8)
    admm = Sharing(x, torch.from_numpy(np.eye(K)[labels(x)]), 0.05, "undamped")
    admm.run(201)
    assert 2 * 0.05 + RHO > RHO  # inside the printed interval
    assert (admm.rises() > 1e-9).sum() >= 50


@pytest.mark.parametrize("step", ["joint", "damped"])
def test_the_same_parties_descend_when_they_share(step: Step) -> None:
    x = columns("whitened", 8)
    admm = Sharing(x, torch.from_numpy(np.eye(K)[labels(x)]), 0.05, step)
    admm.run(300)
    assert admm.rises().max() <= 1e-12
