"""Reading the store of a process that may be at work, without torch: SQLite, for reading only, a moment at a time.

A reader keeps what it has read: the history, the traffic and the ledger of a run only grow, so the next look reads what
is new.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from colonnade.errors import RunError

QUICK = 0.5  # seconds to wait for a process that writes
TAIL = 20  # entries of the ledger that are shown
MOST_POINTS = 20_000  # of a curve that are kept; a longer training has every second, fourth ... of them

# Of what a store says that its run is, little is needed; the rest, such as all training rows, stays in the file.
_ABOUT = """select json_extract(body, '$.agreement.proposal.run'), json_extract(body, '$.method.name'),
json_extract(body, '$.training.rounds'), json_extract(body, '$.about.parties'),
json_extract(body, '$.agreement.proposal.parties'), json_extract(body, '$.agreement.proposal.method.name'),
json_extract(body, '$.agreement.proposal.training.rounds') from about"""


@dataclass(frozen=True)
class Described:
    """What a run is."""

    run: str  # empty: a simulation has no name
    method: str
    rounds: int
    parties: tuple[str, ...]


@dataclass
class Read:
    """What was read of one store up to now."""

    about: Described
    facts: Mapping[str, Any] = field(default_factory=dict)  # of the last commit
    scores: dict[int, float] = field(default_factory=dict)  # by the round after which they were measured
    residuals: dict[int, tuple[float | None, float | None]] = field(default_factory=dict)  # primal and dual
    absent: tuple[str, ...] = ()  # in the last round
    up: dict[str, int] = field(default_factory=dict)  # training bytes by party
    down: dict[str, int] = field(default_factory=dict)
    evaluation: int = 0  # bytes, both directions
    entries: int = 0  # of the ledger
    sent: dict[str, int] = field(default_factory=dict)  # bytes by owner, of entries that say so
    tail: list[tuple[int, Mapping[str, Any]]] = field(default_factory=list)  # the last entries, numbered

    def _history(self, line: Mapping[str, Any]) -> None:
        number = int(line["round"])
        if "score" in line:
            self.scores[number] = float(line["score"])
        if "primal" in line or "dual" in line:
            self.residuals[number] = (_number(line.get("primal")), _number(line.get("dual")))
        self.absent = tuple(map(str, line.get("absent", ())))
        for kept in (self.scores, self.residuals):
            if len(kept) > MOST_POINTS:
                for at in list(kept)[:-1:2]:
                    del kept[at]

    def _traffic(self, line: Mapping[str, Any]) -> None:
        for party, up, down in zip(self.about.parties, line["up"], line["down"], strict=False):
            self.up[party] = self.up.get(party, 0) + int(up)
            self.down[party] = self.down.get(party, 0) + int(down)
        self.evaluation += int(line["evaluation_up"]) + int(line["evaluation_down"])

    def _ledger(self, number: int, line: Mapping[str, Any]) -> None:
        self.entries = number
        owner = str(line.get("owner"))
        self.sent[owner] = self.sent.get(owner, 0) + int(line.get("size") or 0)
        self.tail = [*self.tail, (number, line)][-TAIL:]


class StoreReader:
    """The store of one run, read again and again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: tuple[int, int] | None = None
        self._seen: dict[str, int] = {}
        self.read: Read | None = None

    def look(self) -> Read | None:
        """What the store says now; None: there is none, or no run in it.

        Raises:
            RunError: it cannot be read.
        """
        try:
            found = self.path.stat()
        except OSError:
            self.read = self._file = None
            return None
        if (found.st_dev, found.st_ino) != self._file:
            self._file, self.read, self._seen = (found.st_dev, found.st_ino), None, {}
        try:
            with self._open() as db:
                self._look(db)
        except (sqlite3.Error, ValueError, KeyError, TypeError) as error:
            raise RunError(f"{self.path} cannot be read now ({error})") from None
        return self.read

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        address = f"{self.path.resolve().as_uri()}?mode=ro"
        with closing(sqlite3.connect(address, uri=True, timeout=QUICK, isolation_level=None)) as db:
            db.execute("begin")  # one moment of the store, whatever is committed meanwhile
            yield db

    def _look(self, db: sqlite3.Connection) -> None:
        if db.execute("select 1 from sqlite_master where name = 'about'").fetchone() is None:
            return  # it was made this moment
        if self.read is None:
            row = db.execute(_ABOUT).fetchone()
            if row is None:
                return
            self.read = Read(_described(row))
        read, state = self.read, db.execute("select facts from state").fetchone()
        read.facts = json.loads(state[0]) if state else {}
        for _, line in self._new(db, "history"):
            read._history(line)
        for _, line in self._new(db, "traffic"):
            read._traffic(line)
        for number, line in self._new(db, "ledger"):
            read._ledger(number, line)

    def _new(self, db: sqlite3.Connection, table: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
        query = f"select id, body from {table} where id > ? order by id"
        for number, body in db.execute(query, (self._seen.get(table, 0),)):
            yield number, json.loads(body)
            self._seen[table] = number


def _described(row: tuple[Any, ...]) -> Described:
    run, method, rounds, about, parties, proposed, proposed_rounds = row
    named = json.loads(parties) if parties else [one["name"] for one in json.loads(about or "[]")]
    return Described(
        str(run or ""), str(method or proposed or ""), int(rounds or proposed_rounds or 0), tuple(map(str, named))
    )


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None
