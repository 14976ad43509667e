"""Rows that are matched by position: refused where pandas says itself that they are in different orders.

A table that was sorted or sampled keeps its index. Matched by position with one that was not, it would train and
predict without complaint, and wrongly.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from colonnade.data.frames import Key
from colonnade.data.ids import told
from colonnade.errors import RowsDisagree


def check_order(given: Mapping[str, Any], instead: str = "") -> None:
    """Refuse pandas objects of which one has the index of the first in another order.

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
        if _in_another_order(index, like):
            raise RowsDisagree(
                f"{what}: the index has the same rows as that of {first}, in another order, and rows are matched by "
                "position; bring them into one order (.loc with the other's index), or, if row i of each is the same "
                f"row, call reset_index(drop=True) on both{instead}"
            )


def check_order_of_ids(what: str, values: Any, ids: Any, key: Key) -> None:
    """Refuse a pandas object whose index has the ids of the rows, under another name and in another order.

    Args:
        what: the object, for messages.
        values: whatever is matched with the rows by position.
        ids: pandas.Index of the ids of the rows, as text.
        key: the columns of the ids.
    """
    index = values.index if hasattr(values, "iloc") else None
    if index is not None and index.nlevels == 1 and _in_another_order(index.astype(str), ids):
        raise RowsDisagree(
            f"{what}: the index has the ids of the rows in another order and is not called {told(key)}; call it so "
            f"(rename_axis), or pass to_numpy() if the values are in the order of the table"
        )


def _in_another_order(one: Any, other: Any) -> bool:
    """Whether two pandas indexes have the same values, each once, in different orders."""
    if len(one) != len(other) or one.equals(other):
        return False
    return bool(one.is_unique and other.is_unique and not len(one.difference(other, sort=False)))
