"""Separate organisations on one machine: real processes that can be killed and started again.

A fork server that has imported everything once starts them in a few hundredths of a second. Each process
writes what it says as JSON lines beside its store, so that a failure can be read afterwards.
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import signal
import time
import traceback
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import torch

from colonnade.bench.made_up import make_federation
from colonnade.bench.noise import SeededNoise
from colonnade.bench.settings import Shape
from colonnade.config import build
from colonnade.deploy.coordinator import CoordinatorProcess
from colonnade.deploy.party import PartyProcess
from colonnade.deploy.party_setup import Columns, PartySetup
from colonnade.deploy.undertaking import Undertaking
from colonnade.engines.nats import NatsLink
from colonnade.engines.remote import Absence
from colonnade.federation import Federation
from colonnade.identity.credentials import Connection, Credentials
from colonnade.job import load_data
from colonnade.methods import make_method
from colonnade.models.encoders import ModelSettings
from colonnade.privacy.mechanism import Mechanism, Unchanged
from colonnade.privacy.settings import PrivacySettings
from colonnade.run import Training
from colonnade.wire.messages import COORDINATOR

LONGEST_HOLD = 600.0  # seconds; whoever holds a run on purpose lets it go on long before
_FEDERATIONS: dict[str, Federation] = {}


@dataclass(frozen=True)
class Trial:
    """A run of separate organisations, as plain values."""

    folder: Path
    run: str
    connections: Mapping[str, Connection]
    data: Mapping[str, Any]
    method: Mapping[str, Any]
    model: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    absence: Mapping[str, Any] = field(default_factory=dict)
    privacy: Mapping[str, Any] = field(default_factory=dict)
    noise: float = 0.0
    pause: Mapping[str, float] = field(default_factory=dict)  # seconds that somebody takes longer per round
    holds: Collection[int] = ()  # rounds after which the coordinator waits until `go_on` is called

    def federation(self) -> Federation:
        """The data, read once per process."""
        key = json.dumps(dict(self.data), sort_keys=True)
        if key not in _FEDERATIONS:
            shape = self.data.get("made_up")
            _FEDERATIONS[key] = load_data(self.data) if shape is None else make_federation(Shape(**shape))
        return _FEDERATIONS[key]

    def mechanism(self) -> Mechanism:
        """Seeded noise, so that runs can be compared; or none."""
        return SeededNoise(self.noise) if self.noise else Unchanged()

    def place(self, name: str) -> Path:
        """An organisation's own folder."""
        place = self.folder / name
        place.mkdir(parents=True, exist_ok=True)
        return place

    def go_on(self, number: int) -> None:
        """Let the coordinator go on that waits after this round."""
        self._permission(number).touch()

    def hold(self, number: int) -> None:
        """Wait, as the coordinator, for `go_on`; everybody else then waits for the coordinator."""
        deadline = time.monotonic() + LONGEST_HOLD
        while number in self.holds and not self._permission(number).exists():
            if time.monotonic() > deadline:
                raise TimeoutError(f"nobody let the coordinator go on after round {number}")
            time.sleep(0.01)

    def _permission(self, number: int) -> Path:
        return self.place(COORDINATOR) / f"go-on-{number}"

    def undertaking(self) -> Undertaking:
        """What the label holder needs."""
        f = self.federation()
        settings = {k: v for k, v in self.method.items() if k not in ("name", "preset")}
        return Undertaking(
            parties=f.names,
            labels=f.labels,
            task=f.task,
            split=f.split,
            method=make_method(self.method["name"], settings, self.method.get("preset")),
            model=build(ModelSettings, self.model, "model"),
            training=build(Training, self.training, "training"),
            absence=build(Absence, self.absence, "absence"),
            privacy=build(PrivacySettings, self.privacy, "privacy"),
            mechanism=self.mechanism().event.name,
            weights=f.weights,
            held=f.held,
        )

    def setup(self, name: str) -> PartySetup:
        """What a party brings."""
        f = self.federation()
        values, mine = next((p.columns, p.held) for p in f.parties if p.name == name)
        held = torch.ones(len(values), dtype=torch.bool) if mine is None else mine
        return PartySetup(lambda train, rows: Columns(values, held, f.scaled), mechanism=self.mechanism())


def work(trial: Trial, name: str) -> None:
    """What the process of an organisation does: the coordinator or a party, until the run is closed."""
    torch.set_num_threads(1)
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # a server that is killed on purpose is no news
    place = trial.place(name)
    with (place / "said.jsonl").open("a", buffering=1) as said:

        def notify(event: str, **facts: Any) -> None:
            said.write(json.dumps({"at": round(time.time(), 3), "event": event, **facts}) + "\n")
            if event == "answered" and name in trial.pause:
                time.sleep(trial.pause[name])

        def after_round(number: int, seconds: float) -> None:
            notify("round", round=number, seconds=seconds)
            trial.hold(number)

        try:
            credentials = Credentials.load(trial.connections[name])
            link = NatsLink(credentials, trial.run, notify).open()
            try:
                if name == COORDINATOR:
                    process = CoordinatorProcess(place, link, credentials, trial.undertaking(), notify)
                    process.serve(lambda now: after_round(now.round, now.seconds))
                    notify("left on the server", **link.stream_state())
                else:
                    PartyProcess(place, link, credentials, trial.setup(name), notify).serve(once=True)
            finally:
                link.close()
        except BaseException as error:
            notify("failed", error=str(error), kind=type(error).__name__, trace=traceback.format_exc())
            raise SystemExit(2) from None


class Organisations:
    """The processes of a trial; `target` is what they do."""

    def __init__(self, trial: Trial, target: Callable[[Any, str], None] = work) -> None:
        self.trial, self._target = trial, target
        self.names = (COORDINATOR, *trial.federation().names)
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([__name__, "sklearn.datasets"])  # slow; digits come from there
        self.processes: dict[str, ForkServerProcess] = {}

    def start(self, *names: str) -> None:
        """Start some (all, if none is named) that are not running."""
        for name in names or self.names:
            if name not in self.processes or not self.processes[name].is_alive():
                self.processes[name] = self._context.Process(target=self._target, args=(self.trial, name), daemon=True)
                self.processes[name].start()

    def kill(self, name: str) -> None:
        """SIGKILL: it has no chance to tidy up."""
        process = self.processes.get(name)
        if process is not None and process.is_alive() and process.pid:
            os.kill(process.pid, signal.SIGKILL)
        if process is not None:
            process.join(10)

    def running(self) -> list[str]:
        """Who is alive."""
        return [name for name, process in self.processes.items() if process.is_alive()]

    def failed(self) -> list[str]:
        """Who ended with an error (not: was killed)."""
        return [name for name, process in self.processes.items() if (process.exitcode or 0) > 0]

    def wait(self, seconds: float) -> bool:
        """Wait until all have ended; false if somebody has not by then."""
        deadline = time.monotonic() + seconds
        while self.running() and time.monotonic() < deadline:
            time.sleep(0.02)
        return not self.running()

    def stop(self) -> None:
        """End whatever is still running."""
        for name in self.running():
            self.kill(name)

    def events(self, name: str) -> list[dict[str, Any]]:
        """The events of an organisation, over all its lives."""
        path = self.trial.place(name) / "said.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("}")]
