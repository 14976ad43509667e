"""Warnings of a process that serves: columns or scores have moved far, or a retraining is due soon. Each once."""

from __future__ import annotations

import threading
from collections.abc import Hashable
from contextlib import suppress
from pathlib import Path

from colonnade.deploy.drift import column_drift, score_drift
from colonnade.deploy.export import DRIFT
from colonnade.deploy.sections import PartyFile
from colonnade.engines.message import Notify
from colonnade.errors import ColonnadeError
from colonnade.service.versions import used_folder
from colonnade.withdrawn import stamp

PATIENCE = 10.0  # seconds that a comparison may take to end
PAUSE = 30.0  # seconds between two looks at the table's file
DAYS = 30.0  # of predictions whose scores are looked at
SOON = 0.1  # of the time between two trainings, before the next one


class ColumnWatch:
    """A party's: whenever its table is another file, its columns are held against the last run's training rows.

    Column names are not for logs: the warning says how many, and which command says more.
    """

    def __init__(self, read: PartyFile, notify: Notify) -> None:
        self._read, self._notify = read, notify
        self._seen: Hashable = None
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work, name="drift", daemon=True)

    def __enter__(self) -> ColumnWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join(PATIENCE)  # it must not compute when the interpreter ends

    def _work(self) -> None:
        while not self._ending.wait(PAUSE):
            with suppress(ColonnadeError):  # a file that is being written, or no run yet: `colonnade drift` says so
                self.look()

    def look(self) -> None:
        """Tell of columns that have moved far, if the table or the last run is another than at the last look."""
        at = (stamp(self._read.party.table), _newest(self._read.party.folder))
        if at == self._seen or at[1] is None:
            return
        found = column_drift(self._read)
        self._seen = at
        if found.large:
            self._notify("drift", run=found.run, note=f"{found.summary()}: colonnade drift party.toml")


class ScoreWatch:
    """A label holder's: scores that have moved far, and a retraining that is due soon."""

    def __init__(self, folder: Path, notify: Notify) -> None:
        self._folder, self._notify = folder, notify
        self._told: set[Hashable] = set()
        self._looked = float("-inf")

    def look(self, clock: float, last: float | None, pause: float | None) -> None:
        """At a time: `last` ended the last training, and the schedule says so many seconds between two."""
        if last is not None and pause is not None:
            due = last + pause
            if due - SOON * pause <= clock < due and self._once(("due", last)):
                self._notify("retraining due", note=f"in {_span(due - clock)}, as the schedule says")
        if clock - self._looked < PAUSE:
            return
        self._looked = clock
        with suppress(ColonnadeError):
            folder = used_folder(self._folder)
            found = score_drift(folder, DAYS, clock)
            if found.large and self._once(("drift", folder)):
                told = f"{found.summary()}: colonnade drift coordinator.toml; a retraining may be due"
                self._notify("drift", run=found.run, note=told)

    def _once(self, what: Hashable) -> bool:
        news = what not in self._told
        self._told.add(what)
        return news


def _newest(folder: Path) -> Hashable:
    found = [stamp(place / DRIFT) for place in ([folder, *folder.iterdir()] if folder.is_dir() else ())]
    return max((one for one in found if one is not None), default=None)


def _span(seconds: float) -> str:
    for unit, size in (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} seconds"
