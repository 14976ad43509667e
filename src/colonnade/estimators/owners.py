"""Which party owns which columns of one table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from colonnade.errors import EstimatorInput

Owners = dict[str, list[int]]  # party -> places of its columns in the table
EXAMPLE = "{'income': 'bank', 'minutes': 'telco'} or {'bank': ['income'], 'telco': ['minutes']}"


def owners_of(parties: Any, columns: Sequence[Any], named: bool) -> Owners:
    """The places of every party's columns.

    Args:
        parties: how many parties, which then own consecutive blocks of columns, as equal as possible (one column each
            where there are fewer columns); or column -> party; or party -> columns.
        columns: names of the columns, or their numbers where they have no names.
        named: whether they have names.

    Raises:
        EstimatorInput: a column has no owner or two, does not exist, or `parties` is something else.
    """
    if isinstance(parties, (int, np.integer)) and not isinstance(parties, bool) and parties >= 1:
        blocks = np.array_split(np.arange(len(columns)), min(int(parties), len(columns)))
        return {f"party_{number}": block.tolist() for number, block in enumerate(blocks, start=1)}
    if not isinstance(parties, Mapping) or not parties:
        raise EstimatorInput(f"parties = {parties!r}: needed a number from 1, or who owns which column: {EXAMPLE}")
    by_column = _by_column(parties)
    place = {column: number for number, column in enumerate(columns)}
    strange = next((column for column in by_column if column not in place), None)
    if strange is not None:
        raise EstimatorInput(f"parties: {_no_such(strange, columns, named)}")
    lacking = next((column for column in columns if column not in by_column), None)
    if lacking is not None:
        raise EstimatorInput(
            f"parties: column {lacking!r} belongs to nobody; name its owner, or drop it from the table"
        )
    found: Owners = {party: [] for party in dict.fromkeys(by_column.values())}
    for column, party in by_column.items():
        found[party].append(place[column])
    return {party: sorted(places) for party, places in found.items()}


def _by_column(parties: Mapping[Any, Any]) -> dict[Any, str]:
    """Column -> party, whichever way round it was given."""
    if all(isinstance(party, str) for party in parties.values()):
        return dict(parties)
    lists = all(isinstance(given, Sequence) and not isinstance(given, str) for given in parties.values())
    if not lists or not all(isinstance(party, str) for party in parties):
        raise EstimatorInput(f"parties: needed text for parties and columns, all of one form: {EXAMPLE}")
    found: dict[Any, str] = {}
    for party, columns in parties.items():
        for column in columns:
            if column in found:
                raise EstimatorInput(
                    f"parties: column {column!r} is given to {found[column]!r} and to {party!r}; a column has one owner"
                )
            found[column] = party
    return found


def _no_such(column: Any, columns: Sequence[Any], named: bool) -> str:
    if not named and isinstance(column, str):
        return (
            f"the column {column!r} is named, but the table has no column names; give a data frame (in a pipeline: "
            "set_output(transform='pandas')), or name columns by number"
        )
    known = ", ".join(map(repr, columns[:10])) + (", ..." if len(columns) > 10 else "")
    return f"there is no column {column!r}; the table has {known}"
