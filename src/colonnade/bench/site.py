"""Organisations as their people run them: tables, configuration files, `colonnade` commands, logs; on one machine.

Every process is the real command in a process group of its own; what it writes to its log is what an operator would
find there. All of them are ended with the site.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType

import numpy as np

from colonnade.align.files import Alignment, write_alignment
from colonnade.align.match import Agreed, MatchReport, PartyMatch
from colonnade.bench.disturb import Ending
from colonnade.bench.nats_server import NatsServer
from colonnade.errors import LinkError, RunError
from colonnade.job import load_data
from colonnade.record import STORE, read_record
from colonnade.saved import read_ledger
from colonnade.store import peek
from colonnade.testing.trainings import timeless
from colonnade.wire.messages import COORDINATOR

PATIENCE = 600.0  # seconds until a run counts as stuck
TICK = 0.02
PARTY = """
[party]
name = "{name}"
table = "table.csv"
id = "id"
policy = "policy.toml"
"""
HOLDER = """
[coordinator]
run = "faults"
parties = [{parties}]
table = "table.csv"
id = "id"
label = "digit"
task = "multiclass"

[method]
name = "vimadmm"
local_steps = {local_steps}

[model]
hidden = 10
embedding = 6

[training]
rounds = {rounds}
dtype = "{dtype}"
evaluate_every = 5
schedule = {{ batch = 200 }}
stopping = {{ drop = 1e9 }}

