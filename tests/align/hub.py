"""A line in memory: every message is encoded and decoded, and a test may look at it, change it or repeat it."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from colonnade.align.label_holder import align_as_label_holder
from colonnade.align.line import Notify
from colonnade.align.party import align_as_party
from colonnade.align.settings import AlignSettings, JoinSettings
from colonnade.identity.credentials import Credentials
from colonnade.wire.messages import COORDINATOR
from colonnade.wire.notice import Notice, read_notice
from tests.processes import LONG

Change = Callable[[str, Notice], Iterable[Notice]]  # (to, notice) -> what arrives there


class Killed(BaseException):
    """SIGKILL: nothing is tidied up, nobody is told."""


@dataclass
class Hub:
    """Queues between names."""

    names: tuple[str, ...]
    change: Change = lambda to, notice: (notice,)
    sent: list[tuple[str, Notice]] = field(default_factory=list)  # everything that ever went over the wire

    def __post_init__(self) -> None:
        self.boxes: dict[str, queue.SimpleQueue[bytes]] = {name: queue.SimpleQueue() for name in self.names}

    def put(self, to: str, notice: Notice) -> None:
        payload = notice.payload
        everyone = [name for name in self.names if name != COORDINATOR]
        for name in everyone if to == "*" else [to]:
            for arriving in self.change(name, read_notice(payload)):
                self.boxes[name].put(arriving.payload)

    def line(self, me: str, dies_after: int | None = None) -> MemoryLine:
        return MemoryLine(me, self, dies_after)


@dataclass
class MemoryLine:
    """One end; dies when it is to send more than `dies_after` messages."""

    me: str
    hub: Hub
    dies_after: int | None = None
    sent: int = 0

    def send(self, to: str, notice: Notice) -> None:
        if self.sent == self.dies_after:
            raise Killed
        self.sent += 1
        self.hub.sent.append((to, notice))
        self.hub.put(to, notice)

    def receive(self, timeout: float) -> Notice | None:
        try:
            return read_notice(self.hub.boxes[self.me].get(timeout=timeout))
        except queue.Empty:
            return None


@dataclass
class Side:
    """One side in a thread of its own; what came of it."""

    name: str
    work: Callable[[], Any]
    outcome: Any = None
    error: BaseException | None = None

    def __post_init__(self) -> None:
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.outcome = self.work()
        except BaseException as error:
            self.error = error

    def wait(self) -> Side:
        self.thread.join(LONG)
        assert not self.thread.is_alive(), f"{self.name} does not end"
        return self


@dataclass
class Meeting:
    """Everything needed to let a label holder and parties align."""

    hub: Hub
    credentials: Mapping[str, Credentials]
    settings: AlignSettings
    folder: Path
    events: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)

    def notify(self, name: str) -> Notify:
        return lambda event, **facts: self.events.append((name, event, facts))

    def label_holder(self, ids: Sequence[str], dies_after: int | None = None) -> Side:
        line, folder = self.hub.line(COORDINATOR, dies_after), self.folder / COORDINATOR
        who, notify = self.credentials[COORDINATOR], self.notify(COORDINATOR)
        return Side(COORDINATOR, lambda: align_as_label_holder(line, who, self.settings, ids, folder, 1, notify))

    def party(self, name: str, ids: Sequence[str], dies_after: int | None = None, **options: Any) -> Side:
        line, folder = self.hub.line(name, dies_after), self.folder / name
        chosen = {"name": self.settings.name, "patience": self.settings.patience}
        settings = JoinSettings(**{**chosen, **options.pop("settings", {})})
        who, notify = self.credentials[name], self.notify(name)
        return Side(name, lambda: align_as_party(line, who, settings, ids, folder, 1, notify, **options))

    def all(self, ids: Sequence[str], others: Mapping[str, Sequence[str]]) -> dict[str, Side]:
        sides = [self.label_holder(ids), *(self.party(name, theirs) for name, theirs in others.items())]
        return {side.name: side.wait() for side in sides}

    def told(self, name: str, event: str) -> list[dict[str, Any]]:
        return [facts for who, what, facts in self.events if (who, what) == (name, event)]
