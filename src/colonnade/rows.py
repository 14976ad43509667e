"""Rows as the parties' networks read them, without labels; their ids; and groups of rows."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, SupportsIndex, overload

import numpy as np
import torch
from torch import Tensor

from colonnade.errors import DataError, RowsDisagree
from colonnade.mapped import side_by_side

CHECKED = 1 << 14  # rows that are checked at once, so that a mapped matrix is not copied


@dataclass(frozen=True)
class Rows:
    """Columns (B, ...) by party, encoded, floating point or int64; row i of every party is the same row.

    `index` names the rows in an answer: a pandas.Index for rows that came as data frames, None for arrays.
    `plans` (of ColumnPlan) says how tables became these columns, by owner; empty where they came as arrays.
    `training` (B,) says which of them train in the federation they were selected from; None: not known.
    `held` (B,) says which rows a party holds, of those that lack some; what stands in others' places is not read. A
    party without columns holds none.
    """

    columns: Mapping[str, Tensor] = field(repr=False)
    index: Any = field(default=None, repr=False)
    plans: Mapping[str, Any] = field(default_factory=dict, repr=False)
    training: Tensor | None = field(default=None, repr=False)
    held: Mapping[str, Tensor] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def holders(self, parties: Sequence[str]) -> dict[tuple[str, ...], Tensor]:
        """Which of these parties hold a row: the places of rows that the same ones hold, in their order."""
        if not self.held and set(parties) <= set(self.columns):
            return {tuple(parties): torch.arange(len(self))}
        everything, nothing = torch.ones(len(self), dtype=torch.bool), torch.zeros(len(self), dtype=torch.bool)
        mine = [self.held.get(name, everything) if name in self.columns else nothing for name in parties]
        kinds, place = torch.stack(mine, dim=1).unique(dim=0, return_inverse=True)
        return {
            tuple(name for name, here in zip(parties, kind, strict=True) if here): (place == number).nonzero()[:, 0]
            for number, kind in enumerate(kinds.tolist())
        }

    def of(self, parties: Sequence[str], places: Tensor) -> Rows:
        """Some rows, as some parties hold them."""
        index = self.index if self.index is None else self.index.take(places.numpy())
        training = None if self.training is None else self.training[places]
        columns = {name: self.columns[name][places] for name in parties}
        return Rows(columns, index, {name: self.plans[name] for name in parties if name in self.plans}, training)

    def pooled(self) -> Rows:
        """All columns in one place, in the order of the parties: what a run of a pooled reference reads."""
        together = side_by_side(list(self.columns.values()))
        return Rows({"everyone": together}, self.index, self.plans, self.training)


@dataclass(frozen=True)
class Grouping:
    """A column that rows are also measured by: the groups' names, and each row's place among them."""

    column: str
    names: tuple[str, ...]
    codes: Tensor = field(repr=False)  # (N,) int64; -1: no value

    def take(self, rows: Tensor) -> Grouping:
        """Of some rows."""
        return Grouping(self.column, self.names, self.codes[rows.cpu()])


class RowIds(Sequence[str]):
    """Ids of rows as text, kept as Arrow keeps them: a Python text for each would take several times the memory."""

    def __init__(self, texts: Any) -> None:
        self.texts = texts  # pandas.Index

    def __len__(self) -> int:
        return len(self.texts)

    @overload
    def __getitem__(self, place: SupportsIndex) -> str: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[str, ...]: ...

    def __getitem__(self, place: SupportsIndex | slice) -> str | tuple[str, ...]:
        return tuple(self.texts[place]) if isinstance(place, slice) else str(self.texts[operator.index(place)])

    def __iter__(self) -> Iterator[str]:
        return iter(self.texts)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, RowIds):
            return bool(self.texts.equals(other.texts))
        return isinstance(other, (tuple, list)) and len(other) == len(self) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"RowIds({len(self):,} ids)"

    def take(self, rows: Tensor) -> RowIds:
        """Those of some rows."""
        return RowIds(self.texts.take(rows.numpy()))


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


# -- reading ----------------------------------------------------------------------------------


def _writable(values: Any) -> np.ndarray[Any, Any]:
    """An array that torch takes without a warning, as it does not that of a data frame; a mapped file is not copied."""
    mapped = isinstance(values, np.memmap)
    return np.ascontiguousarray(values) if mapped else np.require(values, requirements=("C", "W"))


def as_columns(name: str, values: Any, held: Tensor | None = None) -> Tensor:
    """A party's values (N, ...), floating point or int64; NaN, infinite and missing values are refused by its name."""
    try:
        columns = values if isinstance(values, Tensor) else torch.from_numpy(_writable(values))
    except (TypeError, ValueError):
        raise DataError(
            f"party {name!r}: needed an array of numbers, got {type(values).__name__} with other values; "
            "encode text first, or use Federation.from_tables"
        ) from None
    if columns.dim() == 1:
        columns = columns.unsqueeze(1)
    if columns.dtype == torch.bool:
        columns = columns.to(torch.float32)
    elif not columns.is_floating_point():
        columns = columns.to(torch.int64)  # tokens for an embedding, or numbers: their reader decides
    if columns.numel() == 0:
        raise DataError(f"party {name!r} has no values (shape {tuple(columns.shape)})")
    if held is not None and len(held) == len(columns):
        columns = columns.clone()
        columns[~held] = 0
    if bool(torch.isfinite(columns.sum())):  # cheap, and enough: NaN and infinite values spread to a sum
        return columns
    bad = torch.cat([~torch.isfinite(part.flatten(1)).all(dim=1) for part in columns.split(CHECKED)])
    if bool(bad.any()):
        raise DataError(
            f"party {name!r} has NaN or infinite values in {int(bad.sum())} of {len(columns)} rows "
            f"(first: row {int(bad.nonzero()[0])}); fill or drop them before training"
        )
    return columns


def check_order(given: Mapping[str, Any], instead: str = "") -> None:
    """Refuse pandas objects that are matched by position, of which one has the index of the first in another order.

    A table that was sorted or sampled keeps its index. Matched by position with one that was not, it would train and
    predict without complaint, and wrongly.

    Args:
        given: by what they are, for messages. What has no index is in the order of the first by its owner's word, and
            so is what has another index: it says nothing about these rows.
        instead: what else might be done, for messages.

    Raises:
        RowsDisagree: which row belongs to which could be meant in two ways.
    """
    indexes = {what: thing.index for what, thing in given.items() if hasattr(thing, "iloc")}  # a list has an index, too
    for what, index in list(indexes.items())[1:]:
        first, like = next(iter(indexes.items()))
        if in_another_order(index, like):
            raise RowsDisagree(
                f"{what}: the index has the same rows as that of {first}, in another order, and rows are matched by "
                "position; bring them into one order (.loc with the other's index), or, if row i of each is the same "
                f"row, call reset_index(drop=True) on both{instead}"
            )


def in_another_order(one: Any, other: Any) -> bool:
    """Whether two pandas indexes have the same values, each once, in different orders."""
    if len(one) != len(other) or one.equals(other):
        return False
    return bool(one.is_unique and other.is_unique and not len(one.difference(other, sort=False)))
