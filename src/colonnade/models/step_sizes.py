"""Step sizes: how far to go along each of several moves of the outputs, all at once.

    a = argmin  sum_i w_i loss(total_i + sum_k a_k move_ik, y_i)      with 0 <= a_k <= 1

The problem is convex and has one number per move. It is solved in float64 on the CPU by Newton steps within the box: an
entry that stands at a bound and would go beyond it waits, the others take the Newton step of their own system, and
whatever leaves the box is put back onto it. Among several answers that are equally good, any will do.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from colonnade.models.line_search import lower
from colonnade.tasks import Task

STEPS = 100  # Newton needs about ten
HALVINGS = 40  # of a step that does not lower the loss
TOLERANCE = 1e-10  # of the gradient, per row: where it points into the box
RIDGE = 1e-10  # of the mean curvature: two equal moves have no single answer
CLOSE = 1e-8  # to a bound: as good as there


def step_sizes(task: Task, total: Tensor, moves: Tensor, targets: Tensor, counts: Tensor | None = None) -> Tensor:
    """(M,) how far to go along moves (M, B, K) of outputs (B, K) whose targets are (B, K).

    Args:
        task: whose loss it is.
        total: where the outputs stand.
        moves: in which they may go.
        targets: what they should be.
        counts: (B,) how much each row counts; None: all alike.
    """
    heavy = torch.ones(len(targets), dtype=torch.float64) if counts is None else counts.double().cpu()
    problem = _Problem(task, total.double().cpu(), moves.double().cpu(), targets.double().cpu(), heavy)
    place = torch.full((len(moves),), 1 / max(1, len(moves)), dtype=torch.float64)
    if not math.isfinite(problem.value(place)):
        place = torch.zeros_like(place)  # a move so far that its loss overflows
    for _ in range(STEPS):
        slope = problem.slope(place)
        free = ~(((place <= CLOSE) & (slope > 0)) | ((place >= 1 - CLOSE) & (slope < 0)))
        if _largest(slope[free]) <= TOLERANCE * float(heavy.sum()):
            break
        bent = problem.curvature(place)
        newton, plain = torch.zeros_like(place), torch.zeros_like(place)
        newton[free] = _newton(bent[free][:, free], slope[free])
        plain[free] = -slope[free] / bent.trace().clamp(min=torch.finfo(torch.float64).tiny)
        there = _search(problem, place, newton, slope)
        if there is None:  # put back into the box, a Newton step may lead upwards; a step down the slope does not
            there = _search(problem, place, plain, slope)
        if there is None:
            break
        place = there
    return place


@dataclass(frozen=True)
class _Problem:
    """The loss of step sizes (M,)."""

    task: Task
    total: Tensor = field(repr=False)  # (B, K)
    moves: Tensor = field(repr=False)  # (M, B, K)
    targets: Tensor = field(repr=False)  # (B, K)
    counts: Tensor = field(repr=False)  # (B,)

    def outputs(self, place: Tensor) -> Tensor:
        """Where the outputs would be."""
        return self.total + torch.einsum("m,mbk->bk", place, self.moves)

    def value(self, place: Tensor) -> float:
        """The loss."""
        return float(self.task.loss(self.outputs(place), self.targets, self.counts))

    def slope(self, place: Tensor) -> Tensor:
        """Its derivative."""
        gap = self.counts[:, None] * self.task.slope(self.outputs(place), self.targets)
        return torch.einsum("mbk,bk->m", self.moves, gap)

    def curvature(self, place: Tensor) -> Tensor:
        """Its second derivatives (M, M)."""
        outputs = self.outputs(place)
        bent = self.moves * (self.counts[:, None] * self.task.spread(outputs))
        found = torch.einsum("mbk,nbk->mn", bent, self.moves)
        if self.task.exclusive:  # classes pull on each other
            along = (self.moves * self.task.mean(outputs)).sum(dim=2)  # (M, B)
            found = found - (along * self.counts) @ along.T
        return found


def _largest(values: Tensor) -> float:
    return float(values.abs().max()) if len(values) else 0.0


def _newton(curvature: Tensor, slope: Tensor) -> Tensor:
    """- curvature^-1 slope, made definite."""
    ridge = max(RIDGE * float(curvature.diagonal().mean()), torch.finfo(torch.float64).tiny)
    found: Tensor = torch.linalg.solve(curvature + ridge * torch.eye(len(slope), dtype=torch.float64), -slope)
    return found


def _search(problem: _Problem, place: Tensor, step: Tensor, slope: Tensor) -> Tensor | None:
    """Where a step leads that lowers the loss, put back into the box; None: no step does."""
    return lower(problem.value, place, step, slope, lambda there: there.clamp(0, 1), HALVINGS)
