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

TOLERANCE = 1e-10  # on the gradient, relative to the size of its largest term
MAX_NEWTON = 100  # the worst seen over rho 0.05..20 and logits to 1000 is 18
MAX_HALVINGS = 40
ARMIJO = 1e-4


def prox_cross_entropy(total: Tensor, dual: Tensor, targets: Tensor, rho: float | Tensor) -> Tensor:
    """Softmax cross-entropy with probability targets (B, K); damped Newton.

    Plain Newton from z = total cycles for small rho (most rows at rho 0.05 with logits of
    scale 5), so Armijo backtracking is part of the algorithm, not a precaution.
    """
    q, c = total.double(), targets.double() + dual.double()  # y and lambda enter only through their sum
    rest = 1 - c.sum(1)  # zero while the duals of a row sum to zero
    row_rho = rho if isinstance(rho, float | int) else rho[:, 0]
    scale = TOLERANCE * (1 + row_rho * q.abs().amax(dim=1) + c.abs().amax(dim=1))  # (B,)
    z = q
    value, p = _objective(z, q, c, rest, rho)
    for _ in range(MAX_NEWTON):
        g = p - c + rho * (z - q)  # gradient
        open_rows = g.abs().amax(dim=1) > scale
        if not bool(open_rows.any()):
            break
        d = p + rho  # the Hessian is diag(d) - p p'
        g_d, p_d = g / d, p / d
        # Sherman-Morrison; 1 - p'(p/d) = rho sum(p/d), written so that nothing cancels.
        step = g_d + p_d * ((p * g_d).sum(1, keepdim=True) / (rho * p_d.sum(1, keepdim=True)))
        step = torch.where(open_rows.unsqueeze(1), step, 0.0)
        z, value, p = _backtrack(z, step, (g * step).sum(1), value, q, c, rest, rho)
    return z.to(total.dtype)


def _objective(z: Tensor, q: Tensor, c: Tensor, rest: Tensor, rho: float | Tensor) -> tuple[Tensor, Tensor]:
    """log-sum-exp(z) - c.z + rho/2 |z - q|^2 per row, and softmax(z).

    Shifted by top = max(z): log-sum-exp(z) - c.z = log-sum-exp(z - top) - c.(z - top) + (1 - sum c) top.
    Logits of 1000 stay finite, and large terms do not cancel.
    """
    top = z.amax(dim=1, keepdim=True)
    shifted = z - top
    e = shifted.exp()
    total = e.sum(1, keepdim=True)
    loss = total.log().squeeze(1) + rest * top.squeeze(1) - (c * shifted).sum(1)
    row_rho = rho if isinstance(rho, float | int) else rho[:, 0]
    return loss + row_rho / 2 * (z - q).square().sum(1), e / total


def _backtrack(  # the line search needs the whole problem
    z: Tensor, step: Tensor, slope: Tensor, value: Tensor, q: Tensor, c: Tensor, rest: Tensor, rho: float | Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Halve the step of each row until Armijo's condition holds; slack for rounding of the value and its terms."""
    size = torch.ones_like(slope)
    slack = 1e-13 * (1 + value.abs() + (c * z).abs().sum(1))  # the terms may cancel, their rounding does not
    for _ in range(MAX_HALVINGS):
        trial = z - size.unsqueeze(1) * step
        new, p = _objective(trial, q, c, rest, rho)
        bad = new > value - ARMIJO * size * slope + slack
        if not bool(bad.any()):
            break
        size = torch.where(bad, size / 2, size)
    return trial, new, p


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
