"""Several trainings, one folder each: what is finished is left alone, what was interrupted goes on, the rest starts.

One after the other in this process, or several at a time in processes of their own. A process that dies takes nothing
with it but the rounds since its last checkpoint.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import queue
import signal
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from colonnade.errors import ColonnadeError, DoubtfulScore, RowsLeftOut, RunError, ShortTraining

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerContext, SpawnContext
    from multiprocessing.process import BaseProcess

    from colonnade.engines.own_code import OwnCode
    from colonnade.federation import Federation
    from colonnade.job import Job
    from colonnade.progress import Watcher
    from colonnade.record import RunRecord, Sections
    from colonnade.run import Run

ELSEWHERE = ("device", "checkpoint_every")  # training settings that say where, not what
PROCESS_BYTES = 1e9  # what a process with torch in it takes before it has any data
COPIES = 3  # of the data: as loaded, scaled, and what is remembered row by row
PATIENCE = 0.5  # seconds between looks at the processes


@dataclass(frozen=True)
class Entry:
    """One training of a comparison; `folder` is inside the comparison's."""

    folder: str
    job: Job
    own_code: OwnCode | None = field(default=None, repr=False)  # by which it would train; None: not looked at yet

    def on(self, federation: Federation) -> Entry:
        """The same with its length in rounds of the training rows; `federation` is of the whole comparison."""
        mine = self.job.part_of(federation)
        return replace(self, job=self.job.on(mine), own_code=self.job.own_code(mine))


State = Literal["finished", "begun", "new"]
Watching = Callable[[str, int], "Watcher | None"]  # who is told of a training of that name and so many rounds
Watches = Mapping[str, "Watcher | None"]
Done = Callable[[str, "Run"], None]
Around = Callable[["Path | None"], AbstractContextManager[None]]  # what stands around a training; None: around all


def state_of(entry: Entry, place: Path) -> State:
    """How far the training in a folder is.

    Raises:
        RunError: the folder holds a run of other settings, or one that another process trains.
    """
    from colonnade.folder import in_use
    from colonnade.run import RECORD, STORE, read_record
    from colonnade.store import Store

    if (place / RECORD).exists():
        _check_same(entry, read_record(place), place)
        return "finished"
    if not (place / STORE).exists():
        return "new"
    if busy := in_use(place):
        raise RunError(f"{busy}; wait until it is done, or choose another --out")
    store = Store(place / STORE)
    try:
        if not store.begun:
            return "new"
        _check_same(entry, store.about(), place)
    finally:
        store.close()
    return "begun"


def of_rows(fingerprint: Any) -> dict[str, Any]:
    """What stands in place of a [data] section where the federation was made in Python."""
    return {"rows": fingerprint}


def _check_same(entry: Entry, found: Mapping[str, Any], place: Path) -> None:
    """Refuse to go on with a run that is another one."""
    from colonnade.engines.own_code import changed
    from colonnade.search_space import flat

    job = entry.job
    wanted = {
        "method": {"name": job.method.name, "settings": job.method.model_dump()},
        "model": job.model.model_dump(),
        "training": job.training.model_dump(),
        "privacy": job.privacy.model_dump(),
    }
    own = of_rows(job.data["rows"]) if "rows" in job.data else job.data
    mine = flat({**json.loads(json.dumps(wanted)), "data": own})
    config, about = found.get("config"), found["about"]
    data = of_rows(about.get("data")) if config is None else config.get("data", {"set": "digits"})
    theirs = flat({**{key: found[key] for key in wanted}, "data": data})
    for key in sorted(mine.keys() | theirs.keys()):
        if key.rpartition(".")[2] in (*ELSEWHERE, "data_dir"):
            continue
        if mine.get(key) != theirs.get(key):
            told = f"{key} = {theirs.get(key)!r}, now {mine.get(key)!r}"
            raise RunError(f"{place} holds a run of other settings ({told}); choose another --out, or remove it")
    if entry.own_code is not None and (told := changed(found, entry.own_code)):
        raise RunError(f"{place} holds a run of other code: {told}; choose another --out, or remove it")


