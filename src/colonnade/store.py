"""Store: one SQLite file per process; state, history, ledger and outbox change in one transaction.

Kill the process at any moment: the file holds the last committed round, whole. Nothing
is unpickled: tensors are a safetensors blob, the rest is JSON. Triggers keep the ledger
append-only even against someone who opens the file by hand (unless they are removed first: the chain of the ledger is
for that), and let nothing into the outbox (the messages of the last round, to be repeated byte for byte on demand) that
is not in the ledger.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import save as save_arrays  # several times faster for many small ones
from safetensors.torch import load, save
from torch import Tensor

from colonnade.errors import RunError, Unwritable
from colonnade.privacy.chain import CHAIN, SignHead, StoredLine, last, linked
from colonnade.privacy.ledger import Entry
from colonnade.privacy.sealed import Release
from colonnade.record import Round, TrafficRound

FORMAT = 1
LARGE = 2**16  # bytes from which a tensor is written on its own
PAGE = 2**15  # bytes of a page of the file: most of it are blobs of ten times that and more
LONGEST_WAL = 2**23  # bytes of the write-ahead log until it is folded into the file: rounds rewrite the same pages
_SCHEMA = """
create table if not exists about (one integer primary key check (one = 1), format integer, body text not null);
create table if not exists state (one integer primary key check (one = 1), facts text not null, tensors blob not null);
create table if not exists tensor (name text primary key, body blob not null);
create table if not exists journal (id integer primary key, name text not null, body blob not null);
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
create table if not exists head (one integer primary key check (one = 1), entries integer not null, body text not null);
create trigger if not exists head_no_way_back before update on head when new.entries < old.entries
  begin select raise(abort, 'the ledger is append-only'); end;
create trigger if not exists head_no_delete before delete on head
  begin select raise(abort, 'the ledger is append-only'); end;
create index if not exists ledger_digest on ledger (json_extract(body, '$.digest'));
create table if not exists outbox (
  number integer not null, part integer not null, kind text not null, digest text not null, payload blob not null,
  primary key (number, part));
create trigger if not exists sent_is_recorded before insert on outbox
  when not exists (select 1 from ledger where json_extract(body, '$.digest') = new.digest)
  begin select raise(abort, 'a message that is not in the ledger cannot be sent'); end;
create trigger if not exists outbox_no_change before update on outbox
  begin select raise(abort, 'a message that was sent cannot change'); end;
create trigger if not exists outbox_no_replace before insert on outbox
  when exists (select 1 from outbox where number = new.number and part = new.part)
  begin select raise(abort, 'a message that was sent cannot change'); end;
"""


@dataclass(frozen=True)
class Snapshot:
    """What was last committed."""

    facts: Mapping[str, Any]  # of the process whose store it is
    tensors: dict[str, Tensor]
    history: list[Round]
    traffic: list[TrafficRound]
    ledger: list[Entry]


class TensorTable:
    """Tensors in a database: large ones are written only where they changed.

    The duals of all rows are rewritten in a few rows per round; those rows go into a journal, until it has become
    as long as the tensor itself. Everything happens in the transaction of the caller.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self.forget()

    def forget(self) -> None:
        """What was written last is not known (any more): the next write is whole."""
        self._last: dict[str, Tensor] = {}
        self._journaled: dict[str, int] = {}  # rows in the journal

    def write(self, tensors: Mapping[str, Tensor]) -> bytes:
        """Write the large tensors; the small ones together are the bytes that come back."""
        host = {name: value.detach().cpu() for name, value in tensors.items()}
        large = {name: value for name, value in host.items() if value.numel() * value.itemsize >= LARGE}
        if not self._last or self._last.keys() - large.keys():
            self.forget()
            self._db.execute("delete from tensor")
            self._db.execute("delete from journal")
        for name, value in large.items():
            self._write(name, value)
        # Copies, because safetensors refuses tensors that share memory, as a head in the state and in the reply does.
        return save_arrays({name: v.contiguous().numpy().copy() for name, v in host.items() if name not in large})

    def _write(self, name: str, value: Tensor) -> None:
        old = self._last.get(name)
        if old is not None and old.shape == value.shape and old.dtype == value.dtype and value.dim() > 1:
            new, old = value.reshape(-1, value.shape[-1]), old.view(-1, value.shape[-1])
            rows = _changed(new.contiguous(), old)
            if self._journaled.get(name, 0) + len(rows) <= len(new):
                if len(rows):
                    values = old[rows] = new[rows]
                    body = save_arrays({"rows": rows.numpy(), "values": values.numpy()})
                    self._db.execute("insert into journal (name, body) values (?, ?)", (name, body))
                    self._journaled[name] = self._journaled.get(name, 0) + len(rows)
                return
        self._last[name] = value.clone(memory_format=torch.contiguous_format)
        self._journaled[name] = 0
        self._db.execute("insert or replace into tensor values (?, ?)", (name, save({"whole": self._last[name]})))
        self._db.execute("delete from journal where name = ?", (name,))

    def read(self) -> dict[str, Tensor]:
        """The large tensors as they were last written."""
        tensors = {name: load(body)["whole"] for name, body in self._db.execute("select name, body from tensor")}
        for name, body in self._db.execute("select name, body from journal order by id"):
            change = load(body)
            tensors[name].view(-1, tensors[name].shape[-1])[change["rows"]] = change["values"]
        return tensors


