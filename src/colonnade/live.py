"""What a training leaves in its folder for those who watch it: `live.jsonl`, one JSON object per event.

    {"time": "2026-11-18T09:30:00Z", "event": "round", "round": 12, "rounds": 60, "score": 0.91, ...}
    {"time": "2026-11-18T09:30:05Z", "event": "waiting", "parties": ["telco"], "round": 13}

Whoever watches reads the file and never asks the process, so nothing that happens to a watcher reaches the training;
and a file that cannot be written is no reason to end one. Rounds are thinned: one line in a quarter of a second at
first, then ever fewer, so that a day of training is less than ten thousand lines. The record of a finished run has all
rounds.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Protocol

FILE = "live.jsonl"
OFTEN = 0.25  # seconds between two rounds in the file, at first
SHARE, SELDOM = 400, 10.0  # later: a fraction of the time since the first one, at most so many seconds
MOST = 20_000  # lines that one process adds beside rounds
LONGEST = 300  # letters of a text
LARGEST = 2**22  # bytes of the file; then it is put aside as live.jsonl.1, in place of an earlier one
TAIL = 2**20  # bytes from the end of the file that a watcher reads
# What is worth a line, of all that a process tells its operator. Waiting comes every second: a line when it changes.
TOLD = frozenset({
    "proposing", "agreed", "waiting", "absent", "disconnected", "reconnected", "closed", "listening", "reopened",
    "approval needed", "failed", "joined", "refusing", "server",
})  # fmt: skip
FACTS = ("parties", "party", "round", "note", "reason", "trouble", "seconds")  # of these, what a watcher needs

Event = Mapping[str, Any]  # a line as it was read


class Spent(Protocol):
    """What training has cost up to now, with what belongs to the figure."""

    @property
    def largest(self) -> float:
        """Over the parties."""

    @property
    def legend(self) -> str:
        """Accountant, unit, neighbours and delta."""


class Told(Protocol):
    """How far a training is (`progress.Progress`)."""

    @property
    def round(self) -> int:
        """The last one that is done."""

    @property
    def rounds(self) -> int:
        """Of so many."""

    @property
    def judged(self) -> str:
        """What the scores are."""

    @property
    def score(self) -> float | None:
        """Of the last evaluation."""

    @property
    def best(self) -> float | None:
        """Of all evaluations."""

    @property
    def scored(self) -> int | None:
        """After which round the last evaluation was."""

    @property
    def bytes(self) -> int:
        """Of training."""

    @property
    def seconds(self) -> float:
        """Of training."""

    @property
    def spent(self) -> Spent | None:
        """Where uploads are noised."""


def figures(now: Told) -> dict[str, object]:
    """A round as plain values; no epsilon without what belongs to it."""
    spent = now.spent
    return {
        "round": now.round,
        "rounds": now.rounds,
        "metric": now.judged,
        "score": now.score,
        "best": now.best,
        "scored": now.scored,
        "bytes": now.bytes,
        "seconds": round(now.seconds, 3),
        **({"epsilon": spent.largest, "epsilon_is": spent.legend} if spent is not None else {}),
    }


class Live:
    """Writes the file of one run; a thread of its own is not needed, a lock neither: one process at a time does."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        self._began = self._next = 0.0
        self._waiting: object = None
        self._left = MOST

    def due(self) -> bool:
        """Whether a round is worth a line now."""
        now = time.monotonic()
        self._began = self._began or now
        if now < self._next:
            return False
        self._next = now + min(SELDOM, max(OFTEN, (now - self._began) / SHARE))
        return True

    def round(self, now: Told) -> None:
        """A round is done."""
        self._waiting = None
        self._write("round", figures(now))

    def answered(self, number: int) -> None:
        """A party has carried out a request."""
        self._waiting = None
        if self.due():
            self._write("answered", {"round": number})

    def ended(self, why: str) -> None:
        """The training is over."""
        self._write("ended", {"reason": why[:LONGEST]})

    def tell(self, event: str, facts: Mapping[str, Any]) -> None:
        """Something that the operator is told of, if it is worth a line."""
        if event in ("answered", "predicted"):  # of training or not: this party is at work
            return self.answered(int(facts.get("round", 0)))
        if event not in TOLD or self._left <= 0:
            return None
        about = (event, _plain(facts.get("parties")), facts.get("note"), facts.get("trouble"))
        if event in ("waiting", "server") and about == self._waiting:
            return None
        self._waiting = about if event in ("waiting", "server") else None
        self._left -= 1
        kept = {n: _plain(facts[n]) for n in FACTS if facts.get(n) not in (None, "", []) and not is_step(n, facts[n])}
        return self._write(event, kept)

    def telling(self, notify: Callable[..., None]) -> Callable[..., None]:
        """A function that tells both: the operator, and whoever watches."""

        def tell(event: str, **facts: Any) -> None:
            self.tell(event, facts)
            notify(event, **facts)

        return tell

    def _write(self, event: str, facts: Mapping[str, object]) -> None:
        line = json.dumps({"time": stamp(), "event": event, **facts})
        with suppress(OSError):
            with self.path.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
                size = file.tell()
            if size > LARGEST:  # a party answers predictions for months
                self.path.replace(self.path.with_name(f"{FILE}.1"))


def is_step(name: str, value: Any) -> bool:
    """Whether a fact is a round below 1: a step of the agreement, whose number says nothing to people."""
    return name == "round" and isinstance(value, int) and value < 1


def stamp() -> str:
    """This moment by this machine's clock, in UTC."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z")


def read_live(folder: Path) -> list[Event]:
    """What the file says, the oldest first; of a long one the end. A line that is not whole (yet) is left out."""
    try:
        with (folder / FILE).open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - TAIL))
            lines = file.read(TAIL).split(b"\n")
    except OSError:
        return []
    found: list[Event] = []
    for line in lines[1 if size > TAIL else 0 :]:
        with suppress(ValueError):
            event = json.loads(line)
            if isinstance(event, dict) and isinstance(event.get("event"), str):
                found.append(event)
    return found


def _plain(value: object) -> object:
    """A fact that may come from somebody else: it has an end, and no line begins in it."""
    if isinstance(value, str):
        return "".join(letter if letter.isprintable() else "?" for letter in value[:LONGEST])
    if isinstance(value, Sequence):
        return [_plain(one) for one in list(value)[:200]]
    return value if isinstance(value, (int, float)) else str(value)[:LONGEST]
