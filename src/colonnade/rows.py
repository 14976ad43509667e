"""Rows to predict, as the parties' networks read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from colonnade.errors import DataError


@dataclass(frozen=True)
class Rows:
    """Columns (B, ...) by party, encoded, floating point or int64; row i of every party is the same row.

    `index` names the rows in an answer: a pandas.Index for rows that came as data frames, None for arrays.
    `plans` (of ColumnPlan) says how tables became these columns, by owner; empty where they came as arrays.
    `training` (B,) says which of them train in the federation they were selected from; None: not known.
    """

    columns: Mapping[str, Tensor] = field(repr=False)
    index: Any = field(default=None, repr=False)
    plans: Mapping[str, Any] = field(default_factory=dict, repr=False)
    training: Tensor | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def pooled(self) -> Rows:
        """All columns in one place, in the order of the parties: what a run of a pooled reference reads."""
        together = torch.cat([columns.flatten(1) for columns in self.columns.values()], dim=1)
        return Rows({"everyone": together}, self.index, self.plans, self.training)


def row_numbers(given: Any, rows: int, once: bool = False) -> Tensor:
    """Row numbers, or booleans (N,), as row numbers that exist; `once`: none of them twice."""
    index = given if isinstance(given, Tensor) else torch.as_tensor(np.asarray(given))
    if index.dtype == torch.bool and tuple(index.shape) == (rows,):
        return index.nonzero().squeeze(1)
    if index.dim() != 1 or index.is_floating_point() or index.dtype == torch.bool:
        raise DataError(
            f"rows: needed a list of row numbers from 0 to {rows - 1}; got {index.dtype} of shape {tuple(index.shape)}"
        )
    outside = index[(index < 0) | (index >= rows)]
    if len(outside):
        raise DataError(
            f"rows: {len(outside)} of {len(index)} row numbers do not exist (first: {int(outside[0])}); the rows are "
            f"0 to {rows - 1}"
        )
    values, counts = index.unique(return_counts=True)
    if once and len(values) < len(index):
        raise DataError(f"rows: row {int(values[counts > 1][0])} is named more than once; name each row once")
    return index.long()
