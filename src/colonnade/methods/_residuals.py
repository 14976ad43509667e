"""What is left to explain, as assisted_boosting tells it, and the step sizes that it tells.

    g = y - mean(F),   h = max(curvature of the loss at F, LEAST),   v = g/h

Where labels are 0 or 1, or numbers, h follows from g, and g alone goes down.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from colonnade.errors import WireError
from colonnade.privacy.labels import Labels
from colonnade.tasks import Task

LEAST = 0.05  # of the curvature: below it, targets would be all noise
CLOSE = 1e-6  # curvatures that differ less are the same
BITS = 7  # of a step size that count: every number format carries so many exactly


def seen(labels: Labels, rows: Tensor) -> Tensor:
    """Targets (B, K) in float64; behind a mechanism the noisy labels, as they would travel."""
    if labels.epsilon is None:
        return labels.held_out(rows)
    return labels.task.expand(labels.compact(rows), torch.float64)


def counts(labels: Labels, rows: Tensor) -> Tensor | None:
    """How much rows count (B,); None: all alike."""
    return labels.weights(rows, labels.held_out(rows))


def residuals(task: Task, total: Tensor, y: Tensor, dtype: torch.dtype) -> dict[str, Tensor]:
    """What parties are told: g (B, K), and the curvature where g alone does not tell it."""
    gap, curvature = y - task.mean(total), task.curvature(total)
    told, known = {"g": gap.to(dtype)}, task.curvature_of(gap)
    if known is None or not torch.allclose(known, curvature, rtol=0, atol=CLOSE):
        told["h"] = curvature.to(dtype)
    return told


def newton(task: Task, told: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """v = g/h and h (B, K) of what parties were told."""
    gap = told["g"].double()
    curvature = told["h"].double() if "h" in told else task.curvature_of(gap)
    if curvature is None:
        raise WireError("the reply has no array 'h', without which these labels have no targets")
    curvature = curvature.clamp(min=LEAST)
    return gap / curvature, curvature


def rounded(steps: Tensor) -> Tensor:
    """Step sizes with so few binary digits that every number format carries them exactly."""
    share, power = torch.frexp(steps)
    return torch.ldexp((share * 2**BITS).round(), power - BITS)


def checked(step: float) -> float:
    """A step size as it came; refused where no coordinator could have chosen it."""
    if not 0 <= step <= 1:
        raise WireError(f"a step size of {step:g} came; needed one from 0 to 1")
    return step