def _changed(new: Tensor, old: Tensor) -> Tensor:
    """The rows (of two tables of one shape) whose bytes differ, in order."""
    row = new.shape[1] * new.itemsize
    word = np.dtype("u8") if row % 8 == 0 else np.dtype("u1")  # whole words: several times faster than numbers
    words = (new.numpy().view(word) != old.numpy().view(word)).reshape(-1)
    rows = np.flatnonzero(words) // (row // word.itemsize)
    return torch.from_numpy(rows[np.diff(rows, prepend=-1) > 0])


def peek(path: Path, about: str) -> tuple[Any, Mapping[str, Any]] | None:
    """Look into the store of a process that may be at work: one value of what its run is, and the facts of its state.

    Args:
        path: the file; it is not changed.
        about: where the value stands, as SQLite's JSON paths say it, e.g. `$.agreement.proposal`.

    Returns:
        None if there is no store, or no run in it.
    """
    if not path.exists():
        return None
    try:
        db = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
    except sqlite3.Error as error:
        raise RunError(f"{path} cannot be read ({error})") from None
    try:
        found = db.execute("select json_extract(body, ?) from about", (about,)).fetchone()
        state = db.execute("select facts from state").fetchone()
    except sqlite3.Error as error:
        if str(error).startswith("no such table"):  # its process is making it just now
            return None
        raise RunError(f"{path} is damaged ({error}); restore it from a copy or start anew") from None
    finally:
        db.close()
    if found is None or found[0] is None:
        return None
    value = json.loads(found[0]) if str(found[0]).startswith(("{", "[")) else found[0]
    return value, json.loads(state[0]) if state else {}


