"""Which columns of a party's table its own organisation predicts, as far as its files show both.

A party learns from every column, so a model of the label itself has perfect scores and is of no use. No party is told
what the label is called. But a label holder's own party is configured beside it, and then the files say so.
"""

from __future__ import annotations

from typing import Any

from colonnade.config import read_toml
from colonnade.deploy.sections import PartyFile, read_coordinator_file
from colonnade.errors import ColonnadeError, DataError


def labels_beside(read: PartyFile) -> tuple[str, ...]:
    """The labels of coordinators' files beside party.toml or its table that call the party, or its table, their own."""
    party, found = read.party, dict[str, None]()
    for folder in dict.fromkeys((read.place, party.table.parent)):
        for path in sorted(folder.glob("*.toml")):
            try:
                holder = read_coordinator_file(path).coordinator if "coordinator" in read_toml(path) else None
            except ColonnadeError:
                continue  # of another program, or one that its own process refuses
            if holder is None or party.name not in holder.parties:
                continue
            if party.name in holder.own or holder.table.resolve() == party.table.resolve():
                found[holder.label] = None
    return tuple(found)


def check_no_label(frame: Any, labels: tuple[str, ...], table: str) -> None:
    """Refuse a table, without its id, that has one of these labels among its columns.

    Raises:
        DataError: it has.
    """
    if there := next((name for name in labels if name in frame.columns), None):
        raise DataError(
            f"the table {table!r} has the column {there!r}, which coordinator.toml of this organisation predicts: no "
            f"party may learn from it; say label = {there!r} in [party], which leaves it out, or give the column "
            "another name if it is something else"
        )
