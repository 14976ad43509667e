"""Runs of separate organisations in which somebody is killed at random moments; what is left of them at the end.

Server, coordinator and parties get SIGKILL at seeded random moments, spread over the training, and are started
again with the same command.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from colonnade.bench.nats_server import NatsServer
from colonnade.bench.organisations import Organisations, Trial
from colonnade.errors import LinkError
from colonnade.privacy.chain import StoredLine
from colonnade.record import read_record
from colonnade.saved import read_ledger
from colonnade.testing.trainings import timeless
from colonnade.wire.messages import COORDINATOR

SERVER = "nats-server"
PATIENCE = 180.0  # seconds until a run counts as stuck


@dataclass(frozen=True)
class Kills:
    """How many processes are killed, and when: at `count` random moments of the first `rounds` rounds."""

    random: np.random.Generator
    count: int
    rounds: int
    pause: float  # seconds that a round is drawn out by, so that kills hit everywhere within it


@dataclass(frozen=True)
class Ending:
    """What is left of a run: everything that must not depend on who was killed when."""

    score: float | None
    models: Mapping[str, str]  # fingerprints
    ledgers: Mapping[str, list[StoredLine]]  # all releases, in order, without their times


def play(parties: Sequence[str], trial: Callable[[Path, NatsServer], Trial], kills: Kills | None) -> tuple[Ending, int]:
    """One training on a server of its own; how it ended, and how many processes were killed on the way.

    Raises:
        LinkError: it did not end, or a process failed instead of being killed.
    """
    with tempfile.TemporaryDirectory() as text, NatsServer(Path(text) / "nats", tuple(parties)) as server:
        organisations = Organisations(trial(Path(text) / "run", server))
        try:
            organisations.start()
            killed = _disturb(organisations, server, kills) if kills is not None else 0
            _see_through(organisations)
        finally:
            organisations.stop()
        return _ending(organisations), killed


def _disturb(organisations: Organisations, server: NatsServer, kills: Kills) -> int:
    """Kill somebody whenever the training has got a little further; start whoever is dead again at once."""
    victims, random = [*organisations.names, SERVER], kills.random
    moments = np.sort(random.integers(0, kills.rounds, kills.count))  # the rounds at which somebody dies
    killed = 0
    for moment in moments.tolist():
        if not _wait_for_round(organisations, moment):
            break
        time.sleep(float(random.uniform(0, 2 * kills.pause)))  # anywhere within the round
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
    raise LinkError(
        f"a disturbed run did not come to round {number} within {PATIENCE:.0f} s; {_last_words(organisations)}"
    )


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
            raise LinkError(
                f"a run did not end within {PATIENCE:.0f} s; still running: "
                f"{organisations.running()}; {_last_words(organisations)}"
            )
        time.sleep(0.02)
    _revive(organisations)  # whoever was killed in its very last moment
    if not organisations.wait(PATIENCE):
        raise LinkError("a run did not end")


def _last_words(organisations: Organisations) -> str:
    """What each organisation said last: its folder is gone when somebody reads the error."""
    return "; ".join(f"{name}: {organisations.events(name)[-4:]}" for name in organisations.names)


def _ending(organisations: Organisations) -> Ending:
    place = organisations.trial.place
    record = read_record(place(COORDINATOR))
    models = {COORDINATOR: record["fingerprint"]}
    for name in organisations.names[1:]:
        models[name] = json.loads((place(name) / "party.json").read_text())["fingerprint"]
    ledgers = {name: [timeless(release) for release in read_ledger(place(name))] for name in organisations.names}
    return Ending(record["result"]["test_score"], models, ledgers)
