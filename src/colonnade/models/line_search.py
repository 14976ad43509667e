"""A step of Newton's method, made shorter where it leads too far: for the convex problems that are solved at home."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

ENOUGH = 1e-4  # of the fall that the slope promises (Armijo)


def lower(
    value: Callable[[Tensor], float],
    place: Tensor,
    step: Tensor,
    slope: Tensor,
    within: Callable[[Tensor], Tensor] = torch.Tensor.clone,
    halvings: int = 30,
    rounding: float = 0.0,
) -> Tensor | None:
    """Where the first of ever shorter steps leads that lowers a loss enough; None: no step does.

    Args:
        value: the loss of a place.
        place: where it stands.
        step: the longest one to try.
        slope: the loss's derivative there.
        within: the nearest place that is allowed.
        halvings: how often a step becomes shorter by half.
        rounding: of the loss, relative; the last steps, which are the best, change it by less.
    """
    before = value(place)
    for halving in range(halvings):
        there = within(place + step * 0.5**halving)
        found, fall = value(there), float((slope * (there - place)).sum())
        if math.isfinite(found) and found <= before + ENOUGH * fall + rounding * (1 + abs(before)):
            return None if bool((there == place).all()) else there
    return None
