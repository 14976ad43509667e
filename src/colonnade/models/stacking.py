"""A stack: the outputs of a task as a linear function of scores, fitted with labels.

    logits = z W + b
    W, b   = argmin  sum_i w_i loss(z_i W + b, y_i) + RIDGE/2 |W|^2

with the task's own loss: logistic regression with C = 1 for yes/no and classes, ridge regression for numbers, Poisson
regression for counts. The problem is convex. It is solved in float64 on the CPU by Newton steps. Few numbers have their
matrix of second derivatives built and solved; of many it would be large, and the steps come from conjugate gradients.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from colonnade.models.line_search import lower
from colonnade.tasks import Task

RIDGE = 1.0
STEPS = 100  # Newton needs about ten
TOLERANCE = 1e-12  # of the gradient, per row
ROUNDING = 1e-14  # of a loss: the last steps, which are the best, change less
DIRECT = 128  # numbers of a stack whose second derivatives are built
INNER = 1e-8  # by how much conjugate gradients shrink what is left of the linear system


@dataclass(frozen=True)
class LinearStack:
    """Weights (D, K) and biases (K,), in float64."""

    weight: Tensor
    bias: Tensor


def fit_stack(task: Task, z: Tensor, targets: Tensor, counts: Tensor | None = None) -> LinearStack:
    """The stack of scores z (B, D) for rows with these targets (B, K); `counts` (B,) is how much each row counts."""
    ones = torch.ones(len(z), 1, dtype=torch.float64)
    heavy = ones[:, 0] if counts is None else counts.double().cpu()
    problem = _Problem(
        task, torch.cat([z.detach().double().cpu(), ones], dim=1), targets.double().cpu(), heavy[:, None]
    )
    place = torch.zeros(z.shape[1] + 1, targets.shape[1], dtype=torch.float64)
    share = (problem.targets * problem.counts).sum(dim=0) / problem.counts.sum()
    place[-1] = _level(task, task.constant(share).double().cpu())  # whoever knows no score says this
    for _ in range(STEPS):
        slope = problem.slope(place)
        if float(slope.abs().max()) <= TOLERANCE * max(1.0, float(heavy.sum())):
            break
        move = _newton_step(problem, place, slope)
        there = lower(problem.value, place, move, slope, rounding=ROUNDING)
        if there is None:
            break
        place = torch.cat([there[:-1], _level(task, there[-1])[None]])
    return LinearStack(place[:-1].contiguous(), place[-1].contiguous())


def _level(task: Task, bias: Tensor) -> Tensor:
    """The bias (K,); of classes the one with mean 0, since what is added to all of them changes no probability."""
    return bias - bias.mean() if task.exclusive else bias


@dataclass(frozen=True)
class _Problem:
    """The penalised loss of a place (D + 1, K), whose last row is the bias."""

    task: Task
    design: Tensor = field(repr=False)  # (B, D + 1)
    targets: Tensor = field(repr=False)  # (B, K)
    counts: Tensor = field(repr=False)  # (B, 1)

    def value(self, place: Tensor) -> float:
        """The loss."""
        loss = float(self.task.loss(self.design @ place, self.targets, self.counts[:, 0]))
        return loss + RIDGE / 2 * float(place[:-1].square().sum())

    def slope(self, place: Tensor) -> Tensor:
        """Its derivative, in the shape of the place."""
        gap = self.counts * self.task.slope(self.design @ place, self.targets)
        return self.design.T @ gap + RIDGE * self._weights(place)

    def curve(self, place: Tensor) -> tuple[Tensor, Tensor]:
        """What second derivatives at a place need: mean and spread of every row (B, K)."""
        logits = self.design @ place
        return self.task.mean(logits), self.counts * self.task.spread(logits)

    def turned(self, curve: tuple[Tensor, Tensor], direction: Tensor) -> Tensor:
        """The second derivatives times a direction."""
        mean, spread = curve
        along = self.design @ direction
        change = spread * along
        if self.task.exclusive:  # classes pull on each other: counts * p p^T
            change = change - self.counts * mean * (mean * along).sum(dim=1, keepdim=True)
        return self.design.T @ change + RIDGE * self._weights(direction)

    def diagonal(self, curve: tuple[Tensor, Tensor]) -> Tensor:
        """The second derivatives of each number by itself; positive."""
        mean, spread = curve
        own = spread - self.counts * mean.square() if self.task.exclusive else spread
        found = self.design.square().T @ own
        found[:-1] += RIDGE
        return found.clamp(min=1e-12)

    def matrix(self, curve: tuple[Tensor, Tensor]) -> Tensor:
        """All second derivatives (P, P), P = K (D + 1): output by output; positive definite."""
        mean, spread = curve
        own = self.design.T @ (spread.T[:, :, None] * self.design)  # (K, D + 1, D + 1)
        own.diagonal(dim1=1, dim2=2)[:, :-1] += RIDGE
        found: Tensor = torch.block_diag(*own)
        if self.task.exclusive:
            each = (mean[:, :, None] * self.design[:, None, :]).flatten(1)  # (B, P)
            found -= each.T @ (self.counts * each)
            biases = slice(self.design.shape[1] - 1, None, self.design.shape[1])
            found[biases, biases] += 1.0  # flat: they may all grow together, and no slope leads there
        return found

    @staticmethod
    def _weights(place: Tensor) -> Tensor:
        """A place without its bias, which has no penalty."""
        return torch.cat([place[:-1], torch.zeros_like(place[-1:])])


def _newton_step(problem: _Problem, place: Tensor, slope: Tensor) -> Tensor:
    """Second derivatives times step = - slope."""
    if slope.numel() <= DIRECT:
        factor, wrong = torch.linalg.cholesky_ex(problem.matrix(problem.curve(place)))
        if not int(wrong):  # else too flat to be told from zero
            step: Tensor = torch.cholesky_solve(-slope.T.reshape(-1, 1), factor)
            return step.reshape(slope.shape[::-1]).T
    return _conjugate_gradients(problem, place, slope)


def _conjugate_gradients(problem: _Problem, place: Tensor, slope: Tensor) -> Tensor:
    """The Newton step: second derivatives times step = - slope, on the scale of the diagonal."""
    curve = problem.curve(place)
    scale = problem.diagonal(curve)
    step, rest = torch.zeros_like(slope), -slope
    near = rest / scale
    direction, size = near.clone(), float((rest * near).sum())
    enough = INNER**2 * size
    for _ in range(2 * slope.numel() + 10):
        turned = problem.turned(curve, direction)
        bend = float((direction * turned).sum())
        if bend <= 0 or size <= enough:  # flat: biases of classes may all grow together
            break
        step = step + (size / bend) * direction
        rest = rest - (size / bend) * turned
        near = rest / scale
        former, size = size, float((rest * near).sum())
        direction = near + (size / former) * direction
    return step
