"""Runs whose processes are killed at random moments, held against one that was left in peace.

Server, coordinator and parties get SIGKILL at seeded random moments, spread over the training, and are started
again with the same command. A run counts as identical if every party's model, the coordinator's model, every
ledger and the score on the test rows are those of the undisturbed run. The noise is seeded, because hashes of
fresh noise could not be compared; this is simulation in that one respect.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from colonnade.bench.catalogue import Bench
from colonnade.bench.nats_server import NatsServer
from colonnade.bench.organisations import Organisations, Trial
from colonnade.bench.settings import Options, Say
from colonnade.config import Settings, build
from colonnade.errors import LinkError
from colonnade.randomness import stream
from colonnade.wire.messages import COORDINATOR

SERVER = "nats-server"
PATIENCE = 180.0  # seconds until a run counts as stuck


class FaultSettings(Settings):
    """Sizes of the fault benchmark."""

    runs: int = Field(20, ge=1, description="disturbed runs")
    kills: int = Field(10, ge=1, description="SIGKILLs per run")
    parties: int = Field(3, ge=1, description="parties, on the bundled digits")
    rounds: int = Field(40, ge=2, description="rounds of training")
    pause: float = Field(0.05, ge=0, description="seconds that each party takes longer per exchange")
    noise: float = Field(0.05, gt=0, description="standard deviation of the seeded noise")


@dataclass(frozen=True)
class Ending:
    """What is left of a run: everything that must not depend on who was killed when."""

    score: float | None
    models: Mapping[str, str]  # fingerprints
    ledgers: Mapping[str, str]  # all releases, in order


def run_faults(bench: Bench, options: Options, say: Say) -> dict[str, float | None]:
    """How many of the disturbed runs end exactly like the undisturbed one."""
    settings = build(FaultSettings, bench.tables.get("faults", {}), "faults")
    started, identical, kills = time.monotonic(), 0, 0
    say("a run that is left in peace")
    peaceful, _ = one_run(settings, None)
    for number in range(settings.runs):
        try:
            ending, killed = one_run(settings, stream(number, "kills"))
        except LinkError as error:  # one that never ends is not identical, and the others still count
            say(f"run {number + 1} of {settings.runs}: {error}")
            continue
        identical += ending == peaceful
        kills += killed
        say(f"run {number + 1} of {settings.runs}: {killed} kills, {identical} identical so far")
    spent = time.monotonic() - started
    return {"identical_runs": identical, "runs": settings.runs, "kills": kills, "seconds": spent}


def one_run(settings: FaultSettings, kills: np.random.Generator | None) -> tuple[Ending, int]:
    """One training, with or without kills; how it ended, and how many processes were killed on the way."""
    names = tuple(f"party_{number}" for number in range(1, settings.parties + 1))
    with tempfile.TemporaryDirectory() as text, NatsServer(Path(text) / "nats", names) as server:
        organisations = Organisations(_trial(settings, Path(text) / "run", server))
        try:
            organisations.start()
            killed = _disturb(settings, organisations, server, kills) if kills is not None else 0
            _see_through(organisations)
        finally:
            organisations.stop()
        return _ending(organisations), killed


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


def _disturb(
    settings: FaultSettings, organisations: Organisations, server: NatsServer, random: np.random.Generator
) -> int:
    """Kill somebody whenever the training has got a little further; start whoever is dead again at once."""
    victims = [*organisations.names, SERVER]
    turns = np.sort(random.integers(0, settings.rounds, settings.kills))  # the rounds at which somebody dies
    killed = 0
    for turn in turns.tolist():
        if not _wait_for_round(organisations, turn):
            break
        time.sleep(float(random.uniform(0, 2 * settings.pause)))  # anywhere within the round
        victim = victims[int(random.integers(len(victims)))]
        if victim == SERVER:
            server.restart(kill=True)
        elif victim in organisations.running():
            organisations.kill(victim)
        else:
            continue  # it has said goodbye
        killed += 1
    return killed


def _wait_for_round(organisations: Organisations, number: int) -> bool:
    """Until the coordinator has got so far; false if the run is over before."""
    path, deadline = organisations.trial.place(COORDINATOR) / "said.jsonl", time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        _revive(organisations)
        lines = path.read_text().splitlines() if path.exists() else []
        rounds = [json.loads(line)["round"] for line in lines if '"event": "round"' in line and line.endswith("}")]
        if max(rounds, default=0) >= number:
            return True
        if not organisations.running():
            return False
        time.sleep(0.01)
    raise LinkError(f"a disturbed run did not come to round {number} within {PATIENCE:.0f} s")


def _revive(organisations: Organisations) -> None:
    for name, process in organisations.processes.items():
        if not process.is_alive() and process.exitcode != 0:
            if process.exitcode is not None and process.exitcode > 0:
                raise LinkError(f"{name} failed: {organisations.events(name)[-1:]}")
            organisations.start(name)


def _see_through(organisations: Organisations) -> None:
    deadline = time.monotonic() + PATIENCE
    while organisations.running():
        _revive(organisations)
        if time.monotonic() > deadline:
            raise LinkError(f"a run did not end within {PATIENCE:.0f} s; still running: {organisations.running()}")
        time.sleep(0.02)
    _revive(organisations)  # whoever was killed in its very last moment
    if not organisations.wait(PATIENCE):
        raise LinkError("a run did not end")


def _ending(organisations: Organisations) -> Ending:
    place = organisations.trial.place
    record: dict[str, Any] = json.loads((place(COORDINATOR) / "run.json").read_text())
    models = {COORDINATOR: record["fingerprint"]}
    for name in organisations.names[1:]:
        models[name] = json.loads((place(name) / "party.json").read_text())["fingerprint"]
    ledgers = {name: (place(name) / "ledger.jsonl").read_text() for name in organisations.names}
    return Ending(record["result"]["test_score"], models, ledgers)
