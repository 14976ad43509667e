"""The table ledger: one file of an organisation, in which all its runs enter what they cost a table.

A run's own ledger stands in the run's folder. It knows nothing of other runs, and an old copy of the folder knows
nothing of what was sent since. So what must outlive both is here, in one SQLite file outside of every run's folder:

    run        what a run costs a table, by the table's declared name: as agreed on, and when it is over as released;
               with the digest of the columns, so that one sees when rows were new, which does not begin a new count
    sent       the number and digest of the last message that left in a run; no other one leaves under that number
    mask key   made when a party joins a run with a secure sum, and kept nowhere else: no copy of a run's folder can
               mask anything without the file that knows what was masked
    predicted  how often each row of a table was predicted, by a keyed digest of its id

A party writes its message to its own store, then here, and only then sends it. So after a kill the store is at most
one message ahead; whatever else differs is an old copy of one of the two, and is refused by name.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

from colonnade.errors import RunError, Unwritable
from colonnade.identity.cipher import KeyPair
from colonnade.privacy.events import Unit
from colonnade.privacy.together import Cost

FORMAT = 1
PATIENCE = 30.0  # seconds to wait for another run of this organisation that writes
Execute = Callable[..., sqlite3.Cursor]
ROW = 16  # bytes of the digest of a row's id
MANY = "with given(one) as (select value from json_each(?))"  # many rows in one statement
_SCHEMA = (
    "create table about (one integer primary key check (one = 1), format integer not null, key blob not null)",
    "create table mask_key (proposal text primary key, private blob not null)",
    "create table run (proposal text primary key, run text not null, party text not null, table_name text not null, "
    "columns text not null, rows integer not null, began text not null, ended text not null, costs text not null)",
    "create table sent (proposal text primary key, number integer not null, digest text not null)",
    "create trigger sent_goes_up before update on sent when new.number <= old.number "
    "begin select raise(abort, 'what was sent is not taken back'); end",
    "create trigger sent_stays before delete on sent begin select raise(abort, 'what was sent is not taken back'); end",
    "create table predicted (table_name text not null, row text not null, times integer not null, "
    "primary key (table_name, row)) without rowid",
)


@dataclass(frozen=True)
class Entered:
    """A run in the file: which, on which table, and what it costs."""

    proposal: str  # digest
    run: str
    party: str
    table: str
    columns: str  # digest of the columns it reads
    rows: int
    costs: tuple[Cost, ...] = field(default=(), repr=False)
    began: str = ""
    ended: str = ""  # empty: it is not over, and `costs` are those agreed on


@dataclass(frozen=True)
class Sent:
    """The last message of a run that left."""

    number: int
    digest: str


class TableLedger:
    """The file. Every call opens it, so that any number of runs may share it and none holds it for long."""

    def __init__(self, path: Path) -> None:
        self.path = path

    # -- masks --------------------------------------------------------------------------------

    def mask_keys(self, proposal: str, make: bool) -> KeyPair:
        """This party's key pair for the masks of one run.

        Args:
            proposal: the digest of the proposal that it joins, or has agreed to.
            make: whether to make one, where there is none yet; only before anything was masked.

        Raises:
            RunError: there is none any more.
        """
        with self._writing() as x:
            if make:
                x("insert or ignore into mask_key values (?, ?)", (proposal, KeyPair.new().private))
            row = x("select private from mask_key where proposal = ?", (proposal,)).fetchone()
        if row is None:
            raise RunError(f"{self.path} does not have the mask key of this run; {OLD_LEDGER}")
        return KeyPair.restore(row[0])

    # -- runs ---------------------------------------------------------------------------------

    def enter(self, run: Entered, check: Callable[[Sequence[Entered]], None] = lambda others: None) -> None:
        """Charge the table with what a run was agreed to cost; again, it changes nothing.

        `check` is called with what all other runs cost this table, before anything is written, and may refuse. Runs of
        the same name from which nothing ever left, such as an earlier proposal that came to nothing, cost nothing.
        Those that train at home (unit ROW) do: they send nothing while they train, and all of it with what they say
        later.
        """
        with self._writing() as x:
            if x("select 1 from run where proposal = ?", (run.proposal,)).fetchone():
                return
            named = (run.run, run.party, run.table)
            unused = "run = ? and party = ? and table_name = ? and proposal not in (select proposal from sent)"
            for proposal, costs in x(f"select proposal, costs from run where {unused}", named).fetchall():
                if all(line["unit"] != Unit.ROW.value for line in json.loads(costs)):
                    x("delete from run where proposal = ?", (proposal,))
            check(_read(x, run.table))
            facts = (run.proposal, run.run, run.party, run.table, run.columns, run.rows, _now(), "", _costs(run.costs))
            x("insert into run values (?, ?, ?, ?, ?, ?, ?, ?, ?)", facts)

    def end(self, proposal: str, costs: Sequence[Cost]) -> None:
        """A run is over: what it really released takes the place of what was agreed on."""
        with self._writing() as x:
            once = "update run set ended = ?, costs = ? where proposal = ? and ended = ''"
            x(once, (_now(), _costs(costs), proposal))

    def runs(self, table: str | None = None) -> list[Entered]:
        """The runs on a table, or on all, in the order in which they began."""
        if not self.path.exists():
            return []
        with self._reading() as x:
            return _read(x, table)

    # -- messages -----------------------------------------------------------------------------

    def sent(self, proposal: str) -> Sent | None:
        """The last message of a run that left; None: nothing has."""
        if not self.path.exists():
            return None
        with self._reading() as x:
            row = x("select number, digest from sent where proposal = ?", (proposal,)).fetchone()
        return None if row is None else Sent(*row)

    def send(self, proposal: str, message: Sent, table: str = "", predicted: Sequence[str] = ()) -> None:
        """A message is about to leave; the same one again changes nothing.

        Args:
            proposal: of its run.
            message: its number, and a digest of all that leaves under it.
            table: whose rows it predicts.
            predicted: their ids; each is counted once more.

        Raises:
            RunError: another message left under this number or a later one.
        """
        with self._writing() as x:
            last = x("select number, digest from sent where proposal = ?", (proposal,)).fetchone()
            if last is not None and Sent(*last) == message:
                return
            if last is not None and last[0] >= message.number:
                raise RunError(old_store(self.path, last[0], message.number))
            x(
                "insert into sent values (?, ?, ?) on conflict (proposal) do update set number = excluded.number, "
                "digest = excluded.digest",
                (proposal, message.number, message.digest),
            )
            self._count(x, table, predicted)

    # -- rows ---------------------------------------------------------------------------------

    def most_predicted(self, table: str, ids: Collection[str]) -> int:
        """How often that of some rows was predicted which was predicted most often."""
        if not self.path.exists() or not ids:
            return 0
        with self._reading() as x:
            found = x(
                f"{MANY} select max(times) from predicted, given where table_name = ? and row = given.one",
                (self._rows(x, ids), table),
            ).fetchone()
        return int(found[0] or 0)

    def _count(self, x: Execute, table: str, ids: Collection[str]) -> None:
        """Each of these rows is predicted once more, or as often as it is in there."""
        if ids:
            x(
                f"{MANY} insert into predicted select ?, one, count(*) from given where true group by one "
                "on conflict (table_name, row) do update set times = times + excluded.times",
                (self._rows(x, ids), table),
            )

    def predictions(self, table: str) -> tuple[int, int, int]:
        """Of a table: rows that were predicted, predictions in all, and those of the row that has most."""
        if not self.path.exists():
            return 0, 0, 0
        count = "select count(*), coalesce(sum(times), 0), coalesce(max(times), 0) from predicted where table_name = ?"
        with self._reading() as x:
            rows, times, most = x(count, (table,)).fetchone()
        return int(rows), int(times), int(most)

    @staticmethod
    def _rows(x: Execute, ids: Collection[str]) -> str:
        """Digests of ids under the key of the file, as JSON: whoever has the file still has to try ids one by one."""
        key = x("select key from about").fetchone()[0]
        return json.dumps([hmac.digest(key, id.encode(), hashlib.sha256)[:ROW].hex() for id in ids])

    # -- the file -----------------------------------------------------------------------------

    @contextmanager
    def _writing(self) -> Iterator[Execute]:
        try:
            if not self.path.exists():
                self.path.parent.mkdir(parents=True, exist_ok=True)
                os.close(os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o600))
            with closing(sqlite3.connect(self.path, timeout=PATIENCE, isolation_level=None)) as db:
                db.execute("pragma synchronous = full")
                db.execute("pragma journal_mode = persist")  # the journal is not made and removed every time
                db.execute("begin immediate")
                try:
                    self._prepare(db)
                    yield db.execute
                    db.execute("commit")
                except BaseException:
                    if db.in_transaction:
                        db.execute("rollback")
                    raise
        except (OSError, sqlite3.Error) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            raise Unwritable(f"the table ledger {self.path} cannot be written ({why}); nothing was sent") from None

    @contextmanager
    def _reading(self) -> Iterator[Execute]:
        try:
            # For reading and writing: after a kill in the middle of a transaction, whoever comes next takes it back.
            with closing(sqlite3.connect(self.path, timeout=PATIENCE, isolation_level=None)) as db:
                if db.execute("select 1 from sqlite_master where name = 'about'").fetchone():
                    _check(self.path, db.execute("select format from about").fetchone())
                    yield db.execute
                    return
            with closing(sqlite3.connect(":memory:")) as db:  # the file was made, and nothing was written yet
                _create(db)
                yield db.execute
        except sqlite3.Error as error:
            raise RunError(f"the table ledger {self.path} cannot be read ({error})") from None

    def _prepare(self, db: sqlite3.Connection) -> None:
        if db.execute("select 1 from sqlite_master where name = 'about'").fetchone() is None:
            _create(db)
        _check(self.path, db.execute("select format from about").fetchone())


OLD_LEDGER = (
    "it is an old copy, or another file than the run began with: what was masked and sent would not be known any more; "
    "put the newest one back, or begin a new run under another name"
)


def old_store(path: Path, sent: int, asked: int) -> str:
    """Why a party does not answer what it answered before, as its store no longer knows."""
    return (
        f"request {asked} is not answered: {path.name} knows that request {sent} was, and the party's store does not; "
        "the store is an old copy, and a second answer under one number would undo what hid the first; put the newest "
        "store back, or begin a new run under another name"
    )


def _create(db: sqlite3.Connection) -> None:
    for statement in _SCHEMA:
        db.execute(statement)
    db.execute("insert into about values (1, ?, ?)", (FORMAT, secrets.token_bytes(32)))


def _check(path: Path, row: tuple[int] | None) -> None:
    if row is None or row[0] != FORMAT:
        found = "no format" if row is None else f"format {row[0]}"
        raise RunError(f"the table ledger {path} has {found}; this version reads format {FORMAT}")


def _read(x: Execute, table: str | None) -> list[Entered]:
    names = "proposal, run, party, table_name, columns, rows, costs, began, ended"
    query = f"select {names} from run" + (" where table_name = ?" if table is not None else "") + " order by rowid"
    found = []
    for proposal, run, party, name, columns, rows, stored, *times in x(query, () if table is None else (table,)):
        costs = tuple(Cost.from_json(line) for line in json.loads(stored))
        found.append(Entered(proposal, run, party, name, columns, rows, costs, *times))
    return found


def _costs(costs: Sequence[Cost]) -> str:
    return json.dumps([cost.to_json() for cost in costs])


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
