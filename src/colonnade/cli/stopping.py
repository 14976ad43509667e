"""How commands that work for long are stopped from outside: Ctrl-C, or SIGTERM, as service managers and `kill` send."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

INTERRUPTED, TERMINATED = 130, 143  # exit statuses: 128 and the number of the signal


class Terminated(BaseException):
    """SIGTERM came."""


@contextmanager
def terminable() -> Iterator[None]:
    """Inside, SIGTERM raises `Terminated`. Ctrl-C raises `KeyboardInterrupt` as everywhere.

    Python handles signals in the main thread only; elsewhere nothing is changed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def on_term(number: int, frame: FrameType | None) -> None:
        raise Terminated

    before = signal.signal(signal.SIGTERM, on_term)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def told_of(stop: BaseException) -> tuple[str, int]:
    """How a stop is told, and the exit status that belongs to it."""
    if isinstance(stop, Terminated):
        return "stopped by SIGTERM", TERMINATED
    return "interrupted", INTERRUPTED
