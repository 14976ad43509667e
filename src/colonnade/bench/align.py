"""The alignment benchmark: real processes and a real server that share the cores of one machine.

Every process imports what it needs, makes up its ids, connects and says that it is ready; then the clock
runs from the common start until the last of them has written its files.
"""

from __future__ import annotations

import contextlib
import logging
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection as Pipe
from multiprocessing.context import SpawnProcess
from pathlib import Path

from pydantic import Field

from colonnade.align.files import Alignment
from colonnade.align.label_holder import align_as_label_holder
from colonnade.align.line import silent
from colonnade.align.party import align_as_party
from colonnade.align.settings import AlignSettings, JoinSettings
from colonnade.bench.catalogue import Bench
from colonnade.bench.clock import available_cores
from colonnade.bench.nats_server import NatsServer
from colonnade.bench.settings import Notify, Options
from colonnade.config import Settings, build
from colonnade.deploy.line import LinkLine, open_line
from colonnade.errors import ColonnadeError, DataError, LinkError
from colonnade.identity.credentials import Connection, Credentials
from colonnade.wire.messages import COORDINATOR

NAME = "bench"
PATIENCE = 60.0  # seconds without progress
START = 120.0  # seconds for a process to get ready
LONGEST = 3600.0  # seconds for one alignment


class AlignBenchSettings(Settings):
    """Sizes of the alignment benchmark."""

    ids: int = Field(100_000, ge=10, description="ids of each side, for seconds_2 and seconds_3")
    large: int = Field(1_000_000, ge=0, description="ids of each side, for seconds_1m; 0 leaves it out")
    repeats: int = Field(3, ge=1, description="alignments of which seconds_2 and seconds_3 are the median")
    workers: int = Field(0, ge=0, description="worker threads of each process; 0: as many as cores")


def run_align(bench: Bench, options: Options, notify: Notify) -> dict[str, float | None]:
    """Seconds for one party, for two, and for one party with many ids."""
    settings = build(AlignBenchSettings, bench.tables.get("align", {}), "align")
    workers = settings.workers or options.threads or available_cores()
    n, repeats = settings.ids, settings.repeats
    cases = [("seconds_2", n, 1, repeats), ("seconds_3", n, 2, repeats), ("seconds_1m", settings.large, 1, 1)]
    results: dict[str, float | None] = {}
    for key, ids, parties, times in cases:
        if ids:
            notify(f"{key}: {ids:,} ids at the label holder and at each of {parties} parties")
            taken = [measure(ids, parties, workers) for _ in range(times)]
            notify(f"{key}: " + ", ".join(f"{seconds:.1f}" for seconds in taken))
            results[key] = statistics.median(taken)
            if times > 1:
                results[f"{key}_spread"] = max(taken) - min(taken)
    return results


def measure(ids: int, parties: int, workers: int) -> float:
    """Seconds of one alignment, from the common start until all files are written."""
    names = tuple(f"party_{number}" for number in range(1, parties + 1))
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        connections = stack.enter_context(NatsServer(folder / "nats", names)).connections()
        tasks = [
            _Task(name, names, ids, workers, folder / name, connection) for name, connection in connections.items()
        ]
        ends = {task.name: stack.enter_context(_started(task)) for task in tasks}
        _told(ends, START)
        start = time.perf_counter()
        for end in ends.values():
            end.send("go")
        rows = _told(ends, LONGEST)
        taken = time.perf_counter() - start
    expected = ids - parties * (ids // 10)
    if set(rows.values()) != {expected}:
        raise DataError(f"the alignment found {rows} rows instead of {expected}")
    return taken


@dataclass(frozen=True)
class _Task:
    """What one process is to do."""

    name: str
    parties: tuple[str, ...]
    ids: int
    workers: int
    folder: Path
    connection: Connection

    def made_up(self) -> list[str]:
        """The ids of this side; the first party lacks a tenth of the label holder's, the second two tenths."""
        place = 0 if self.name == COORDINATOR else self.parties.index(self.name) + 1
        start = place * (self.ids // 10)
        return [f"customer-{number:09d}" for number in range(start, start + self.ids)]


@contextlib.contextmanager
def _started(task: _Task) -> Iterator[Pipe]:
    """A process that carries out the task, ended when nobody needs it any more."""
    context = get_context("spawn")
    here, there = context.Pipe()
    process: SpawnProcess = context.Process(target=_carry_out, args=(task, there), daemon=True)
    process.start()
    there.close()
    try:
        yield here
    finally:
        process.join(2.0)
        process.terminate()
        process.join()


def _told(ends: Mapping[str, Pipe], patience: float) -> dict[str, int]:
    """What each process says next: a number; `LinkError` if it says why it cannot go on, or ends."""
    told = {}
    for name, end in ends.items():
        try:
            answer = end.recv() if end.poll(patience) else f"it said nothing for {patience:g} seconds"
        except EOFError:
            answer = "it ended"
        if not isinstance(answer, int):
            raise LinkError(f"the process of {name} cannot go on: {answer}")
        told[name] = answer
    return told


def _carry_out(task: _Task, end: Pipe) -> None:
    """In the process: get ready, wait for the start, align, say how many rows all hold."""
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # it warns of every TLS connection that is closed
    try:
        credentials, ids = Credentials.load(task.connection), task.made_up()
        with open_line(credentials, NAME, silent, task.parties) as line:
            end.send(0)
            end.recv()
            end.send(_align(line, credentials, ids, task).complete)
    except ColonnadeError as error:
        end.send(str(error))


def _align(line: LinkLine, credentials: Credentials, ids: list[str], task: _Task) -> Alignment:
    if task.name == COORDINATOR:
        holder = AlignSettings(name=NAME, parties=task.parties, patience=PATIENCE)
        return align_as_label_holder(line, credentials, holder, ids, task.folder, task.workers)
    joiner = JoinSettings(name=NAME, patience=PATIENCE)
    return align_as_party(line, credentials, joiner, ids, task.folder, task.workers)
