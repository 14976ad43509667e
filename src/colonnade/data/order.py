"""Labels and weights that are matched by position with rows that have ids, and have these ids in another order."""

from __future__ import annotations

from typing import Any

from colonnade.data.frames import Key
from colonnade.data.ids import told
from colonnade.errors import RowsDisagree
from colonnade.rows import in_another_order


def check_order_of_ids(what: str, values: Any, ids: Any, key: Key) -> None:
    """Refuse a pandas object whose index has the ids of the rows, under another name and in another order.

    Args:
        what: the object, for messages.
        values: whatever is matched with the rows by position.
        ids: pandas.Index of the ids of the rows, as text.
        key: the columns of the ids.
    """
    index = values.index if hasattr(values, "iloc") else None
    if index is not None and index.nlevels == 1 and in_another_order(index.astype(str), ids):
        raise RowsDisagree(
            f"{what}: the index has the ids of the rows in another order and is not called {told(key)}; call it so "
            f"(rename_axis), or pass to_numpy() if the values are in the order of the table"
        )
