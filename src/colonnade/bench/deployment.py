"""What it costs to be separate organisations: time per round over the in-process engine, and growth over many rounds.

The same federation, method and settings run three times: in one process by the engine that does the same work,
party by party, every message encoded and decoded (`loop`); stacked in one process, which separate organisations
cannot do; and as one process per organisation over a real NATS server on loopback, with mutual TLS, encrypted
payloads and every round committed to disk. The difference of the medians to the first is the overhead. All
processes share the cores of the machine, which separate organisations do not.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Collection, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from pydantic import Field

from colonnade.bench.catalogue import Bench
from colonnade.bench.nats_server import NatsServer
from colonnade.bench.organisations import Organisations, Trial
from colonnade.bench.settings import Notify, Options, Shape
from colonnade.config import Settings, build
from colonnade.errors import LinkError
from colonnade.fit import Trainer
from colonnade.wire.messages import COORDINATOR

WARM_UP = 10  # rounds that are not timed
PATIENCE = 600.0  # seconds for one training


class DeploymentSettings(Settings):
    """Sizes of the deployment benchmark."""

    parties: tuple[int, ...] = Field((2, 4, 14), min_length=1, description="numbers of parties to time")
    rounds: int = Field(60, ge=1, description="timed rounds, after a warm-up")
    repeats: int = Field(3, ge=1, description="trainings per number of parties, of both kinds in turn")
    shape: Shape = Field(
        Shape(columns=(8,), hidden=16, local_steps=1),
        description="the round that is timed: 1024 rows, 246 kB up per party, small networks",
    )
    memory_parties: int = Field(2, ge=1, description="parties of the long run")
    memory_shape: Shape = Field(
        Shape(columns=(16,), rows=1024, batch=256, local_steps=1, hidden=32, embedding=16),
        description="the round of the long run",
    )
    memory_rounds: tuple[int, int] = Field((100, 1000), description="rounds between which memory is compared")


def run_deployment(bench: Bench, options: Options, notify: Notify) -> dict[str, float | None]:
    """Overhead per round by number of parties; growth of memory and of what the server keeps."""
    settings = build(DeploymentSettings, bench.tables.get("deployment", {}), "deployment")
    results: dict[str, float | None] = {}
    for parties in settings.parties:
        shape = settings.shape.model_copy(update={"parties": parties})
        taken: dict[str, list[float]] = {"round": [], "loop": [], "stacked": []}
        for repeat in range(settings.repeats):
            notify(f"{parties} parties, {repeat + 1} of {settings.repeats}")
            taken["loop"].append(in_one_process(shape, settings.rounds, "loop"))
            taken["stacked"].append(in_one_process(shape, settings.rounds, "stacked"))
            taken["round"].append(as_organisations(shape, settings.rounds))
        medians = {kind: statistics.median(times) for kind, times in taken.items()}
        results[f"overhead_ms_m{parties}"] = medians["round"] - medians["loop"]
        results |= {f"{kind}_ms_m{parties}": value for kind, value in medians.items()}
    return results | growth(settings, notify)


def _method() -> dict[str, object]:
    return {"name": "vimadmm", "preset": "paper", "local_steps": 1}


def _trial(folder: Path, server: NatsServer, shape: Shape, rounds: int, holds: Collection[int] = ()) -> Trial:
    names = (COORDINATOR, *server.parties)
    return Trial(
        folder=folder,
        run="bench",
        connections={name: server.connection(name) for name in names},
        data={"made_up": shape.model_dump()},
        method={**_method(), "local_steps": shape.local_steps},
        model={"encoder": "mlp", "hidden": shape.hidden, "embedding": shape.embedding, "scale_columns": "never"},
        training={"rounds": rounds, "evaluate_every": 0, "schedule": {"batch": shape.batch}},
        holds=holds,
    )


def _names(shape: Shape) -> tuple[str, ...]:
    return tuple(f"party{number:04d}" for number in range(shape.parties))


def in_one_process(shape: Shape, rounds: int, engine: str) -> float:
    """Median milliseconds of a round of an in-process engine."""
    unused: Mapping[str, Any] = {}
    trial = Trial(
        Path(), "bench", unused, {"made_up": shape.model_dump()}, {**_method(), "local_steps": shape.local_steps},
        {"encoder": "mlp", "hidden": shape.hidden, "embedding": shape.embedding, "scale_columns": "never"},
        {"rounds": rounds + WARM_UP, "evaluate_every": 0, "schedule": {"batch": shape.batch}, "engine": engine},
    )  # fmt: skip
    u, times = trial.undertaking(), list[float]()
    trainer = Trainer.open(trial.federation(), u.method, u.training, u.model, None, None)
    trainer.train(None, lambda now: times.append(now.seconds))
    return _median(times, rounds)


def as_organisations(shape: Shape, rounds: int) -> float:
    """Median milliseconds of a round of separate processes."""
    with tempfile.TemporaryDirectory() as text, NatsServer(Path(text) / "nats", _names(shape)) as server:
        trial = _trial(Path(text) / "run", server, shape, rounds + WARM_UP)
        organisations = _finished(trial)
        return _median([e["seconds"] for e in organisations.events(COORDINATOR) if e["event"] == "round"], rounds)


def _median(ends: list[float], rounds: int) -> float:
    """Of the last `rounds` rounds before the closing one, from the seconds at which each ended."""
    taken = [later - earlier for earlier, later in pairwise(ends)]
    return 1e3 * statistics.median(taken[WARM_UP - 1 : WARM_UP - 1 + rounds])


def _finished(trial: Trial) -> Organisations:
    organisations = Organisations(trial)
    try:
        organisations.start()
        if not organisations.wait(PATIENCE) or organisations.failed():
            told = {name: organisations.events(name)[-1:] for name in organisations.names}
            raise LinkError(f"the training of the benchmark did not end: {told}")
        return organisations
    finally:
        organisations.stop()


# -- growth -----------------------------------------------------------------------------------


def growth(settings: DeploymentSettings, notify: Notify) -> dict[str, float | None]:
    """Resident memory gained by any process between two rounds, and what the server holds at the end."""
    first, last = settings.memory_rounds
    notify(f"memory of {settings.memory_parties + 2} processes from round {first} to round {last}")
    shape = settings.memory_shape.model_copy(update={"parties": settings.memory_parties})
    with tempfile.TemporaryDirectory() as text, NatsServer(Path(text) / "nats", _names(shape)) as server:
        organisations = Organisations(_trial(Path(text) / "run", server, shape, last + 1, (first, last)))
        try:
            organisations.start()
            before = _memory_at(organisations, server, first)
            after = _memory_at(organisations, server, last)
            if not organisations.wait(PATIENCE):
                raise LinkError("the long run of the benchmark did not end")
        finally:
            organisations.stop()
        left = next(e for e in organisations.events(COORDINATOR) if e["event"] == "left on the server")
    grown = {name: after[name] - before[name] for name in before}
    notify("grown by " + ", ".join(f"{name} {mb:.1f} MB" for name, mb in grown.items()))
    return {"memory_growth_mb": max(grown.values()), "stream_messages": left["messages"], "stream_bytes": left["bytes"]}


def _memory_at(organisations: Organisations, server: NatsServer, number: int) -> dict[str, float]:
    """Resident megabytes of every process when the coordinator has come to a round, where it waits to be measured."""
    path, deadline = organisations.trial.place(COORDINATOR) / "said.jsonl", time.monotonic() + PATIENCE
    while f'"round": {number},' not in (path.read_text() if path.exists() else ""):
        if time.monotonic() > deadline or COORDINATOR not in organisations.running():
            raise LinkError(f"the long run of the benchmark did not come to round {number}")
        time.sleep(0.05)
    processes = {name: process.pid for name, process in organisations.processes.items()}
    resident = {name: _resident(pid) for name, pid in {**processes, "nats-server": server.pid}.items() if pid}
    organisations.trial.go_on(number)
    return resident


def _resident(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith("VmRSS"))
