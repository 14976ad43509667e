"""Rows of people who withdrew are left out of what begins, and refused in what has begun."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from colonnade.align.files import ABOUT, Alignment, read_alignment
from colonnade.errors import MissingData, Refused
from colonnade.wire.messages import Purpose, Request
from colonnade.withdrawn import Withdrawn, read_withdrawn, stamp

TELL = 'people who withdrew: documentation, page "Withdrawal"'


def check_rows(asked: Tensor, withdrawn: Tensor, what: str) -> None:
    """Refuse what is asked about rows of people who withdrew, by their numbers."""
    if not len(withdrawn):
        return
    rows = asked[torch.isin(asked, withdrawn)].unique()
    if len(rows):
        named = ", ".join(str(row) for row in rows[:5].tolist()) + (", ..." if len(rows) > 5 else "")
        told = f"row {named} of a person" if len(rows) == 1 else f"{len(rows):,} rows ({named}) of people"
        raise Refused(f"{what} {told} who withdrew; leave out such rows, or begin a new run without them ({TELL})")


def check_request(request: Request, me: str, withdrawn: Tensor) -> None:
    """Refuse a request that asks this party about such a row, for whichever purpose.

    A prediction also if it asks only others: who was away, and is left out, may be the only one who knows.
    """
    for query in request.queries:
        if me in query.senders or query.purpose in (Purpose.PREDICT, Purpose.EXPLAIN):
            check_rows(query.rows, withdrawn, f"request {request.number} ({query.purpose.value}) asks about")


def people_at(list_file: Path, alignment: Path, began: Alignment | None = None) -> Callable[[], Tensor]:
    """Rows of people who withdrew, as list and alignment say now; read again only when a file has changed.

    `began`: the alignment whose row numbers are meant. The one that is in the folder by now counts only where it is
    the same or extends it: of another one the numbers are other people's.
    """
    seen: list[tuple[int, int, int] | None] = []
    rows = torch.empty(0, dtype=torch.int64)

    def now() -> Tensor:
        nonlocal rows, seen
        at = [stamp(list_file), stamp(alignment / ABOUT)]
        if at != seen:
            rows = torch.from_numpy(_numbered(read_withdrawn(list_file), alignment, began))
            seen = at
        return rows

    return now


def _numbered(known: Withdrawn, folder: Path, began: Alignment | None) -> np.ndarray:
    if began is None:
        return withdrawn_rows(known, folder)
    rows = withdrawn_rows(known, began)
    try:
        now = read_alignment(folder)
    except MissingData:
        return rows
    same = began.digest in (now.digest, *now.extends)
    return np.union1d(rows, withdrawn_rows(known, now)).astype(np.int64) if same else rows


def withdrawn_rows(known: Withdrawn, alignment: Path | Alignment) -> np.ndarray:
    """(K,) row numbers of people who withdrew, ascending; none where there is no alignment."""
    if not known.people:
        return np.empty(0, dtype=np.int64)
    try:
        found = read_alignment(alignment) if isinstance(alignment, Path) else alignment
    except MissingData:
        return np.empty(0, dtype=np.int64)
    return found.rows_of(known.ids)
