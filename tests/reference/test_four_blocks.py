"""Heads and encoders both trained: four blocks (z, dual, heads, encoders), linear, exact solves.

The problem is not convex any more (logits x_k A_k W_k, both factors trained), so the limit is a stationary point and
not the minimum. What holds for rho > 0.7071, full batch, if heads and then encoders move (i) jointly or (ii) each party
by itself and damped by 1/M: the augmented Lagrangian, taken after the dual step, never rises from round 1 on, and the
iterates reach the conditions of Karush, Kuhn and Tucker. Each factor's step minimises a convex function, jointly or, by
Jensen, as a mean of M points that each lower it; the dual step gives back at most |dz|^2 / (4 rho), less than the
z-step gained. Undamped steps of alike parties do rise.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pytest
import torch
from torch import Tensor

from colonnade.admm.step import update_dual, update_z
from colonnade.tasks.multiclass import Multiclass

N, M, D, E, K = 60, 3, 3, 2, 3
RHO, BETA, ROUNDS = 0.8, 3.0, 3000
Step = Literal["joint", "damped", "undamped"]


def federation(alike: bool = False, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Columns (M, N, d) that the parties share in part, and one-hot labels (N, K)."""
    rng = np.random.default_rng(seed)
    base = rng.normal(size=(N, D))
    x = np.stack([base if alike else 0.7 * base + 0.7 * rng.normal(size=(N, D)) for _ in range(M)])
    score = np.einsum("mnd,mdk->nk", x, rng.normal(size=(M, D, K))) + rng.gumbel(size=(N, K))
    return torch.from_numpy(x), torch.eye(K, dtype=torch.float64)[torch.from_numpy(score.argmax(axis=1))]


@dataclass
class FourBlocks:
    """One round of the alternation, with the package's z and dual steps and slow exact solves of the rest."""

    x: Tensor  # (M, N, d)
    y: Tensor  # (N, K)
    step: Step
    encoders: Tensor = field(init=False)  # (M, d, e)
    heads: Tensor = field(init=False)  # (M, e, K)

    def __post_init__(self) -> None:
        rng = np.random.default_rng(1)
        self.encoders = torch.from_numpy(0.5 * rng.normal(size=(M, D, E)))
        self.heads = torch.from_numpy(0.5 * rng.normal(size=(M, E, K)))
        self.z, self.dual = torch.zeros(N, K, dtype=torch.float64), torch.zeros(N, K, dtype=torch.float64)

    def total(self) -> Tensor:
        return torch.einsum("mnd,mde,mek->nk", self.x, self.encoders, self.heads)

    def round(self) -> float:
        """One round; the augmented Lagrangian after the dual step."""
        total = self.total()
        self.z = update_z(total, self.dual, self.y, RHO, Multiclass(K))
        self.dual = update_dual(self.dual, total, self.z, RHO)
        value = self.lagrangian()
        self.heads = self.moved(self.heads, self.embeddings())
        self.encoders = self.moved(self.encoders, self.through_heads())
        return value

    def lagrangian(self) -> float:
        gap = self.total() - self.z
        ridge = BETA * (self.heads.square().sum() + self.encoders.square().sum())
        loss = -(self.y * self.z.log_softmax(dim=1)).sum()
        return float(loss + ridge + (self.dual * gap).sum() + RHO / 2 * gap.square().sum())

    def embeddings(self) -> Tensor:
        """(M, N K, e K): totals are linear in the heads."""
        h = torch.einsum("mnd,mde->mne", self.x, self.encoders)
        return torch.einsum("mne,kc->mnkec", h, torch.eye(K, dtype=torch.float64)).reshape(M, N * K, E * K)

    def through_heads(self) -> Tensor:
        """(M, N K, d e): totals are linear in the encoders."""
        return torch.einsum("mnd,mek->mnkde", self.x, self.heads).reshape(M, N * K, D * E)

    def moved(self, blocks: Tensor, design: Tensor) -> Tensor:
        """argmin of BETA |b|^2 + dual . s + RHO/2 |s - z|^2 over all blocks at once, or over each by itself."""
        goal, flat = (self.z - self.dual / RHO).flatten(), blocks.reshape(M, -1)
        if self.step == "joint":
            return _solve(torch.cat(list(design), dim=1), goal).view_as(blocks)
        rest = goal - torch.einsum("mnp,mp->n", design, flat)
        alone = torch.stack([_solve(a, rest + a @ b) for a, b in zip(design, flat, strict=True)])
        share = 1 / M if self.step == "damped" else 1.0
        return (flat + share * (alone - flat)).view_as(blocks)

    def violations(self) -> dict[str, float]:
        """How far the conditions of Karush, Kuhn and Tucker are from holding, the largest entry of each."""
        h = torch.einsum("mnd,mde->mne", self.x, self.encoders)
        found = {
            "agreement": self.total() - self.z,
            "heads": 2 * BETA * self.heads + torch.einsum("mne,nk->mek", h, self.dual),
            "encoders": 2 * BETA * self.encoders + torch.einsum("mnd,nk,mek->mde", self.x, self.dual, self.heads),
            "z": self.z.softmax(dim=1) - self.y - self.dual,
        }
        return {name: float(value.abs().max()) for name, value in found.items()}


def _solve(design: Tensor, goal: Tensor) -> Tensor:
    ridge = 2 * BETA * torch.eye(design.shape[1], dtype=torch.float64)
    return torch.linalg.solve(ridge + RHO * design.T @ design, RHO * design.T @ goal)


@pytest.mark.parametrize("step", ["joint", "damped"])
def test_it_never_rises_and_ends_stationary(step: Step) -> None:
    blocks = FourBlocks(*federation(), step)
    values = [blocks.round()]
    while max(blocks.violations().values()) > 1e-8 and len(values) < ROUNDS:
        values += [blocks.round() for _ in range(100)]
    assert np.diff(values)[1:].max() <= 1e-12  # from round 1 on
    assert max(blocks.violations().values()) <= 1e-8, blocks.violations()
    assert float(blocks.heads.abs().max()) > 0.1  # not the trivial point where nothing is learnt


def test_undamped_steps_of_alike_parties_rise() -> None:
    blocks = FourBlocks(*federation(alike=True), "undamped")
    values = np.array([blocks.round() for _ in range(30)])
    assert np.diff(values)[1:].max() > 1e-3
