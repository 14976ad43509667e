"""The z-step, batched over rows: argmin over z of l(z, y) - dual.z + rho/2 |total - z|^2  (Eq. update_z).

rho is one number, or one per row (B, 1): a row whose loss has weight w is that of weight 1 with dual/w and rho/w.

The paper solves it row by row with L-BFGS-B in a process pool. Each problem is small, smooth
and strongly convex, with a Hessian that is diagonal plus rank one, so Newton's direction is
closed-form and all rows move together. Computed in float64 whatever the run's dtype: it is
cheap, and 1e-6 is out of reach in float32 at large logits.
"""

from __future__ import annotations

import torch
from torch import Tensor

from colonnade.tasks.newton import MAX_NEWTON, TOLERANCE, pose, solve
from colonnade.tasks.newton_captured import solve_captured


def prox_cross_entropy(total: Tensor, dual: Tensor, targets: Tensor, rho: float | Tensor) -> Tensor:
    """Softmax cross-entropy with probability targets (B, K); damped Newton."""
    if total.is_cuda and total.numel() and not (total.requires_grad or dual.requires_grad or targets.requires_grad):
        return solve_captured(total, dual, targets, rho).to(total.dtype)
    return solve(pose(total, dual, targets, rho), rho).to(total.dtype)


def prox_squared(total: Tensor, dual: Tensor, targets: Tensor, rho: float | Tensor) -> Tensor:
    """Half the squared error: a weighted mean, in closed form."""
    return ((targets.double() + dual.double() + rho * total.double()) / (1 + rho)).to(total.dtype)


def prox_logistic(total: Tensor, dual: Tensor, targets: Tensor, rho: float | Tensor) -> Tensor:
    """Binary logistic loss of every output on its own (binary and multi-label tasks).

    The derivative sigmoid(z) - y - dual + rho (z - total) rises with z and changes sign inside
    [a - 1/rho, a], a = total + (dual + y)/rho: Newton, with a bisection whenever it leaves the bracket, or
    did not halve the derivative: for small rho it jumps to and fro between the flat ends of the sigmoid.
    """
    q, lam, y = total.double(), dual.double(), targets.double()
    high = q + (lam + y) / rho
    low = high - 1 / rho
    z = torch.minimum(torch.maximum(q, low), high)
    before = torch.full_like(z, torch.inf)
    for _ in range(MAX_NEWTON):
        p = torch.sigmoid(z)
        g = p - y - lam + rho * (z - q)
        if bool((g.abs() <= TOLERANCE * (1 + rho * q.abs() + lam.abs())).all()):
            break
        low, high = torch.where(g < 0, z, low), torch.where(g > 0, z, high)
        newton = z - g / (p * (1 - p) + rho)
        good = (newton > low) & (newton < high) & (g.abs() <= before / 2)
        z, before = torch.where(good, newton, (low + high) / 2), g.abs()
    return z.to(total.dtype)


def prox_poisson(total: Tensor, dual: Tensor, targets: Tensor, rho: float | Tensor) -> Tensor:
    """Poisson loss exp(z) - y z of every output on its own (counts).

    With a = total + (dual + y)/rho the derivative is exp(z) + rho (z - a). Its root is z = a - w, where
    w = exp(z)/rho solves w + log w = a - log rho: w is Wright's omega function of the right side.
    """
    q, lam, y = total.double(), dual.double(), targets.double()
    weight = torch.as_tensor(rho, dtype=torch.float64, device=q.device)
    a = q + (lam + y) / weight
    return (a - wright_omega(a - weight.log())).to(total.dtype)


def wright_omega(x: Tensor) -> Tensor:
    """w > 0 with w + log w = x, in float64, by Newton's method.

    The left side is concave and rises, and both starts lie below the root, so the iterates only rise: none leaves the
    positive numbers. Below -700, w = exp(x) is smaller than anything it is added to.
    """
    at = x.double().clamp(min=-700.0)
    w = torch.where(at < 1, at.sigmoid(), at.clamp(min=1.0) - at.clamp(min=1.0).log())
    for _ in range(MAX_NEWTON):
        gap = at - w - w.log()
        if bool((gap.abs() <= 1e-14 * (1 + at.abs())).all()):
            break
        w = w + w * gap / (1 + w)
    return w
