"""One prediction from models that were trained apart: a weight of at least 0 for each, and a bias for each output.

    prediction = sum_k w_k o_k + b
    w, b       = argmin  loss(prediction, targets) + RIDGE/2 (|w - 1/M|^2 + |b|^2)        subject to w >= 0

The loss is the task's own, summed over the rows, each with its weight: cross entropy of classes, logistic of yes/no
labels, half the squares of numbers. The bias is what a sum of models needs: each of M models has the frequency of the
classes in it, and the sum would count it M times. The problem is convex, and is solved by Newton steps on the weights
that are not held at 0 (two-metric projection; Bertsekas 1982) from the mean of the models, in float64 on the CPU: the
same uploads give the same weights, whatever was fitted before.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from colonnade.models.line_search import lower
from colonnade.tasks import Task

RIDGE = 1.0  # pulls to the mean of the models as strongly as a row or two would
STEPS = 50  # Newton needs about ten
TOLERANCE = 1e-10  # of the projected gradient, per row
CELLS = 2**22  # numbers of the rows' design matrices that are in memory at once


@dataclass(frozen=True)
class Blend:
    """Weights (M,) of the models and biases (K,) of the outputs, in float64."""

    weights: Tensor
    bias: Tensor


def fit_blend(task: Task, parts: Tensor, targets: Tensor, counts: Tensor | None = None) -> Blend:
    """The best weights and biases for predictions `parts` (M, B, K) of rows with these targets (B, K).

    `counts` (B,) is how much each row counts; None: all alike.
    """
    models, rows = parts.shape[:2]
    at: dict[str, Any] = {"device": "cpu", "dtype": torch.float64}
    heavy = torch.ones(rows, **at) if counts is None else counts.to(**at)
    problem = _Problem(task, parts.detach().to(**at), targets.to(**at), heavy)
    place, scale = problem.start.clone(), max(1, rows)
    for _ in range(STEPS):
        value, slope, curve = problem.expand(place)
        held = torch.zeros_like(place, dtype=torch.bool)
        held[:models] = (place[:models] <= 0) & (slope[:models] > 0)
        free = (~held).nonzero()[:, 0]
        if not math.isfinite(value) or float(slope[free].abs().max()) <= TOLERANCE * scale:
            break
        move, failed = torch.linalg.solve_ex(curve[free][:, free], -slope[free])
        if int(failed):
            break
        step = torch.zeros_like(place).index_put((free,), move)
        there = lower(problem.value, place, step, slope, problem.project)
        if there is None:
            break
        place = there
    return Blend(place[:models].contiguous(), place[models:].contiguous())


@dataclass(frozen=True)
class _Problem:
    """The penalised loss as a function of weights and biases (M + K,)."""

    task: Task
    parts: Tensor = field(repr=False)  # (M, B, K) float64
    targets: Tensor = field(repr=False)  # (B, K) float64
    counts: Tensor = field(repr=False)  # (B,) float64, how much each row counts

    @property
    def start(self) -> Tensor:
        """The mean of the models, and where the ridge pulls to."""
        models, _, outputs = self.parts.shape
        return torch.cat([torch.full((models,), 1 / models), torch.zeros(outputs)]).double()

    def project(self, place: Tensor) -> Tensor:
        """The nearest point without negative weights."""
        models = len(self.parts)
        return torch.cat([place[:models].clamp(min=0), place[models:]])

    def value(self, place: Tensor) -> float:
        """The loss."""
        models = len(self.parts)
        logits = torch.einsum("m,mbk->bk", place[:models], self.parts) + place[models:]
        loss = float(self.task.loss(logits, self.targets, self.counts))
        return loss + RIDGE / 2 * float((place - self.start).square().sum())

    def expand(self, place: Tensor) -> tuple[float, Tensor, Tensor]:
        """The loss, its gradient (M + K,) and its second derivatives (M + K, M + K)."""
        models, _, outputs = self.parts.shape
        slope, curve = RIDGE * (place - self.start), RIDGE * torch.eye(models + outputs, dtype=torch.float64)
        chunk = max(1, CELLS // (outputs * (models + outputs)))
        rows = zip(self.parts.split(chunk, dim=1), self.targets.split(chunk), self.counts.split(chunk), strict=True)
        for parts, targets, counts in rows:
            heavy = counts[:, None]
            ones = torch.eye(outputs, dtype=torch.float64).expand(parts.shape[1], -1, -1)
            design = torch.cat([parts.permute(1, 2, 0), ones], dim=2)  # (b, K, M + K): logits = design @ place
            logits = design @ place
            guess, spread = self.task.mean(logits), self.task.spread(logits)
            slope = slope + torch.einsum("bkp,bk->p", design, heavy * (guess - targets))
            curve = curve + torch.einsum("bkp,bk,bkq->pq", design, heavy * spread, design)
            if self.task.exclusive:
                mean = torch.einsum("bkp,bk->bp", design, guess)
                curve = curve - (heavy * mean).T @ mean
        return self.value(place), slope, curve