def train_all(
    entries: Sequence[Entry],
    federation: Federation,
    folder: Path,
    jobs: int = 1,
    watching: Watching = lambda name, rounds: None,
    around: Around = lambda place: nullcontext(),
    done: Done = lambda name, run: None,
) -> list[RunRecord]:
    """Train what is not finished yet, each into its own folder; the records of all.

    Args:
        entries: what to train.
        federation: on which data.
        folder: of the folders.
        jobs: how many at a time, in processes of their own if there are several.
        watching: who is told of each.
        around: what stands around each, or around all where they are in processes, e.g. to catch an interruption.
        done: is told of each run that this process has trained.
    """
    from colonnade.run import read_record

    entries = [entry.on(federation) for entry in entries]
    states = {entry.folder: state_of(entry, folder / entry.folder) for entry in entries}
    open_ones = [entry for entry in entries if states[entry.folder] != "finished"]
    records: dict[str, RunRecord] = {}
    if jobs > 1 and len(open_ones) > 1:
        with around(None):
            _in_processes(open_ones, federation, folder, jobs, watching)
    else:
        for entry in open_ones:
            place, watch = folder / entry.folder, watching(entry.folder, entry.job.training.rounds)
            with around(place):
                run = train_one(entry.job, entry.job.part_of(federation), place, watch, states[entry.folder])
                records[entry.folder] = run.record()
                done(entry.folder, run)
    return [records.get(entry.folder) or read_record(folder / entry.folder) for entry in entries]


def train_one(job: Job, federation: Federation, place: Path, watch: Watcher | None, state: State) -> Run:
    """Start a run, or go on with it."""
    from colonnade.fit import resume

    if state == "begun":
        return resume(place, federation, encoders=job.encoders, watch=watch)
    return job.fit(federation, place, watch)


# -- several processes ------------------------------------------------------------------------


def affordable_jobs(wanted: int, runs: int, federation: Federation, device: str) -> int:
    """How many trainings may go on at a time; `wanted` 0: as many as cores and memory allow."""
    size = sum(party.columns.nelement() * party.columns.element_size() for party in federation.parties)
    fitting = max(1, int(_free_memory() // (PROCESS_BYTES + COPIES * size)))
    if not wanted:
        wanted = 1 if device.startswith("cuda") else _cores()  # trainings share a GPU's memory badly
    return max(1, min(wanted, runs, fitting))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _free_memory() -> float:
    """Bytes that could be taken; no limit where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(1024.0 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError, IndexError):
        return float("inf")


def _in_processes(
    entries: Sequence[Entry], federation: Federation, folder: Path, jobs: int, watching: Watching
) -> None:
    for text in dict.fromkeys(entry.job.shortfall(entry.job.part_of(federation)) for entry in entries):
        if text:
            warnings.warn(text, ShortTraining, stacklevel=2)
    context = _processes()
    news: multiprocessing.Queue[tuple[str, Any]] = context.Queue()
    watches = {entry.folder: watching(entry.folder, entry.job.training.rounds) for entry in entries}
    waiting, running = list(entries), dict[str, "BaseProcess"]()
    threads = max(1, _cores() // jobs)
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                entry = waiting.pop(0)
                what = (entry.job.tables, entry.folder, str(folder / entry.folder), threads, news, dict(os.environ))
                running[entry.folder] = context.Process(target=_work, args=what, daemon=True)
                running[entry.folder].start()
            _hear(news, watches)
            for name in [name for name, process in running.items() if not process.is_alive()]:
                _check_end(running.pop(name), name, folder, news, watches)
    finally:
        for process in running.values():
            process.terminate()
            process.join()
        news.close()


def _processes() -> ForkServerContext | SpawnContext:
    """Where processes come from: on Linux from one that has loaded torch, which takes seconds, once for all."""
    if sys.platform != "linux":
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["colonnade.fit", "colonnade.job"])
    return context


def _hear(news: Any, watches: Watches) -> None:
    """Tell the watchers all that has come, waiting a little for the first."""
    wait = PATIENCE
    while True:
        try:
            name, what = news.get(timeout=wait)
        except queue.Empty:
            return
        if isinstance(what, str):
            raise RunError(f"{name}: {what}")
        if (watch := watches[name]) is not None:
            watch(what)
        wait = 0.01


def _check_end(process: BaseProcess, name: str, folder: Path, news: Any, watches: Watches) -> None:
    from colonnade.run import RECORD

    process.join()
    _hear(news, watches)  # its last words
    if not (folder / name / RECORD).exists():
        raise RunError(
            f"the process of {folder / name} ended with status {process.exitcode} before it was done (memory?); "
            "the same command with fewer --jobs goes on where it was"
        )


def _work(tables: Sections, name: str, place: str, threads: int, news: Any, environment: Mapping[str, str]) -> None:
    """What a process does: one training, from its configuration."""
    os.environ.update(environment)  # as it is now, not as it was when the fork server started
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all; the parent ends this one
    for said in (ShortTraining, DoubtfulScore, RowsLeftOut):
        warnings.simplefilter("ignore", said)  # by the parent
    import torch

    from colonnade.job import read_job

    torch.set_num_threads(threads)
    try:
        job = read_job(tables)
        federation = job.federation()
        entry = Entry(name, job.on(federation))
        state = state_of(entry, Path(place))
        train_one(entry.job, federation, Path(place), lambda now: news.put((name, now)), state)
    except ColonnadeError as error:
        news.put((name, " ".join(str(error).split())))
    news.close()
    news.join_thread()
