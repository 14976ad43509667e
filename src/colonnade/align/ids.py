"""The ids of a table, checked before anything is done with them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from colonnade.data.frames import Key, read_table
from colonnade.data.ids import ids_of, told
from colonnade.data.table_file import TextFormat
from colonnade.errors import DataError

# Line breaks and other control characters, and halves of surrogate pairs, which are no text.
_UNWRITABLE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def read_ids(table: Any, id: Key, whose: str = "the table", text: TextFormat | None = None) -> tuple[str, ...]:
    """The ids of a table as text, in the table's order.

    A whole number is written without a decimal point. Nothing else is changed: no spaces or zeros are removed
    and capitals stay, because two ids that one side takes for the same may be two at the other.

    Args:
        table: a table file (see `data.frames.read_table`) or a data frame.
        id: the name of the id column, or of several that are the id together.
        whose: how messages call the table.
        text: how a text file is written; None: as the file itself shows.

    Raises:
        MissingData: the file is not there.
        DataError: there is no such column, or an id is empty, repeated or not writable; with the column's name,
            how many and the first of them.
    """
    if isinstance(table, (str, Path)):
        whose, table = f"table file {str(table)!r}", read_table(table, id=id, text=text)
    ids = ids_of(whose, table, id)
    wrong = [row for row, text in enumerate(ids) if _UNWRITABLE.search(text)]
    if wrong:
        raise DataError(
            f"{whose}, id column {told(id)}: {len(wrong)} ids contain line breaks or other control characters (first "
            f"at rows {', '.join(map(str, wrong[:3]))}, counted from 0); write those ids anew or drop the rows"
        )
    return ids


def check_ids(ids: Sequence[str], most: int) -> tuple[str, ...]:
    """Ids that did not come from `read_ids`, checked as far as the alignment needs it."""
    if not ids:
        raise DataError("there are no ids to align; needed at least one")
    if len(ids) > most:
        raise DataError(f"{len(ids):,} ids are more than the {most:,} an alignment takes; align in several parts")
    if len(set(ids)) < len(ids):
        raise DataError(f"{len(ids) - len(set(ids))} of {len(ids)} ids are repeated; keep one row per id")
    if any(not text.strip() or _UNWRITABLE.search(text) for text in ids):
        raise DataError("an id is empty or contains control characters; `read_ids` says which")
    return tuple(ids)
