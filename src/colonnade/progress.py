"""How far a training is: what a watcher sees, and the line that people see who brought no watcher."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TextIO

from colonnade.callbacks import Callback, OnEnd, OnRound
from colonnade.live import Live

if TYPE_CHECKING:  # the command line needs the clock of this module for pages that must not load torch
    from colonnade.folder import Claim
    from colonnade.privacy.so_far import SoFar
    from colonnade.run import Run

SWITCH = "COLONNADE_PROGRESS"  # environment variable; 0: no progress is shown unless it is asked for
FIRST = 3.0  # seconds until the first line: short trainings stay silent
EVERY = 10.0  # seconds between lines where they stay, as in a file or a notebook
NOTE_EVERY = 1.0  # seconds between notes to other processes
REWRITE = 0.5  # seconds between changes of the line on a terminal


@dataclass(frozen=True)
class Progress:
    """What a watcher of the training sees after each round."""

    round: int
    rounds: int
    score: float | None  # of the last evaluation
    best: float | None
    bytes: int  # training bytes so far
    seconds: float
    spent: SoFar | None = None  # what training has cost each party, where uploads are noised
    noisy_labels: bool = False  # the scores are by protected labels, not by true ones
    metric: str = "accuracy"  # what the scores are
    scored: int | None = None  # after which round the last evaluation was
    _asked: list[bool] = field(default_factory=list, repr=False, compare=False)  # not empty: somebody asked to stop

    def stop(self) -> None:
        """Ask for an end after this round; the best round until then is kept."""
        self._asked.append(True)

    @property
    def stopping(self) -> bool:
        """Whether somebody asked for an end after this round."""
        return bool(self._asked)

    @property
    def epsilon(self) -> float | None:
        """The federation's figure so far: exact accountant, unit PARTY, training only."""
        return None if self.spent is None else self.spent.largest

    @property
    def judged(self) -> str:
        """What the scores are, and by which labels."""
        return f"agreement with noisy labels ({self.metric})" if self.noisy_labels else f"validation {self.metric}"

    @property
    def line(self) -> str:
        """One line for people: the round, the scores, what was sent, and the time it took."""
        score = "" if self.score is None else f", {self.judged} {self.score:.4f} (best {self.best:.4f})"
        return f"round {self.round} of {self.rounds}{score}, {self.bytes / 1e6:.1f} MB, {self.seconds:.0f} s"


Watcher = Callable[[Progress], bool | None]  # True: stop after this round and keep the best one


def switched_off() -> bool:
    """Whether the environment asks for silence."""
    return os.environ.get(SWITCH, "").lower() in {"0", "no", "off", "false"}


class Now:
    """A clock that is due for the first time after `first` seconds, then every `every` seconds."""

    def __init__(self, first: float, every: float) -> None:
        self._every, self._next = every, time.monotonic() + first

    def due(self) -> bool:
        """Whether it is time; asking after each round costs nothing."""
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + self._every
        return True


class Line:
    """The progress of a training on stderr: one line that is rewritten on a terminal, else a line now and then."""

    def __init__(self, name: str, stream: TextIO | None = None) -> None:
        self.name, self.stream = name, stream or sys.stderr
        self.terminal = self.stream.isatty()
        self.clock = Now(FIRST, REWRITE if self.terminal else EVERY)
        self._width = 0

    def __call__(self, now: Progress) -> None:
        """Show it."""
        text = f"{self.name}: {now.line}"
        if self.terminal:
            self.stream.write("\r" + text.ljust(self._width))
            self._width = len(text)
        else:
            self.stream.write(text + "\n")
        self.stream.flush()

    def close(self) -> None:
        """Leave the cursor on a line of its own."""
        if self._width:
            self.stream.write("\n")
            self.stream.flush()
            self._width = 0


@dataclass(frozen=True)
class Telling:
    """Who is told how far a training is: watchers after each round, people and other processes now and then."""

    watch: Watcher | None = None
    line: Line | None = None  # for people
    claim: Claim | None = None  # for processes that find the folder in use
    live: Live | None = None  # for those who watch the folder
    callbacks: Sequence[Callback] = ()
    noting: Now = field(default_factory=lambda: Now(0.0, NOTE_EVERY))

    @classmethod
    def of(
        cls,
        name: str,
        watch: Watcher | None,
        progress: bool | None = None,
        callbacks: Sequence[Callback] = (),
        claim: Claim | None = None,
    ) -> Telling:
        """With a line for people if they ask for it, or neither switched it off nor brought a watcher instead."""
        shown = progress if progress is not None else watch is None and not switched_off()
        live = Live(claim.folder) if claim is not None else None
        return cls(watch, Line(name) if shown else None, claim, live, callbacks)

    def asks_to_stop(self, progress: Callable[[], Progress]) -> bool:
        """Tell whoever is to be told now; whether one of the watchers has seen enough."""
        watchers = [
            *([self.watch] if self.watch else []),
            *(c.on_round for c in self.callbacks if isinstance(c, OnRound)),
        ]
        stop = False
        if watchers:
            now = progress()
            for watch in watchers:  # all are told, whoever has asked to stop
                stop = watch(now) is True or stop
            stop = stop or now.stopping
        if self.line is not None and self.line.clock.due():
            self.line(progress())
        if self.live is not None and self.live.due():
            self.live.round(progress())
        if self.claim is not None and self.noting.due():
            now = progress()
            self.claim.note(f"still training, round {now.round} of {now.rounds}")
        return stop

    def ended(self, run: Run) -> Run:
        """Tell the callbacks that training is over, and pass the run on."""
        if self.live is not None:
            self.live.ended(run.result["stop"])
        for callback in self.callbacks:
            if isinstance(callback, OnEnd):
                callback.on_end(run)
        return run

    def close(self) -> None:
        """Nothing more is told."""
        if self.line is not None:
            self.line.close()
