"""What the label holder's table says of its rows beside the labels: weights, a time, groups to split or measure by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from colonnade.data.frames import Key, names_of
from colonnade.data.order import check_order_of_ids
from colonnade.errors import DataError
from colonnade.extras import need
from colonnade.row_split import Marks, RowSplit, SplitSettings, split_rows
from colonnade.rows import Grouping
from colonnade.tasks import Read

MOST_GROUPS = 100  # that rows are measured by


@dataclass(frozen=True)
class Beside:
    """Columns beside the labels, by name; `weights` may be one number per label instead."""

    weights: Any = None
    split: SplitSettings = field(default_factory=SplitSettings)
    by: str | None = None

    @property
    def roles(self) -> dict[str, str]:
        """What each named column is for, by its role."""
        weights = self.weights if isinstance(self.weights, str) else None
        named = {"weights": weights, "time": self.split.time, "groups": self.split.groups, "by": self.by}
        return {role: name for role, name in named.items() if name is not None}

    @property
    def taken(self) -> list[str]:
        """The columns that are then no columns of the model; that of `by` stays one."""
        return [*dict.fromkeys(name for role, name in self.roles.items() if role != "by")]

    def in_id(self, key: Key | None) -> tuple[str, ...]:
        """Columns of an id of several that rows are split by: the person of an id of person and year, or the year."""
        names = names_of(key)
        asked = dict.fromkeys((self.split.time, self.split.groups))
        return tuple(name for name in asked if name is not None and name in names) if len(names) > 1 else ()

    def check(self, whose: str, columns: Any) -> None:
        """Refuse a table that has the labels and lacks one of these."""
        for role, name in self.roles.items():
            if name not in columns:
                raise DataError(f"{whose}, which has the labels, has no column {name!r} of {role}")

    def split_off(self, target: Any, keys: Mapping[str, Key]) -> tuple[Any, Any]:
        """The labels alone, and a frame with the same index that has a column for each role."""
        pd = need("pandas", extra="tables", purpose="joining tables")
        facts = pd.DataFrame(index=target.index)
        if self.weights is not None and not isinstance(self.weights, str):
            facts["weights"] = _given_weights(self.weights, target.index, keys)
        names = [*dict.fromkeys(self.roles.values())]
        lacking = [(role, name) for role, name in self.roles.items() if name not in target.columns]
        if lacking or (names and len(target.columns) == len(names)):
            role, name = lacking[0] if lacking else next(iter(self.roles.items()))
            raise DataError(
                f"{role} = {name!r}: needed a column of the table that has the labels, beside them; it has "
                f"{', '.join(map(str, target.columns))}"
            )
        for role, name in self.roles.items():
            facts[role] = target[name]
        return target.drop(columns=names), facts

    def marks(self, facts: Any, read: Read) -> Marks:
        """What a split may depend on, of all rows; `facts` of them, in their order."""
        time = None if self.split.time is None else times(facts["time"], self.split.time)
        groups = None if self.split.groups is None else codes(facts["groups"], self.split.groups)[0]
        return Marks(classes_of(read), time, groups)

    def splitter(self, facts: Any, read: Read) -> Callable[[Tensor], RowSplit]:
        """A function of which rows are complete that splits them; `read` has all rows."""

        def split(complete: Tensor) -> RowSplit:
            by = "time" if self.split.time else "groups" if self.split.groups else None
            partial = int((~complete).sum())
            if by is not None and partial:
                raise DataError(
                    f"{partial} rows are not held by all parties or have no label, and can only train, whatever their "
                    f"{by}; a split by {by} needs keep='all'"
                )
            return split_rows(complete, self.split, self.marks(facts, read))

        return split

    def grouping(self, facts: Any) -> Grouping | None:
        """The groups that rows are measured by; rows without a label may have none."""
        if self.by is None:
            return None
        numbers, names = codes(facts["by"], self.by, empty=True)
        if len(names) > MOST_GROUPS:
            raise DataError(
                f"by = {self.by!r}: the column has {len(names)} different values; at most {MOST_GROUPS} groups are "
                "measured: put its values into ranges first"
            )
        return Grouping(self.by, names, torch.from_numpy(numbers))


def classes_of(read: Read) -> Any:
    """(N,) class numbers, where a row has one class; otherwise None."""
    if not read.task.one_class:
        return None
    return read.values.reshape(len(read.values)).to(torch.int64).numpy()


def times(column: Any, name: str) -> Any:
    """(N,) numbers that rise with time, of a column of dates or numbers."""
    types = need("pandas", extra="tables", purpose="a table").api.types
    empty = int(column.isna().sum())
    if empty:
        raise DataError(f"time = {name!r}: {empty} of {len(column)} values are empty; fill or drop those rows")
    if types.is_datetime64_any_dtype(column.dtype):
        return column.to_numpy(dtype="datetime64[ns]").astype(np.int64)
    if types.is_numeric_dtype(column.dtype) and not types.is_bool_dtype(column.dtype):
        return column.to_numpy()
    raise DataError(
        f"time = {name!r}: needed dates or numbers; the column holds {column.dtype}; "
        "convert it, for example with pandas.to_datetime"
    )


def codes(column: Any, name: str, empty: bool = False) -> tuple[Any, tuple[str, ...]]:
    """(N,) group numbers and the groups' names, sorted; -1 for empty values where they are allowed."""
    pd = need("pandas", extra="tables", purpose="a table")
    numbers, levels = pd.factorize(column, sort=True)
    lost = int((numbers < 0).sum())
    if lost and not empty:
        raise DataError(f"groups = {name!r}: {lost} of {len(column)} values are empty; fill or drop those rows")
    return numbers.astype(np.int64), tuple(str(level) for level in levels)


def _given_weights(weights: Any, ids: Any, keys: Mapping[str, Key]) -> Any:
    """One weight for each label; `ids`: their pandas.Index, row numbers where there are no ids."""
    pd = need("pandas", extra="tables", purpose="joining tables")
    if isinstance(weights, pd.DataFrame) or getattr(getattr(weights, "index", None), "name", None) in keys.values():
        raise DataError("weights with ids of their own: put them beside the labels as a column, and name it")
    values = np.asarray(weights)
    if values.shape != (len(ids),):
        raise DataError(f"weights: needed one number for each of the {len(ids)} labels; got {values.shape}")
    if keys:
        check_order_of_ids("the weights", weights, ids, next(iter(keys.values())))
    return values