class Store:
    """The durable state of one process of a run."""

    def __init__(self, path: Path, sign: SignHead | None = None) -> None:
        """Open or make the file. `sign` signs the last hash of the ledger's chain with every commit that adds to it."""
        self.path, self._sign = path, sign
        try:
            self._db = sqlite3.connect(path, isolation_level=None)
        except sqlite3.Error as error:
            raise RunError(
                f"the run store {path} cannot be opened ({error}); check the folder and its rights"
            ) from None
        try:
            self._db.execute(f"pragma page_size = {PAGE}")  # of a new file
            self._db.execute("pragma journal_mode = wal")
            self._db.execute("pragma synchronous = full")
            self._db.execute(f"pragma wal_autocheckpoint = {LONGEST_WAL // PAGE}")
            self._db.executescript(_SCHEMA)
        except sqlite3.Error as error:
            self.close()  # or SQLite's own files would stay beside it
            raise RunError(
                f"{path} is not a readable run store ({error}); restore it from a copy or start anew"
            ) from None
        self._tensors = TensorTable(self._db)

    def describe(self, about: Mapping[str, Any]) -> None:
        """Write once what the run is; it never changes afterwards."""
        try:
            self._db.execute("insert into about values (1, ?, ?)", (FORMAT, json.dumps(about)))
        except sqlite3.OperationalError as error:
            raise self._unwritable(error) from None

    @property
    def begun(self) -> bool:
        """Whether there is a run in it at all."""
        return self._read("select 1 from about") is not None

    def about(self) -> Mapping[str, Any]:
        """What the run is."""
        row = self._read("select format, body from about")
        if row is None:
            raise RunError(f"{self.path} holds no run: it stopped before it began; start it again with `train`")
        if row[0] != FORMAT:
            raise RunError(f"{self.path} has format {row[0]}; this version reads format {FORMAT}")
        body: Mapping[str, Any] = json.loads(row[1])
        return body

    def commit(
        self,
        facts: Mapping[str, Any],
        tensors: Mapping[str, Tensor] | None,
        *,
        history: Iterable[Round] = (),
        traffic: Iterable[TrafficRound] = (),
        ledger: Iterable[Entry] = (),
        outbox: Sequence[tuple[int, Release]] | None = None,
    ) -> None:
        """One transaction: the new state, what was added to history, traffic and ledger, and what is sent now.

        `tensors`: None leaves those that were committed before as they are; there must be some.
        `outbox` (part and message) takes the place of what was sent before; None leaves that as it is.
        """
        x = self._db.execute
        try:
            x("begin immediate")
            if tensors is None:
                x("update state set facts = ?", (json.dumps(facts),))
            else:
                x("insert or replace into state values (1, ?, ?)", (json.dumps(facts), self._tensors.write(tensors)))
            for table, items in (("history", history), ("traffic", traffic)):
                self._db.executemany(f"insert into {table} (body) values (?)", [(json.dumps(i),) for i in items])
            self._add(ledger)
            if outbox is not None:
                x("delete from outbox")
                sent = [(r.number, part, r.kind, r.digest, r.payload) for part, r in outbox]
                self._db.executemany("insert into outbox values (?, ?, ?, ?, ?)", sent)
            x("commit")
        except BaseException as error:
            if self._db.in_transaction:  # an interrupt may arrive when the commit is already through
                x("rollback")
            self._tensors.forget()
            if isinstance(error, sqlite3.OperationalError):  # a full disk, a lock, a folder that is gone
                raise self._unwritable(error) from None
            raise

    def _add(self, ledger: Iterable[Entry]) -> None:
        """Add to the ledger and its chain, and sign the end of it; in the transaction of the caller."""
        new = [replace(release, chain="").to_json() for release in ledger]
        if not new:
            return
        lines = list(linked(new, self._last_hash()))
        self._db.executemany("insert into ledger (body) values (?)", [(json.dumps(line),) for line in lines])
        if self._sign is not None:
            (entries,) = self._db.execute("select max(id) from ledger").fetchone()
            body = json.dumps(self._sign(entries, lines[-1][CHAIN]))
            self._db.execute(
                "insert into head values (1, ?, ?) on conflict (one) do update set entries = ?1, body = ?2",
                (entries, body),
            )

    def _last_hash(self) -> str:
        row = self._read("select json_extract(body, '$.chain') from ledger order by id desc limit 1")
        return str(row[0]) if row and row[0] else last(self._bodies("ledger"))

    def lines(self) -> list[StoredLine]:
        """The ledger as it is stored."""
        return self._bodies("ledger")

    def lines_after(self, chain: str) -> list[StoredLine] | None:
        """The lines of the ledger after the one with this hash; None, if there is none such."""
        found: list[StoredLine] = []
        try:
            for (body,) in self._db.execute("select body from ledger order by id desc"):
                line = json.loads(body)
                if line.get(CHAIN) == chain:
                    return found[::-1]
                found.append(line)
        except (sqlite3.Error, ValueError) as error:
            raise RunError(f"{self.path} is damaged ({error}); restore it from a copy or start anew") from None
        return None

    def signed_head(self) -> Mapping[str, Any] | None:
        """The signed end of the ledger's chain; None where nobody signs."""
        row = self._read("select body from head")
        try:
            return json.loads(row[0]) if row else None
        except ValueError:
            raise RunError(f"{self.path} is damaged: the head of its ledger; restore it from a copy") from None

    def _unwritable(self, error: sqlite3.OperationalError) -> Unwritable:
        return Unwritable(
            f"the store {self.path} cannot be written ({error}); nothing of this round was sent; "
            "see to the disk and start again"
        )

    def snapshot(self) -> Snapshot | None:
        """The last commit, or None before the first."""
        row = self._read("select facts, tensors from state")
        if row is None:
            return None
        try:
            tensors = load(row[1]) | self._tensors.read()
        except (SafetensorError, sqlite3.Error) as error:
            raise RunError(f"the checkpoint in {self.path} is damaged ({error}); restore it from a copy") from None
        ledger = [Entry.from_json(body) for body in self._bodies("ledger")]
        return Snapshot(json.loads(row[0]), tensors, self._bodies("history"), self._bodies("traffic"), ledger)

    def sent(self, number: int) -> list[tuple[int, str, bytes]]:
        """The messages of round `number`, if they are the last: part, kind and bytes."""
        try:
            query = "select part, kind, payload from outbox where number = ? order by part"
            return [(part, kind, payload) for part, kind, payload in self._db.execute(query, (number,))]
        except sqlite3.Error as error:
            raise RunError(f"{self.path} is damaged ({error}); restore it from a copy or start anew") from None

    def _bodies(self, table: str) -> list[Any]:
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
