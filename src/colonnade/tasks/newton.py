"""Damped Newton for the z-step of a softmax, all rows together: where it starts, a step, half of a step.

    minimise  log-sum-exp(z) - c.z + rho/2 |z - q|^2    over z, for every row

The Hessian is diagonal plus rank one, so the direction is closed-form. Rows that have arrived take steps of length
zero, which leave every bit of theirs as it is: how many steps are taken for the others changes nothing for them.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

TOLERANCE = 1e-10  # on the gradient, relative to the size of its largest term
MAX_NEWTON = 100  # the worst seen over rho 0.05..20 and logits to 1000 is 18
MAX_HALVINGS = 40
ARMIJO = 1e-4

Rho = float | Tensor  # one number, or one per row (B, 1)


class Problem(NamedTuple):
    """What is minimised, in float64."""

    q: Tensor  # (B, K)
    c: Tensor  # (B, K) y + lambda: they enter only through their sum
    rest: Tensor  # (B,) 1 - sum c: zero while the duals of a row sum to zero
    scale: Tensor  # (B,) the largest gradient of a row that has arrived


class Point(NamedTuple):
    """Where the rows are."""

    z: Tensor  # (B, K)
    value: Tensor  # (B,) of the objective
    p: Tensor  # (B, K) softmax(z)
    gradient: Tensor  # (B, K)
    open: Tensor  # (B,) who has not arrived


class Step(NamedTuple):
    """How the rows go on from a point."""

    direction: Tensor  # (B, K), zero for who has arrived
    slope: Tensor  # (B,) of the objective along it
    slack: Tensor  # (B,) for rounding of the value
    size: Tensor  # (B,) of the step


def pose(total: Tensor, dual: Tensor, targets: Tensor, rho: Rho) -> Problem:
    """The problem of a round's rows."""
    q, c = total.double(), targets.double() + dual.double()
    scale = TOLERANCE * (1 + _by_row(rho) * q.abs().amax(dim=1) + c.abs().amax(dim=1))
    return Problem(q, c, 1 - c.sum(1), scale)


def solve(problem: Problem, rho: Rho) -> Tensor:
    """Its minimum (B, K).

    Plain Newton from z = q cycles for small rho (most rows at rho 0.05 with logits of scale 5), so Armijo
    backtracking is part of the algorithm, not a precaution.
    """
    at = look(problem.q, problem, rho)
    for _ in range(MAX_NEWTON):
        if not bool(at.open.any()):
            break
        step = choose(at, problem, rho)
        new, bad = take(step, at, problem, rho)
        for _ in range(MAX_HALVINGS - 1):
            if not bool(bad.any()):
                break
            step = halve(step, bad)
            new, bad = take(step, at, problem, rho)
        at = new
    return at.z


def look(z: Tensor, problem: Problem, rho: Rho) -> Point:
    """Value, probabilities and gradient at z.

    Shifted by top = max(z): log-sum-exp(z) - c.z = log-sum-exp(z - top) - c.(z - top) + (1 - sum c) top.
    Logits of 1000 stay finite, and large terms do not cancel.
    """
    q, c, rest, scale = problem
    top = z.amax(dim=1, keepdim=True)
    shifted = z - top
    e = shifted.exp()
    total = e.sum(1, keepdim=True)
    loss = total.log().squeeze(1) + rest * top.squeeze(1) - (c * shifted).sum(1)
    value, p = loss + _by_row(rho) / 2 * (z - q).square().sum(1), e / total
    g = p - c + rho * (z - q)
    return Point(z, value, p, g, g.abs().amax(dim=1) > scale)


def choose(at: Point, problem: Problem, rho: Rho) -> Step:
    """Newton's step: the Hessian is diag(d) - p p'."""
    z, value, p, g, open_rows = at
    d = p + rho
    g_d, p_d = g / d, p / d
    # Sherman-Morrison; 1 - p'(p/d) = rho sum(p/d), written so that nothing cancels.
    direction = g_d + p_d * ((p * g_d).sum(1, keepdim=True) / (rho * p_d.sum(1, keepdim=True)))
    direction = direction.masked_fill(~open_rows.unsqueeze(1), 0.0)
    slope = (g * direction).sum(1)
    slack = 1e-13 * (1 + value.abs() + (problem.c * z).abs().sum(1))  # the terms may cancel, their rounding does not
    return Step(direction, slope, slack, torch.ones_like(slope))


def take(step: Step, at: Point, problem: Problem, rho: Rho) -> tuple[Point, Tensor]:
    """Where the step leads, and for which rows (B,) that is not down enough (Armijo)."""
    direction, slope, slack, size = step
    new = look(at.z - size.unsqueeze(1) * direction, problem, rho)
    return new, new.value > at.value - ARMIJO * size * slope + slack


def halve(step: Step, bad: Tensor) -> Step:
    """Half the step for some rows (B,)."""
    return step._replace(size=torch.where(bad, step.size / 2, step.size))


def _by_row(rho: Rho) -> Rho:
    return rho if isinstance(rho, float | int) else rho[:, 0]
