"""Rows to predict, as the parties' networks read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor


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
