"""What tasks share that predict numbers: R2 of each output, thirds for a picture, and no probabilities."""

from __future__ import annotations

import torch
from torch import Tensor

from colonnade.errors import ConfigError, DataError
from colonnade.numerals import short
from colonnade.tasks.base import Array

SMALLEST, LARGEST = 1e-100, 1e100  # differences whose squares can still be added up


def check_squares(y: Tensor) -> None:
    """Refuse numbers (N, K) that differ so little, or so much, that squared errors would be 0 or infinite."""
    apart = y.amax(dim=0) - y.amin(dim=0)
    wrong = apart[(apart > 0) & ((apart < SMALLEST) | (apart > LARGEST))]
    if len(wrong):
        raise DataError(
            f"the labels differ by {wrong[0]:g} at most, and numbers to predict need to differ by {SMALLEST:g} to "
            f"{LARGEST:g}; give them in another unit"
        )


def r2_of_each(predicted: Tensor, truth: Tensor) -> list[float]:
    """1 - unexplained/total squares of each output."""
    y, p = truth.double(), predicted.double()
    left, spread = (y - p).square().sum(dim=0), (y - y.mean(dim=0)).square().sum(dim=0).clamp(min=1e-300)
    return [float(1 - part) for part in left / spread]


def thirds(truth: Tensor) -> tuple[list[int], list[str]]:
    """The third its number is in."""
    low, high = torch.quantile(truth.double(), torch.tensor([1 / 3, 2 / 3], dtype=torch.double)).tolist()
    places = (truth > low).int() + (truth > high).int()
    ends = short(low, 3), short(high, 3)
    return places.tolist(), [f"up to {ends[0]}", f"{ends[0]} to {ends[1]}", f"above {ends[1]}"]


def told(numbers: Tensor) -> Array:
    """Predictions (B,), or (B, K) where there are several."""
    array: Array = numbers.cpu().numpy()
    return array[:, 0] if array.shape[1] == 1 else array


def no_probabilities(words: str) -> ConfigError:
    """Why there are none."""
    return ConfigError(f"a {words} predicts numbers, not probabilities; use predict (leave --proba out)")
