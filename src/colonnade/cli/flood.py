"""What comes again and again in a log: the first few lines, and then one line with a count.

A stranger who sends a hundred thousand messages that are refused, or a server that has lost its disk, must not fill
ours. Events that may come as often as somebody else likes are told a few times; from then on they are counted, and a
line says how many there were: after 10 seconds, then after 20, and so on up to every ten minutes, until it is quiet for
that long.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

REPEATED = {
    "absent", "asking again", "disconnected", "ignored", "logged", "reconnected", "refused", "refusing", "repeating",
    "repetition", "server", "started over", "waiting",
}  # fmt: skip
FEW = 3  # told one by one
SHORTEST, LONGEST = 10.0, 600.0  # seconds that are counted together
MOST = 256  # kinds that are told apart: who, in which run

Write = Callable[[str, Mapping[str, Any]], None]


@dataclass
class Kind:
    """One event of one sender in one run."""

    event: str
    since: float
    seconds: float = SHORTEST
    told: int = 0
    more: int = 0
    facts: Mapping[str, Any] = field(default_factory=dict)  # of the last one


class Flood:
    """Passes events on to `write`, those that repeat themselves in short. Calls come one at a time, under `lock`."""

    def __init__(self, write: Write, lock: threading.RLock) -> None:
        self._write, self._lock = write, lock
        self._kinds: dict[tuple[str, ...], Kind] = {}
        self._timer: threading.Timer | None = None

    def __call__(self, event: str, facts: Mapping[str, Any]) -> None:
        """One event."""
        now = time.monotonic()
        self._close_old(now)
        if event not in REPEATED:
            return self._write(event, facts)
        kind = self._kind(event, facts, now)
        if kind.told < FEW:
            kind.told += 1
            return self._write(event, facts)
        kind.more, kind.facts = kind.more + 1, facts
        return self._wake_up(now)

    def close(self) -> None:
        """Tell what was counted so far."""
        if self._timer is not None:
            self._timer.cancel()
        for kind in self._kinds.values():
            self._tell(kind, time.monotonic())
        self._kinds.clear()

    def _kind(self, event: str, facts: Mapping[str, Any], now: float) -> Kind:
        key: tuple[str, ...] = (event, *(str(facts.get(name)) for name in ("run", "party", "parties", "of")))
        if key not in self._kinds and len(self._kinds) >= MOST:
            key = (event,)
        return self._kinds.setdefault(key, Kind(event, now))

    def _close_old(self, now: float) -> None:
        for key, kind in list(self._kinds.items()):
            if now - kind.since < kind.seconds:
                continue
            if not kind.more:
                del self._kinds[key]  # it was quiet: the next one is news again
                continue
            self._tell(kind, now)
            kind.since, kind.seconds = now, min(2 * kind.seconds, LONGEST)

    def _tell(self, kind: Kind, now: float) -> None:
        if kind.more:
            counted = {"more": kind.more, "within": round(now - kind.since)}
            kind.more = 0
            self._write(kind.event, {**kind.facts, **counted})

    def _wake_up(self, now: float) -> None:
        """The count is told in time, also if nothing else ever happens."""
        if self._timer is None:
            due = min(kind.since + kind.seconds for kind in self._kinds.values() if kind.more)
            self._timer = threading.Timer(max(0.0, due - now) + 0.01, self._woken)
            self._timer.daemon = True
            self._timer.start()

    def _woken(self) -> None:
        with self._lock:
            self._timer = None
            now = time.monotonic()
            self._close_old(now)
            if any(kind.more for kind in self._kinds.values()):
                self._wake_up(now)
