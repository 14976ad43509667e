"""Columns of a party that serves many runs: runs with the same training rows share one copy.

Statistics and categories come from a run's training rows, so runs over other rows have columns of their own. A copy
lives for as long as a run uses it.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Hashable
from pathlib import Path

from torch import Tensor

from colonnade.data.columns import ColumnPlan
from colonnade.deploy.party_setup import Columns
from colonnade.deploy.tables import PartyTable
from colonnade.wire.messages import rows_digest


class SharedColumns:
    """Reads a party's table for its runs, one at a time: two readings at once would need twice the memory."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: weakref.WeakValueDictionary[Hashable, Columns] = weakref.WeakValueDictionary()

    def of(
        self,
        table: PartyTable,
        train: Tensor,
        rows: int,
        left_out: Tensor | None = None,
        plan: ColumnPlan | None = None,
    ) -> Columns:
        """The columns of a run; read again where the file, the alignment or the training rows are others.

        Columns by the `plan` of a former run are that run's, and not shared.
        """
        if plan is not None:
            with self._lock:
                return table.columns(train, rows, left_out, plan)
        gone = "" if left_out is None else rows_digest(left_out)
        key = (_stamp(table.path), table.alignment.digest, rows, rows_digest(train), gone)
        with self._lock:
            found = self._known.get(key)
            if found is None:
                found = self._known[key] = table.columns(train, rows, left_out)
            return found


def _stamp(path: Path) -> Hashable:
    try:
        at = path.stat()
    except OSError:
        return None  # whoever reads it says what is wrong
    return at.st_mtime_ns, at.st_size, at.st_ino
