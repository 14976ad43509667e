"""Alignments that a party's process takes part in by itself: one at a time, as often a day as its policy allows.

Each is a disclosure: the label holder learns which of its ids the party has. So every one that is agreed to is counted
in a file before anything is blinded, and one too many is refused, with the reason, to the label holder.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from colonnade.align import messages as m
from colonnade.deploy.aligning import How, align_party
from colonnade.deploy.policy import Policy
from colonnade.deploy.sections import PartyFile
from colonnade.engines.connection import NatsConnection
from colonnade.engines.message import Notify, named
from colonnade.errors import ColonnadeError, Refused, RunError, Unwritable

COUNT = "alignments.jsonl"  # in the folder of the process
A_DAY = 86400.0  # seconds
PATIENCE = 120.0  # seconds without any progress before giving up


class Aligner:
    """A party's part in alignments; `done` is called, in the thread of the alignment, when there are new rows."""

    def __init__(self, read: PartyFile, policy: Callable[[], Policy], notify: Notify, done: Callable[[], None]) -> None:
        self._read, self._policy, self._notify, self._done = read, policy, notify, done
        self._file = read.party.folder / COUNT
        self._thread: threading.Thread | None = None

    def invited(self, name: str, more: bool, connection: NatsConnection | None) -> None:
        """Begin to take part, unless it does already, or the policy leaves it to a person."""
        if self._thread is not None and self._thread.is_alive():
            return
        if not self._policy().alignments_per_day:
            command = f"colonnade align party.toml --set party.run={name}{' --more' if more else ''}"
            self._notify("invited", run=name, note=f"to an alignment, which a person has to start here: {command}")
            return
        self._notify("invited", run=name, note="to an alignment")
        work = (name, more, connection)
        self._thread = threading.Thread(target=self._work, args=work, name=f"alignment {name}", daemon=True)
        self._thread.start()

    def _work(self, name: str, more: bool, connection: NatsConnection | None) -> None:
        tell = named(name, self._notify)

        def quiet(event: str, **facts: object) -> None:
            if event != "progress":
                tell(event, **facts)

        try:
            how = How(more, PATIENCE, workers=1)
            made, _ = align_party(self._read, name, how, quiet, self._agree, connection)
        except ColonnadeError as error:
            tell("not aligned", reason=str(error))
            return
        tell("aligned", rows=len(made.ids), digest=made.digest[:12])
        self._done()

    def _agree(self, proposal: m.Proposal) -> None:
        """Count it, or refuse it."""
        policy, now = self._policy(), time.time()
        today = [line for line in _read(self._file) if now - float(line["at"]) < A_DAY]
        if len(today) >= policy.alignments_per_day:
            raise Refused(
                f"alignments_per_day: {len(today)} alignments were agreed to in the last 24 hours, the policy allows "
                f"{policy.alignments_per_day}; {policy.where('alignments_per_day', len(today) + 1)}"
            )
        _append(self._file, {"at": now, "name": proposal.name, "ids": proposal.ids, "extends": proposal.extends})


def _read(path: Path) -> list[dict[str, float]]:
    if not path.exists():
        return []
    try:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        if not all(isinstance(line["at"], (int, float)) for line in lines):
            raise ValueError("a line without its time")
        return lines
    except (OSError, ValueError, KeyError, TypeError) as error:
        told = f"{path} cannot be read ({error}), so nobody knows how many alignments there were; move it away"
        raise RunError(told) from None


def _append(path: Path, line: dict[str, object]) -> None:
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise Unwritable(f"{path} cannot be written ({error.strerror}); nothing was sent") from None
