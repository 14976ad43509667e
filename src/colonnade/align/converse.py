"""The loop both sides run: receive a notice, take finished work, notice when nothing happens any more."""

from __future__ import annotations

import time
from typing import Protocol

from colonnade.align.line import Line
from colonnade.align.workers import Workers
from colonnade.errors import LinkError
from colonnade.wire.notice import Notice

TICK = 0.05  # seconds; finished work waits at most so long before it is sent


class Role(Protocol):
    """One side of an alignment, moved by what it receives and by what its workers made."""

    @property
    def finished(self) -> bool:
        """Whether there is nothing left to do."""
        ...

    def receive(self, notice: Notice) -> None:
        """Take in one notice."""
        ...

    def made(self, tag: tuple[str, str, int], points: bytes) -> None:
        """Take in one piece of finished work."""
        ...

    def awaited(self) -> str:
        """Whom this side is waiting for, as a sentence has it."""
        ...


def converse(role: Role, line: Line, workers: Workers, patience: float) -> None:
    """Until the role is finished; `LinkError` if nothing moves for `patience` seconds."""
    moved = time.monotonic()
    while not role.finished:
        results = workers.finished()
        for tag, points in results:
            role.made(tag, points)
        notice = None if role.finished else line.receive(TICK)
        if notice is not None:
            role.receive(notice)
        if results or notice is not None:
            moved = time.monotonic()
        elif time.monotonic() - moved > patience:
            raise LinkError(
                f"{role.awaited()} said nothing for {patience:g} seconds; see that it runs, then start the alignment "
                "again on all sides"
            )
