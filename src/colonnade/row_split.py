"""Which rows train, which choose the model, and which test it once."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from colonnade.errors import DataError
from colonnade.randomness import permutation


@dataclass(frozen=True)
class RowSplit:
    """Which agreed rows train, choose the model, and are touched once at the end."""

    train: Tensor = field(repr=False)
    validation: Tensor = field(repr=False)
    test: Tensor = field(repr=False)

    @staticmethod
    def random(rows: int, *, validation: float = 0.1, test: float = 0.15, seed: int = 0) -> RowSplit:
        """A shuffled split by fractions."""
        order = permutation(torch.arange(rows), seed, "split")
        n_test, n_val = round(test * rows), round(validation * rows)
        return RowSplit(order[n_test + n_val :], order[n_test : n_test + n_val], order[:n_test])


def random_split(complete: Tensor) -> RowSplit:
    """A random split of the complete rows; all others train."""
    at = complete.nonzero().squeeze(1)
    part = RowSplit.random(len(at))
    rest = (~complete).nonzero().squeeze(1)
    return RowSplit(torch.cat([at[part.train], rest]), at[part.validation], at[part.test])


def check_split(split: RowSplit, rows: int) -> None:
    """Refuse rows that do not exist, rows in two parts, and no training rows."""
    for part in ("train", "validation", "test"):
        index: Tensor = getattr(split, part)
        if len(index) and (int(index.min()) < 0 or int(index.max()) >= rows):
            raise DataError(f"the {part} split names row {int(index.max())} but there are {rows} rows")
    everything = torch.cat([split.train, split.validation, split.test])
    if len(everything) and int(torch.bincount(everything).max()) > 1:
        raise DataError("train, validation and test rows overlap; a row may be in one of them only")
    if not len(split.train):
        raise DataError("the split leaves no training rows")
