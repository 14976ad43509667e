"""The z-step by two slower and dumber ways than the package's: an oracle, and a generic optimiser row by row."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax, wrightomega

Array = np.ndarray


def objective(z: Array, total: Array, dual: Array, targets: Array, rho: float) -> Array:
    """l(z, y) - dual.z + rho/2 |total - z|^2 of each row."""
    loss = logsumexp(z, axis=-1) * targets.sum(-1) - (targets * z).sum(-1)
    return loss - (dual * z).sum(-1) + rho / 2 * ((z - total) ** 2).sum(-1)


def gradient(z: Array, total: Array, dual: Array, targets: Array, rho: float) -> Array:
    return softmax(z, axis=-1) - targets - dual + rho * (z - total)


def oracle(total: Array, dual: Array, targets: Array, rho: float) -> Array:
    """Exact: p_c = rho w(a_c - t - log rho), a = total + (dual + y)/rho, one scalar root in t per row by bisection."""
    a = total + (dual + targets) / rho  # (B, K)
    shift = np.log(rho)
    low, high = a.min(1) - 80 - abs(shift) - 2 / rho, a.max(1) + 80 + abs(shift)
    for _ in range(200):
        middle = (low + high) / 2
        too_much = (rho * wrightomega(a - middle[:, None] - shift)).sum(1) > 1
        low, high = np.where(too_much, middle, low), np.where(too_much, high, middle)
    return a - wrightomega(a - middle[:, None] - shift)


def by_optimiser(total: Array, dual: Array, targets: Array, rho: float) -> Array:
    """One row at a time with L-BFGS-B, as the paper's program does, but to the end of its precision."""
    options = {"maxiter": 5000, "maxfun": 20000, "ftol": 1e-16, "gtol": 1e-12}
    rows = []
    for q, lam, y in zip(total, dual, targets, strict=True):

        def value_and_slope(z: Array, q: Array = q, lam: Array = lam, y: Array = y) -> tuple[float, Array]:
            return float(objective(z, q, lam, y, rho)), gradient(z, q, lam, y, rho)

        rows.append(minimize(value_and_slope, q, jac=True, method="L-BFGS-B", options=options).x)
    return np.array(rows)
