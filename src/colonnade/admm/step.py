"""One ADMM step of the coordinator: one function per variable, residuals as results."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from colonnade.tasks import Task


@dataclass(frozen=True)
class Residuals:
    """How far the rows of this round are from agreement (root mean square per row, 0-d tensors)."""

    primal: Tensor  # |yhat - z|
    dual: Tensor  # |lambda_new - lambda_old| / rho equals it row by row; this is |lambda|, the pull that is left


def update_z(
    total: Tensor, dual: Tensor, targets: Tensor, rho: float, task: Task, weights: Tensor | None = None
) -> Tensor:
    """Eq. (update_z): the auxiliary variable of each row.

    A row of weight w (B,) is one of weight 1 with dual/w and rho/w; the penalty and the dual step stay as they are.
    """
    if weights is None:
        return task.prox(total, dual, targets, rho)
    heavy = weights.double()[:, None]
    return task.prox(total, dual / heavy, targets, rho / heavy)


def update_dual(dual: Tensor, total: Tensor, z: Tensor, rho: float) -> Tensor:
    """Eq. (update_lambda). After an exact z-step this equals w (softmax(z) - y): it carries the label."""
    return dual + rho * (total - z)


def residuals(total: Tensor, z: Tensor, dual: Tensor) -> Residuals:
    """The gaps of this round."""
    per_row = torch.linalg.vector_norm(total - z, dim=1)
    return Residuals(per_row.square().mean().sqrt(), torch.linalg.vector_norm(dual, dim=1).square().mean().sqrt())
