"""A training process for the kill tests; `main` is what it runs.

`death` is "never", or "sql:N" to die at the N-th statement sent to the store (so also in the middle of a
commit), or "file:N" to die while the N-th file of the finished run is half written.
"""

from __future__ import annotations

import os
import signal
import time
from multiprocessing.connection import Connection
from pathlib import Path

import torch

import colonnade.run
import colonnade.saved
from colonnade.data.sets import load_set
from colonnade.fit import Progress, fit, resume
from colonnade.methods import make_method
from colonnade.methods.base import Method
from colonnade.models.encoders import ModelSettings
from colonnade.store import Store
from tests.mechanisms import Noise

PAUSE = 0.02  # seconds per round: slow enough to be hit while it trains
FEDERATION = load_set("digits", parties=4)  # here, so that a forked process need not read it again
TRAINING = {"rounds": 24, "evaluate_every": 2, "checkpoint_every": 3, "seed": 4, "stopping": {"drop": 1.0}}
SCHEDULES = {"vimadmm": {"batch": 200, "participation": 0.5}}
MODEL = ModelSettings(hidden=10, embedding=6)


def method(name: str) -> Method:
    made: Method = make_method(name, {"local_steps": 2})
    return made


def mechanism(name: str) -> Noise | None:
    """VIMADMM with noise and half of the parties speaking; the others plain."""
    return Noise(0.05) if name == "vimadmm" else None


def train(folder: Path, name: str, how: str, pause: float = PAUSE) -> None:
    def watch(progress: Progress) -> None:
        time.sleep(pause)

    if how == "resume":
        resume(folder, FEDERATION, mechanism=mechanism(name), watch=watch)
        return
    schedule = SCHEDULES.get(name, {"batch": 200})
    fit(
        FEDERATION, method(name), mechanism=mechanism(name), out=folder, watch=watch,
        model=MODEL, schedule=schedule, **TRAINING,
    )  # fmt: skip


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_at_statement(last: int) -> None:
    opened, left = Store.__init__, [last]

    def count(statement: str) -> None:
        left[0] -= 1
        if left[0] == 0:
            die()

    def init(self: Store, path: Path) -> None:
        opened(self, path)
        self._db.set_trace_callback(count)

    Store.__init__ = init  # type: ignore[method-assign]


def die_at_file(last: int) -> None:
    write, left = colonnade.saved.replace_file, [last]

    def half(path: Path, content: bytes) -> None:
        left[0] -= 1
        if left[0] == 0:
            path.with_name(path.name + ".part").write_bytes(content[: len(content) // 2])
            die()
        write(path, content)

    colonnade.saved.replace_file = colonnade.run.replace_file = half


def main(folder: str, name: str, how: str, death: str, started: Connection) -> None:
    torch.set_num_threads(1)
    kind, _, number = death.partition(":")
    if kind == "sql":
        die_at_statement(int(number))
    elif kind == "file":
        die_at_file(int(number))
    started.send(True)  # the killer's clock begins here, not while Python starts
    train(Path(folder), name, how)
