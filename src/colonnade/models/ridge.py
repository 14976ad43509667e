"""Ridge: a linear local model that is solved, not stepped.

    W = argmin  weight/(2b) |x W - target|^2 + beta |W|^2 + kappa/2 |W - W_last|^2

in float64, by one Cholesky factorisation per round. `kappa` keeps the solve of a small batch near what other rows
taught; it moves no fixed point. The encoder "linear" is a linear network with an embedding: it takes gradient steps
and has a head; this one outputs the task's numbers itself, and one solve per round is exact.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from pydantic import Field
from torch import Tensor

from colonnade.config import Settings
from colonnade.models.lesson import Lesson


class RidgeSettings(Settings):
    """How a ridge model is solved."""

    beta: float = Field(1e-4, gt=0, description="weight of |W|^2")
    kappa: float = Field(0.1, ge=0, description="pull towards the last weights: calms small batches")
    intercept: bool = Field(True, description="add a constant column")


def ridge_solve(x: Tensor, target: Tensor, last: Tensor, weight: float, beta: float, kappa: float) -> Tensor:
    """The W (P, d, K) above for x (P, B, d): (weight/b x'x + 2 beta + kappa) W = weight/b x' target + kappa W_last."""
    wide = x.double()
    share = weight / x.shape[1]
    normal = share * torch.bmm(wide.mT, wide)  # (P, d, d)
    normal.diagonal(dim1=1, dim2=2).add_(2 * beta + kappa)
    right = share * torch.bmm(wide.mT, target.double()) + kappa * last.double()
    return torch.cholesky_solve(right, torch.linalg.cholesky(normal))


def with_constant(flat: Tensor) -> Tensor:
    """(..., B, d) -> (..., B, d + 1): a column of ones at the end."""
    return torch.cat([flat, torch.ones_like(flat[..., :1])], dim=-1)


class Ridge:
    """The ridge model of one party (a `Regressor`), its weights (d, K) in float64; they begin at zero."""

    alike = True  # its tensors have one shape, whatever was learned: ridge models of equal settings share a cohort

    def __init__(self, settings: RidgeSettings) -> None:
        self.settings = settings
        self.weight = torch.zeros(0, 0, dtype=torch.float64)

    def open(self, shape: tuple[int, ...], outputs: int, seed: int) -> None:
        """Zero weights: the problem is convex, and nothing is drawn."""
        width = int(torch.Size(shape).numel()) + self.settings.intercept
        self.weight = torch.zeros(width, outputs, dtype=torch.float64)

    def output(self, x: Tensor) -> Tensor:
        """x W."""
        return self._design(x).double() @ self.weight.to(x.device)

    def again(self, number: int) -> Ridge:
        """Zero weights."""
        twin = Ridge(self.settings)
        twin.weight = torch.zeros_like(self.weight)
        return twin

    def approach(self, x: Tensor, target: Tensor, weight: float, effort: int) -> None:
        """One exact solve, whatever the effort."""
        s, last = self.settings, self.weight.to(x.device)
        self.weight = ridge_solve(self._design(x)[None], target[None], last[None], weight, s.beta, s.kappa)[0]

    def fit_weighted(self, x: Tensor, target: Tensor, weights: Tensor, effort: int | None) -> None:
        """One exact solve from nothing for each output, whatever the effort."""
        design = self._design(x).double()
        solved = [self._solved(design, target[:, [k]], weights[:, k]) for k in range(target.shape[1])]
        self.weight = torch.cat(solved, dim=1)

    def learn_labels(self, lesson: Lesson) -> None:
        """One exact solve from nothing, whatever was learned before; rows may count differently."""
        self.weight = self._solved(self._design(lesson.x).double(), lesson.targets, lesson.weights)

    def _solved(self, design: Tensor, target: Tensor, weights: Tensor | None) -> Tensor:
        """The weights (d, K) that fit a target (B, K) of rows that count differently (B,)."""
        target = target.double()
        if weights is not None:
            root = weights.double().sqrt()[:, None]
            design, target = root * design, root * target
        nothing = design.new_zeros(design.shape[1], target.shape[1])
        return ridge_solve(design[None], target[None], nothing[None], 1.0, self.settings.beta, 0.0)[0]

    def contributions(self, x: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
        """(x - start) W, column by column, and start W."""
        wide = (x - start).double().unsqueeze(-1)  # (B, ..., 1)
        weight = self.weight[: start.numel()].reshape(*start.shape, -1)
        return wide * weight, self.output(start[None])[0]

    def tensors(self) -> dict[str, Tensor]:
        """The weights."""
        return {"weight": self.weight}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Put the weights back."""
        self.weight = tensors["weight"].clone()

    def _design(self, x: Tensor) -> Tensor:
        flat = x.flatten(1)
        return with_constant(flat) if self.settings.intercept else flat

    def __repr__(self) -> str:
        """What ridge models of one cohort share."""
        return f"Ridge({self.settings!r})"
