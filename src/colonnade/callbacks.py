"""Callbacks: objects that are told of every round and of the end of a training, and may ask it to stop.

A callback is any object with `on_round(progress)`, `on_end(run)` or both:

>>> class FirstTen:
...     def on_round(self, progress):
...         return progress.round == 10

`on_round` gets a `Progress` after each round, and once more when the final model was evaluated; when it returns True,
or calls `progress.stop()`, training ends after that round and keeps its best one. `on_end` gets the finished `Run`,
after it was saved, also where training diverged; it is not called where training ended in an error or was interrupted.
Callbacks are called in their order, in the process that called `fit`; what they raise ends the training.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from colonnade.errors import ConfigError, Unwritable
from colonnade.live import figures

if TYPE_CHECKING:
    from colonnade.progress import Progress
    from colonnade.run import Run


@runtime_checkable
class OnRound(Protocol):
    """A callback that is told of every round."""

    def on_round(self, progress: Progress) -> bool | None:
        """After each round; True: stop."""


@runtime_checkable
class OnEnd(Protocol):
    """A callback that is told of the end."""

    def on_end(self, run: Run) -> object:
        """After the end, with the best round kept."""


Callback = OnRound | OnEnd


def check_callbacks(given: Iterable[Any]) -> tuple[Callback, ...]:
    """The callbacks, if they are some.

    Raises:
        ConfigError: one has neither function, or is a class and not an object.
    """
    if not isinstance(given, Iterable) or isinstance(given, (str, bytes)):
        raise ConfigError(f"callbacks needs a list, e.g. callbacks=[RoundLog('rounds.jsonl')]; got {given!r}")
    callbacks = tuple(given)
    for one in callbacks:
        if isinstance(one, type):
            raise ConfigError(f"callbacks needs objects; got the class {one.__name__}: say {one.__name__}(...)")
        if not isinstance(one, (OnRound, OnEnd)):
            hint = "; a function of the progress is given as watch=" if callable(one) else ""
            raise ConfigError(f"a callback has on_round(progress) or on_end(run); got {one!r}{hint}")
    return callbacks


class RoundLog:
    """Writes a JSON line per call of `on_round`: round, score, best, bytes, seconds; under noise the epsilon so far.

    A file that is there already is added to, so that a resumed run goes on in it.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def on_round(self, progress: Progress) -> None:
        """Add a line."""
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(figures(progress)) + "\n")
        except OSError as error:
            raise Unwritable(f"{self.path} cannot be written ({error.strerror}); see to the folder") from None


class TimeLimit:
    """Stops a training after so many seconds, counted from its first round; the best round until then is kept."""

    def __init__(self, seconds: float) -> None:
        if not seconds > 0:
            raise ConfigError(f"TimeLimit needs seconds above 0; got {seconds!r}")
        self.seconds = seconds
        self._until: float | None = None

    def on_round(self, progress: Progress) -> bool:
        """Whether time is up."""
        now = time.monotonic()
        if self._until is None:
            self._until = now + self.seconds
        return now >= self._until

    def on_end(self, run: Run) -> None:
        """The next training has its own time."""
        self._until = None