[absence]
patience = 600
"""


@dataclass(frozen=True)
class Plan:
    """The run of a site."""

    parties: tuple[str, ...]
    rounds: int = 120
    local_steps: int = 20
    dtype: str = "float64"


@dataclass
class Site:
    """Folders and processes of all organisations; use it as a context manager."""

    folder: Path
    server: NatsServer
    plan: Plan
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __enter__(self) -> Site:
        _furnish(self.folder, self.server, self.plan)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for name in list(self.processes):
            self.kill(name)

    def log(self, name: str) -> Path:
        """Where a process writes what it says, over all its lives."""
        return self.folder / f"{name}.log"

    def run_folder(self, run: str) -> Path:
        """Where the label holder keeps a run."""
        return self.folder / COORDINATOR / f"run-{run}"

    # -- processes ----------------------------------------------------------------------------

    def serve(self, *names: str, environment: Mapping[str, str] | None = None) -> None:
        """Start the processes of parties (all, if none is named), and wait until they listen."""
        for name in names or self.plan.parties:
            self._start(name, ["serve", "party.toml"], environment)
        for name in names or self.plan.parties:
            self._wait(name, partial(self._says, name, '"serving"'), "listens")

    def train(self, run: str = "faults", environment: Mapping[str, str] | None = None) -> None:
        """Start the label holder's command, also again with the same one."""
        places = {"run": run, "folder": f"run-{run}"}
        said = [part for key, value in places.items() for part in ("--set", f"coordinator.{key}={value}")]
        self._start(COORDINATOR, ["coordinator", "coordinator.toml", *said], environment)

    def _start(self, name: str, arguments: list[str], environment: Mapping[str, str] | None) -> None:
        command = [sys.executable, "-m", "colonnade", *arguments, "--log", "json"]
        with self.log(name).open("ab") as log:
            self.processes[name] = subprocess.Popen(
                command, cwd=self.folder / name, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log,
                env={**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})}, start_new_session=True,
            )  # fmt: skip

    def kill(self, name: str) -> None:
        """SIGKILL: it has no chance to tidy up."""
        process = self.processes.get(name)
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()
            process.wait(30)

    def stop(self, name: str) -> None:
        """SIGTERM, as a service manager does: it says what it has counted, and ends."""
        self.processes[name].terminate()
        self.processes[name].wait(60)

    def counted(self, name: str, event: str) -> int:
        """How often a process told of an event, those that its log only counts included."""
        lines = [json.loads(line) for line in self.text(name).splitlines() if line.startswith("{")]
        return sum(int(line.get("more", 1)) for line in lines if line["event"] == event)

    def pid(self, name: str) -> int:
        """The process's number."""
        return self.processes[name].pid

    def text(self, name: str) -> str:
        """All that a process has said."""
        path = self.log(name)
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    # -- waiting ------------------------------------------------------------------------------

    def wait_for_round(self, number: int, run: str = "faults") -> bool:
        """Until the label holder has committed so many rounds; false if the run is over before."""
        process = self.processes[COORDINATOR]
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            found = None
            with suppress(RunError):  # it is being made, or written, just now
                found = peek(self.run_folder(run) / STORE, "$.agreement.proposal.run")
            if found is not None and int(found[1].get("number", 0)) >= number:
                return process.poll() is None
            if process.poll() is not None:
                return False
            time.sleep(TICK)
        raise LinkError(f"a run did not come to round {number} within {PATIENCE:.0f} s; {self.last_words()}")

    def wait_for_end(self) -> int:
        """Until the label holder's command has ended; its status."""
        try:
            return self.processes[COORDINATOR].wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise LinkError(f"a run did not end within {PATIENCE:.0f} s; {self.last_words()}") from None

    def _says(self, name: str, text: str) -> bool:
        return text in self.text(name)

    def _wait(self, name: str, there: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not there():
            if self.processes[name].poll() is not None or time.monotonic() > deadline:
                raise LinkError(f"{name} never {what}: {self.last_words()}")
            time.sleep(TICK)

    def last_words(self) -> str:
        """What each process said last: the folder is gone when somebody reads the error."""
        return "; ".join(f"{name}: {self.text(name)[-600:]}" for name in self.processes)

    def ended_well(self) -> None:
        """The command has ended with status 0.

        Raises:
            LinkError: it has not.
        """
        status = self.wait_for_end()
        if status:
            raise LinkError(f"the label holder's command ended with status {status}; {self.last_words()}")

    def ending(self, run: str = "faults") -> Ending:
        """What is left of a finished run."""
        record = read_record(self.run_folder(run))
        places = {name: self.folder / name / "party" / run for name in self.plan.parties}
        models = {name: json.loads((place / "party.json").read_text())["fingerprint"] for name, place in places.items()}
        places[COORDINATOR] = self.run_folder(run)
        ledgers = {name: [timeless(release) for release in read_ledger(place)] for name, place in places.items()}
        return Ending(record["result"]["test_score"], {COORDINATOR: record["fingerprint"], **models}, ledgers)


def _furnish(folder: Path, server: NatsServer, plan: Plan) -> None:
    """Tables of the bundled digits, an alignment that all have, and the files of each organisation."""
    data = load_data({"set": "digits", "parties": len(plan.parties)})
    ids = [f"row-{number:05d}" for number in range(len(data.labels))]
    agreed = Agreed("faults", "0" * 32, plan.parties, "all", len(ids), 0)
    matches = tuple(PartyMatch(name, len(ids), len(ids)) for name in plan.parties)
    report = MatchReport(len(ids), matches, len(ids), 0, 0)
    listed = ", ".join(f'"{name}"' for name in plan.parties)
    values = {name: party.columns.flatten(1).tolist() for name, party in zip(plan.parties, data.parties, strict=True)}
    values[COORDINATOR] = [[int(label)] for label in data.labels]
    for name, lines in values.items():
        here = folder / name
        here.mkdir(parents=True)
        columns = ["digit"] if name == COORDINATOR else [f"pixel_{at}" for at in range(len(lines[0]))]
        with (here / "table.csv").open("w", newline="") as file:
            rows = ([id, *line] for id, line in zip(ids, lines, strict=True))
            csv.writer(file, lineterminator="\n").writerows([["id", *columns], *rows])
        write_alignment(here / "alignment", Alignment(name, agreed, np.arange(len(ids)), tuple(ids), None, report))
        settings = {"rounds": plan.rounds, "local_steps": plan.local_steps, "dtype": plan.dtype, "parties": listed}
        text = HOLDER.format(**settings) if name == COORDINATOR else PARTY.format(name=name)
        file_name = "coordinator.toml" if name == COORDINATOR else "party.toml"
        (here / file_name).write_text(text + _connection(server, name), encoding="utf-8")
        (here / "policy.toml").write_text("fewest_rows = 10\nmost_rounds = 100000\n", encoding="utf-8")


def _connection(server: NatsServer, name: str) -> str:
    c = server.connection(name)
    places = {"authority": c.authority, "certificate": c.certificate, "key": c.key}
    lines = [f'server = "{c.server}"', *(f"{key} = {json.dumps(str(path))}" for key, path in places.items())]
    return "\n[connection]\n" + "\n".join(lines) + "\n"
