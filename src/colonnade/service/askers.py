"""Askers: the label holder's open lines to the parties of the versions it predicts with, and the rows they know.

All share one connection to the server. The version in use is always open, so that its first call does not wait;
another is opened when somebody asks for it, and closed when nobody does any more. An open version's folder is claimed:
nobody else asks its parties meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import torch

from colonnade.align.files import ABOUT, Alignment, read_alignment
from colonnade.deploy.predict import Asker, NotThere, Unanswerable, Wish
from colonnade.deploy.start import linked
from colonnade.deploy.withdrawal.limits import check_rows
from colonnade.engines.connection import NatsConnection
from colonnade.engines.link import Link
from colonnade.engines.message import Notify, named
from colonnade.errors import ColonnadeError, ConfigError, DataError, Refused, RunError
from colonnade.folder import claimed
from colonnade.identity.credentials import Credentials
from colonnade.model import Model
from colonnade.predict import Prediction, WhenAbsent
from colonnade.service.versions import FILE, finished, folder_of, read_models
from colonnade.withdrawn import Withdrawn, read_withdrawn

UNUSED = 60.0  # seconds after which a version that is not in use is closed
NAMED, LONGEST = 5, 64  # unknown ids that are named, and characters of each


class UnknownIds(DataError):
    """Ids that have no row; `count` of them, the first of which are named."""

    def __init__(self, unknown: list[str], of: int) -> None:
        self.count, self.first = len(unknown), [id[:LONGEST] for id in unknown[:NAMED]]
        super().__init__(f"{self.count:,} of {of:,} ids are not among the aligned rows; first: {', '.join(self.first)}")


@dataclass(frozen=True)
class KnownRows:
    """The aligned rows by id, as they were read last."""

    alignment: Alignment
    number: Mapping[str, int] = field(repr=False)
    withdrawn: Withdrawn = field(default_factory=Withdrawn, repr=False)

    @cached_property
    def gone(self) -> torch.Tensor:
        """Rows of people who withdrew."""
        return torch.from_numpy(self.alignment.rows_of(self.withdrawn.ids))

    @classmethod
    def read(cls, folder: Path, withdrawn: Path | None = None) -> KnownRows:
        """From the folder of an alignment, and the list of people who withdrew."""
        found = read_alignment(folder)
        gone = Withdrawn() if withdrawn is None else read_withdrawn(withdrawn)
        return cls(found, dict(zip(found.ids, found.rows.tolist(), strict=True)), gone)

    def wish(self, ids: list[str], absent: WhenAbsent) -> Wish:
        """What to predict; `UnknownIds` if some have no row, `DataError` if one is there twice or withdrew."""
        self.withdrawn.check(ids)
        found = [self.number.get(id) for id in ids]
        rows = [row for row in found if row is not None]
        if len(rows) < len(ids):
            raise UnknownIds([id for id, row in zip(ids, found, strict=True) if row is None], len(ids))
        if len(set(rows)) < len(rows):
            raise DataError("an id is listed more than once; list each one once")
        al = self.alignment
        presence: Mapping[str, np.ndarray] | None = al.presence
        return Wish(torch.tensor(rows), presence, absent, alignment=al.digest, former=al.extends)


@dataclass(frozen=True)
class ModelPlace:
    """Where the versions of a model and the aligned rows are, and what the runs are called."""

    folder: Path
    alignment: Path
    run: Callable[[int], str]
    withdrawn: Path | None = None  # the list of people who withdrew


@dataclass
class _Open:
    asker: Asker
    closing: ExitStack
    last: float  # when it was asked last


class Askers:
    """Used by one thread, but for what it says of itself."""

    def __init__(
        self,
        place: ModelPlace,
        notify: Notify,
        link: Callable[[str, Notify], AbstractContextManager[Link]],
    ) -> None:
        self.place, self._notify, self._link = place, notify, link
        self._open: dict[int, _Open] = {}
        self._seen: dict[str, object] = {}  # what files were like when they were read
        self._told = ""
        self.used = 0  # the version in use; 0: none
        self.rows: KnownRows | None = None
        self.models: dict[int, Model] = {}  # of the versions that were ever open
        self.leave_out: set[int] = set()  # those of them that have an answer without some parties

    # -- what others see ------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Whether the version in use can be asked."""
        return bool(self.used) and self.used in self._open and self.rows is not None

    @property
    def away(self) -> list[str]:
        """Parties that did not answer the last question about the version in use."""
        line = self._open.get(self.used)
        return sorted(line.asker.away) if line is not None else []

    # -- in the thread --------------------------------------------------------------------------

    def ask(self, version: int, wish: Wish) -> Prediction:
        """Ask the parties of a version. After anything that is no answer of theirs its line is opened anew.

        For what could not be written may be in memory, and must not be built upon.
        """
        self._check_people(wish)
        try:
            return self.of(version).ask(wish)
        except (NotThere, Unanswerable, Refused, ConfigError, DataError):
            raise
        except BaseException:
            self._drop(version)
            raise

    def _check_people(self, wish: Wish) -> None:
        """Somebody may have withdrawn while a call waited; a list that cannot be read stops every call."""
        if self.place.withdrawn is not None:
            self._follow("people", self.place.withdrawn, self._read_rows)
        if self.rows is not None:
            check_rows(wish.rows, self.rows.gone, "the call asks about")

    def of(self, version: int) -> Asker:
        """Whoever asks the parties of a version.

        Raises:
            RunError: it is not finished, another process works with it, or its ledger was changed.
        """
        if version not in self._open:
            self._open[version] = self._opened(version)
        line = self._open[version]
        line.last = time.monotonic()
        return line.asker

    def _opened(self, version: int) -> _Open:
        if not finished(self.place.folder, version):
            raise RunError(f"there is no finished version {version} of the model")
        folder, run = folder_of(self.place.folder, version), self.place.run(version)
        notify = named(run, self._notify)
        with ExitStack() as stack:
            stack.enter_context(claimed(folder)).note("still serving predictions")
            asker = Asker(folder, stack.enter_context(self._link(run, notify)), notify)
            stack.callback(asker.close)
            asker.open()
            self.models[version] = asker.run.model
            if asker.can_leave_out:
                self.leave_out.add(version)
            return _Open(asker, stack.pop_all(), time.monotonic())

    def look(self) -> None:
        """Follow the files: which version is in use, which rows there are; close what nobody asks any more."""
        told = [self._tried(step) for step in (self._follow_people, self._follow_rows, self._follow_models)]
        wrong = next(filter(None, told), "")
        if wrong and wrong != self._told:
            self._notify("not ready", reason=wrong)
        self._told = wrong
        for version, line in list(self._open.items()):
            if version != self.used and time.monotonic() > line.last + UNUSED:
                self._drop(version)

    def _tried(self, step: Callable[[], None]) -> str:
        """Take a step; why it could not be taken. One file that cannot be read does not hide what others say."""
        try:
            step()
        except ColonnadeError as error:
            return str(error)
        return ""

    def _follow_people(self) -> None:
        if self.place.withdrawn is not None:
            try:
                self._follow("people", self.place.withdrawn, self._read_rows)
            except RunError:
                self.rows = None  # nobody knows who withdrew: nothing is predicted
                self._seen.pop("rows", None)
                raise

    def _follow_rows(self) -> None:
        self._follow("rows", self.place.alignment / ABOUT, self._read_rows)

    def _follow_models(self) -> None:
        self._follow("models", self.place.folder / FILE, self._read_models)
        if self.used:
            self.of(self.used)

    def _read_models(self) -> None:
        self.used = read_models(self.place.folder).used

    def _read_rows(self) -> None:
        if (self.place.alignment / ABOUT).exists():
            self.rows = KnownRows.read(self.place.alignment, self.place.withdrawn)

    def _follow(self, name: str, path: Path, read: Callable[[], None]) -> None:
        """Read a file that is there, if it is another one than the last that was read."""
        try:
            found = path.stat()
        except OSError:
            return
        state = (found.st_ino, found.st_mtime_ns, found.st_size)
        if self._seen.get(name) != state:
            read()
            self._seen[name] = state

    def _drop(self, version: int) -> None:
        if version in self._open:
            self._open.pop(version).closing.close()

    def close(self) -> None:
        """Close all lines."""
        for version in list(self._open):
            self._drop(version)


class Lines:
    """Links of several runs over one connection, which is opened with the first."""

    def __init__(self, credentials: Credentials, notify: Notify) -> None:
        self._credentials, self._notify = credentials, notify
        self._connection: NatsConnection | None = None

    def __call__(self, run: str, notify: Notify) -> AbstractContextManager[Link]:
        """The link of a run; waits for a server that is not up yet."""
        if self._connection is None:
            self._connection = NatsConnection(self._credentials, self._notify)
            self._connection.open()
        return linked(self._credentials, run, notify, self._connection)

    @property
    def up(self) -> bool:
        """Whether the server can be reached right now."""
        return self._connection is not None and self._connection.up

    def close(self) -> None:
        """Leave the server; whoever waits for it in another thread is let go."""
        if self._connection is not None:
            self._connection.close()
