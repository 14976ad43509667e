"""Which of the rows given to an estimator choose the round that is kept, and between kinds of local models."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from colonnade.errors import EstimatorInput
from colonnade.randomness import permutation
from colonnade.row_split import RowSplit

LEAST = 10  # rows: a choice by fewer says nothing, so all rows train


def split_rows(rows: int, classes: np.ndarray[Any, Any] | None, fraction: float, seed: int) -> RowSplit:
    """Training and validation rows, none to test.

    Args:
        rows: how many there are.
        classes: (N,) the number of each row's class, which all parts then have alike; None: there are none.
        fraction: of the rows that validate. Where that is fewer than `LEAST`, none do. Every class keeps a row that
            trains.
        seed: of the choice.
    """
    if isinstance(fraction, bool) or not isinstance(fraction, (int, float)) or not 0 <= fraction < 1:
        raise EstimatorInput(f"validation_fraction = {fraction!r}: needed a number from 0 up to, but not, 1")
    everything, nothing = torch.arange(rows), torch.arange(0)
    if round(fraction * rows) < LEAST:
        return RowSplit(everything, nothing, nothing)
    numbers = np.zeros(rows, dtype=np.int64) if classes is None else classes
    chosen = torch.zeros(rows, dtype=torch.bool)
    for number in np.unique(numbers):
        group = torch.from_numpy((numbers == number).nonzero()[0])
        order = permutation(group, seed, "validation", int(number))
        chosen[order[: min(max(1, round(fraction * len(group))), len(group) - 1)]] = True
    return RowSplit(everything[~chosen], everything[chosen], nothing)
