"""Store: one SQLite file per process; state, history and ledger change in one transaction.

Kill the process at any moment: the file holds the last committed exchange, whole. Nothing
is unpickled: tensors are a safetensors blob, the rest is JSON. Triggers keep the ledger
append-only even against someone who opens the file by hand.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from colonnade.errors import RunError
from colonnade.privacy.events import Release

FORMAT = 1
_SCHEMA = """
create table if not exists about (one integer primary key check (one = 1), format integer, body text not null);
create table if not exists state (one integer primary key check (one = 1), facts text not null, tensors blob not null);
create table if not exists history (id integer primary key, body text not null);
create table if not exists traffic (id integer primary key, body text not null);
create table if not exists ledger (id integer primary key, body text not null);
create trigger if not exists ledger_no_change before update on ledger
  begin select raise(abort, 'the ledger is append-only'); end;
create trigger if not exists ledger_no_delete before delete on ledger
  begin select raise(abort, 'the ledger is append-only'); end;
create trigger if not exists ledger_no_replace before insert on ledger
  when exists (select 1 from ledger where id = new.id)
  begin select raise(abort, 'the ledger is append-only'); end;
"""


@dataclass(frozen=True)
class Snapshot:
    """What was last committed."""

    facts: dict[str, Any]
    tensors: dict[str, Tensor]
    history: list[dict[str, Any]]
    traffic: list[dict[str, Any]]
    ledger: list[Release]


class Store:
    """The durable state of one process of a run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._db = sqlite3.connect(path, isolation_level=None)
        except sqlite3.Error as error:
            raise RunError(
                f"the run store {path} cannot be opened ({error}); check the folder and its rights"
            ) from None
        try:
            self._db.execute("pragma journal_mode = wal")
            self._db.execute("pragma synchronous = full")
            self._db.executescript(_SCHEMA)
        except sqlite3.Error as error:
            self.close()  # or SQLite's own files would stay beside it
            raise RunError(
                f"{path} is not a readable run store ({error}); restore it from a copy or start anew"
            ) from None

    def describe(self, about: Mapping[str, Any]) -> None:
        """Write once what the run is; it never changes afterwards."""
        self._db.execute("insert into about values (1, ?, ?)", (FORMAT, json.dumps(about)))

    @property
    def begun(self) -> bool:
        """Whether there is a run in it at all."""
        return self._read("select 1 from about") is not None

    def about(self) -> dict[str, Any]:
        """What the run is."""
        row = self._read("select format, body from about")
        if row is None:
            raise RunError(f"{self.path} holds no run: it stopped before it began; start it again with `train`")
        if row[0] != FORMAT:
            raise RunError(f"{self.path} has format {row[0]}; this version reads format {FORMAT}")
        body: dict[str, Any] = json.loads(row[1])
        return body

    def commit(
        self,
        facts: Mapping[str, Any],
        tensors: Mapping[str, Tensor],
        *,
        history: Iterable[Mapping[str, Any]],
        traffic: Iterable[Mapping[str, Any]],
        ledger: Iterable[Release],
    ) -> None:
        """One transaction: the new state, and what was added to history, traffic and ledger."""
        # Copies, because safetensors refuses tensors that share memory, as a head in the state and in the reply does.
        dense = torch.contiguous_format
        blob = save({name: value.detach().cpu().clone(memory_format=dense) for name, value in tensors.items()})
        x = self._db.execute
        x("begin immediate")
        try:
            x("insert or replace into state values (1, ?, ?)", (json.dumps(facts), blob))
            for table, items in (("history", history), ("traffic", traffic)):
                self._db.executemany(f"insert into {table} (body) values (?)", [(json.dumps(i),) for i in items])
            rows = [(json.dumps(release.to_json()),) for release in ledger]
            self._db.executemany("insert into ledger (body) values (?)", rows)
            x("commit")
        except BaseException:
            if self._db.in_transaction:  # an interrupt may arrive when the commit is already through
                x("rollback")
            raise

    def snapshot(self) -> Snapshot | None:
        """The last commit, or None before the first."""
        row = self._read("select facts, tensors from state")
        if row is None:
            return None
        try:
            tensors = load(row[1])
        except SafetensorError as error:
            raise RunError(f"the checkpoint in {self.path} is damaged ({error}); restore it from a copy") from None
        ledger = [Release.from_json(body) for body in self._bodies("ledger")]
        return Snapshot(json.loads(row[0]), tensors, self._bodies("history"), self._bodies("traffic"), ledger)

    def _bodies(self, table: str) -> list[dict[str, Any]]:
        try:
            return [json.loads(body) for (body,) in self._db.execute(f"select body from {table} order by id")]
        except (sqlite3.Error, ValueError) as error:
            raise RunError(f"{self.path} is damaged ({error}); restore it from a copy or start anew") from None

    def _read(self, query: str) -> Any:
        try:
            return self._db.execute(query).fetchone()
        except sqlite3.Error as error:
            raise RunError(f"{self.path} is damaged ({error}); restore it from a copy or start anew") from None

    def close(self) -> None:
        """Release the file."""
        self._db.close()
