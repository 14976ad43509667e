"""Organisations that serve, on one machine: a nats-server, a process for each party and one for the label holder.

They are started as an operator starts them, `colonnade serve`, over TLS, and say what happens as JSON lines in a file.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from colonnade.bench.nats_server import NatsServer
from colonnade.errors import RunError
from colonnade.randomness import stream
from colonnade.wire.messages import COORDINATOR

Said = Mapping[str, Any]  # an event with its facts
PARTIES = ("bank_a", "bank_b", "telco")
PATIENCE = 180.0  # seconds for a process to say what it is waited for
_PARTY = """\
[party]
name = "{name}"
table = "{name}.csv"
id = "customer"
policy = "policy.toml"

[connection]
server = "{server}"
authority = "certs/ca.crt"
certificate = "certs/{name}.crt"
key = "certs/{name}.key"
"""
_COORDINATOR = """\
[coordinator]
run = "site"
parties = ["bank_a", "bank_b", "telco"]
own = ["bank_a"]
table = "labels.csv"
id = "customer"
label = "churned"

[connection]
server = "{server}"
authority = "certs/ca.crt"
certificate = "certs/coordinator.crt"
key = "certs/coordinator.key"

[method]
name = "vimadmm"

[model]
hidden = 32
embedding = 16

[training]
rounds = {rounds}
schedule = {{ batch = 256 }}
stopping = {{ drop = 1e9 }} # it ends when its rounds are over, not when a score falls

[http]
listen = "127.0.0.1:0"
certificate = "certs/server.crt"
key = "certs/server.key"
calls_per_second = 10000
"""


@dataclass
class Site:
    """Use it as a context manager: the server runs inside, and every process that was started is ended with it."""

    folder: Path
    rows: int = 1500
    columns: int = 10  # of each party
    rounds: int = 40
    server: NatsServer = field(init=False)
    _running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _read: dict[str, int] = field(default_factory=dict)  # bytes of a log that are of earlier lives

    def __enter__(self) -> Site:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.server = NatsServer(self.folder / "nats", PARTIES)
        self._furnish()
        self.server.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for name in list(self._running):
            self.end(name, signal.SIGKILL)
        self.server.close()

    # -- files --------------------------------------------------------------------------------

    @property
    def ids(self) -> list[str]:
        """Everybody's customers."""
        return [f"c{7919 * (row + 17):08d}" for row in range(self.rows)]

    def place(self, name: str) -> Path:
        """The folder of a party, or of the label holder ("coordinator"), which is that of its own party."""
        return self.folder / (PARTIES[0] if name == COORDINATOR else name)

    def _furnish(self) -> None:
        random = stream(0, "serving site")
        values = random.normal(size=(self.rows, self.columns * len(PARTIES))).round(5)
        signal_ = values @ random.normal(size=values.shape[1])
        for at, name in enumerate(PARTIES):
            here = self.place(name)
            (here / "certs").mkdir(parents=True)
            for kept in ("ca.crt", f"{name}.crt", f"{name}.key"):
                shutil.copy(self.server.certificates / kept, here / "certs" / kept)
            mine = values[:, at * self.columns : (at + 1) * self.columns]
            _write(here / f"{name}.csv", [f"{name}_{i}" for i in range(self.columns)], self.ids, mine)
            (here / "party.toml").write_text(_PARTY.format(name=name, server=self.server.url), encoding="utf-8")
            (here / "policy.toml").write_text("most_rounds = 100000\nalignments_per_day = 4\n", encoding="utf-8")
        holder = self.place(COORDINATOR)
        for kept in ("coordinator.crt", "coordinator.key", "server.crt", "server.key"):
            shutil.copy(self.server.certificates / kept, holder / "certs" / kept)
        _write(holder / "labels.csv", ["churned"], self.ids, np.where(signal_ > 0, "yes", "no")[:, None])
        text = _COORDINATOR.format(server=self.server.url, rounds=self.rounds)
        (holder / "coordinator.toml").write_text(text, encoding="utf-8")

    # -- processes ----------------------------------------------------------------------------

    def start(self, name: str, *more: str) -> None:
        """Start a party's process or the label holder's."""
        config, here = ("coordinator.toml" if name == COORDINATOR else "party.toml"), self.place(name)
        log = self._log(name)
        self._read[name] = log.stat().st_size if log.exists() else 0
        command = [sys.executable, "-m", "colonnade", "serve", config, "--log", "json", *more]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        with log.open("ab") as said:
            self._running[name] = subprocess.Popen(
                command, cwd=here, stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=environment
            )

    def end(self, name: str, how: signal.Signals = signal.SIGTERM) -> None:
        """End a process, and wait until it is gone."""
        process = self._running.pop(name)
        if process.poll() is None:
            process.send_signal(how)
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def pids(self) -> Mapping[str, int]:
        """The processes that run."""
        return {name: process.pid for name, process in self._running.items()}

    def _log(self, name: str) -> Path:
        return self.place(name) / f"{name}.log"

    def events(self, name: str) -> list[Said]:
        """What a process has said in its present life."""
        with self._log(name).open("rb") as file:
            file.seek(self._read[name])
            lines = file.read().decode(errors="replace").splitlines()
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]

    def wait_for(self, name: str, event: str, seconds: float = PATIENCE, **facts: object) -> Said:
        """The first event of a kind that a process said, with these facts.

        Raises:
            RunError: it ended, or did not say it in time; with its last lines.
        """
        deadline = time.monotonic() + seconds
        while True:
            for said in self.events(name):
                if said["event"] == event and all(said.get(key) == value for key, value in facts.items()):
                    return said
            ended = self._running[name].poll() is not None
            if ended or time.monotonic() > deadline:
                tail = self._log(name).read_text(errors="replace")[-2000:]
                raise RunError(f"{name} {'ended' if ended else 'never'} said {event!r}:\n{tail}")
            time.sleep(0.05)

    def begin(self) -> None:
        """Start everybody, and come back when the first version of the model is in use."""
        for name in PARTIES:
            self.start(name)
        self.start(COORDINATOR)
        self.wait_for(COORDINATOR, "promoted")


def _write(path: Path, heads: list[str], ids: list[str], values: np.ndarray) -> None:
    lines = [
        ",".join(["customer", *heads]),
        *(",".join([id, *map(str, row)]) for id, row in zip(ids, values, strict=True)),
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
