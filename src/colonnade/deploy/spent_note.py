"""What a table ledger comes to, written beside it by whoever changed it: for those who watch, without computing.

Epsilons need accountants and the libraries of training; a screen that is drawn every second has neither. The note says
which entries it was computed from, by a digest. Where the entries are others by now, the note says nothing.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from pathlib import Path

from colonnade.errors import RunError
from colonnade.live import stamp

NOTE = ".note.json"  # spent.db -> spent.db.note.json
QUICK = 0.5  # seconds that a watcher waits for a run that writes

_ENTRIES = "select proposal, ended, costs from run where table_name = ? order by rowid"
_PREDICTED = "select count(*), coalesce(sum(times), 0), coalesce(max(times), 0) from predicted where table_name = ?"


def entries_of(path: Path, table: str) -> tuple[str, int, tuple[int, int, int]]:
    """Of a table in the file: a digest of its entries, how many there are, and its predictions. Changes nothing.

    Predictions are rows that were predicted, predictions in all, and those of the row that has most.
    """
    if not path.exists():
        return "", 0, (0, 0, 0)
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=QUICK)) as db:
            if db.execute("select 1 from sqlite_master where name = 'run'").fetchone() is None:
                return "", 0, (0, 0, 0)
            entries = db.execute(_ENTRIES, (table,)).fetchall()
            rows, times, most = db.execute(_PREDICTED, (table,)).fetchone()
    except sqlite3.Error as error:
        raise RunError(f"the table ledger {path} cannot be read now ({error})") from None
    digest = hashlib.sha256(json.dumps(entries).encode()).hexdigest() if entries else ""
    return digest, len(entries), (int(rows), int(times), int(most))


def write_note(path: Path, table: str, about: str, together: Callable[[], list[dict[str, object]]]) -> None:
    """Note what all entries of a table come to; a note that cannot be written is no reason to end anything.

    `about` says how they are counted. What was noted of the same entries, counted in the same way, is not computed
    again.
    """
    with suppress(OSError, RunError):
        digest, runs, _ = entries_of(path, table)
        known = read_note(path, table, digest)
        if not runs or (known is not None and known.get("about") == about):
            return
        entry = {"digest": digest, "about": about, "time": stamp(), "together": together()}
        place = path.with_name(path.name + NOTE)
        beside = place.with_name(place.name + ".part")
        beside.write_text(json.dumps({**_read(path), table: entry}, indent=1) + "\n", encoding="utf-8")
        beside.replace(place)


def read_note(path: Path, table: str, digest: str) -> Mapping[str, object] | None:
    """What was noted of exactly these entries; None: nothing."""
    entry = _read(path).get(table)
    return entry if isinstance(entry, dict) and entry.get("digest") == digest else None


def _read(path: Path) -> dict[str, object]:
    try:
        found = json.loads(path.with_name(path.name + NOTE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
