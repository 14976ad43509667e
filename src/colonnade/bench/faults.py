"""Runs whose processes are killed at random moments, held against one that was left in peace.

Server, coordinator and parties get SIGKILL at seeded random moments, spread over the training, and are started
again with the same command. A run counts as identical if every party's model, the coordinator's model, every
ledger and the score on the test rows are those of the undisturbed run. The noise is seeded, because hashes of
fresh noise could not be compared; this is simulation in that one respect.
"""

from __future__ import annotations

import time
from pathlib import Path

from pydantic import Field

from colonnade.bench.catalogue import Bench
from colonnade.bench.disturb import Kills, play
from colonnade.bench.fault_cases import CASES, Sizes, run_cases
from colonnade.bench.nats_server import NatsServer
from colonnade.bench.organisations import Trial
from colonnade.bench.settings import Notify, Options
from colonnade.config import Settings, build
from colonnade.errors import ConfigError, LinkError
from colonnade.randomness import stream
from colonnade.wire.messages import COORDINATOR


class FaultSettings(Settings):
    """Sizes of the fault benchmark."""

    runs: int = Field(20, ge=0, description="disturbed runs")
    kills: int = Field(10, ge=1, description="SIGKILLs per run")
    parties: int = Field(3, ge=1, description="parties, on the bundled digits")
    rounds: int = Field(40, ge=2, description="rounds of training")
    pause: float = Field(0.05, ge=0, description="seconds that each party takes longer per round")
    noise: float = Field(0.05, gt=0, description="standard deviation of the seeded noise")
    cases: tuple[str, ...] = Field(tuple(CASES), description="other faults, one run each (`fault_cases.py`)")
    case_rounds: int = Field(120, ge=6, description="rounds of training in each of them")
    coordinator_kills: int = Field(6, ge=1, description="SIGKILLs of the label holder's process, in float32")
    messages: int = Field(100_000, ge=1, description="garbage messages at a party, and as many at the label holder")


def run_faults(bench: Bench, options: Options, notify: Notify) -> dict[str, float | None]:
    """How many of the disturbed runs end exactly like the undisturbed one."""
    settings = build(FaultSettings, bench.tables.get("faults", {}), "faults")
    names = [f"party_{number}" for number in range(1, settings.parties + 1)]
    sizes = _sizes(settings, names)
    started, identical, kills = time.monotonic(), 0, 0

    def trial(folder: Path, server: NatsServer) -> Trial:
        return _trial(settings, folder, server)

    notify("a run that is left in peace")
    peaceful, _ = play(names, trial, None)
    for number in range(settings.runs):
        try:
            kills_of_run = Kills(stream(number, "kills"), settings.kills, settings.rounds, settings.pause)
            ending, killed = play(names, trial, kills_of_run)
        except LinkError as error:  # one that never ends is not identical, and the others still count
            notify(f"run {number + 1} of {settings.runs}: {error}")
            continue
        identical += ending == peaceful
        kills += killed
        notify(f"run {number + 1} of {settings.runs}: {killed} kills, {identical} identical so far")
    others = run_cases(settings.cases, sizes, notify)
    spent = time.monotonic() - started
    return {"identical_runs": identical, "runs": settings.runs, "kills": kills, **others, "seconds": spent}


def _sizes(settings: FaultSettings, names: list[str]) -> Sizes:
    if strange := next((name for name in settings.cases if name not in CASES), None):
        raise ConfigError(f"[faults] cases names {strange!r}; known: {', '.join(CASES)}")
    return Sizes(tuple(names), settings.case_rounds, settings.coordinator_kills, settings.messages)


def _trial(settings: FaultSettings, folder: Path, server: NatsServer) -> Trial:
    return Trial(
        folder=folder,
        run="faults",
        connections={name: server.connection(name) for name in (COORDINATOR, *server.parties)},
        data={"set": "digits", "parties": settings.parties},
        method={"name": "vimadmm", "local_steps": 2},
        model={"hidden": 10, "embedding": 6},
        training={
            "rounds": settings.rounds, "dtype": "float64", "evaluate_every": 5, "schedule": {"batch": 200},
            "stopping": {"drop": 1e9},
        },
        noise=settings.noise,
        pause=dict.fromkeys(server.parties, settings.pause),
    )  # fmt: skip
