"""A bank with the labels and a telco, as folders; and their commands as real processes whose every line is kept."""

from __future__ import annotations

import csv
import json
import shutil
import signal
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from colonnade.align.files import Alignment, write_alignment
from colonnade.align.match import Agreed, MatchReport, PartyMatch
from tests.processes import LONG, Forked, end

ROWS, SHARED = 60, 48  # customers of the bank; those of them that the telco has too
PARTIES = ("bank", "telco")
PARTY = """
[party]
name = "{name}"
run = "small"
table = "{name}.csv"
id = "customer"
folder = "party"
policy = "policy.toml"

[connection]
server = "{server}"
authority = "certs/ca.crt"
certificate = "certs/{name}.crt"
key = "certs/{name}.key"
"""
COORDINATOR = """
[coordinator]
run = "small"
parties = ["bank", "telco"]
own = ["bank"]
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
local_steps = 2

[model]
hidden = 8
embedding = 4

[training]
rounds = 100
evaluate_every = 50
schedule = {{ batch = 16 }}
"""


def customers() -> list[str]:
    """Ids that no word, number or digest contains."""
    return [f"Kunde-{7919 * (row + 17):06d}" for row in range(ROWS + 10)]


def furnish(folder: Path, certificates: Path, server: str) -> None:
    """Write bank/ and telco/: tables, certificates, configuration."""
    rng, ids = np.random.default_rng(5), customers()
    values = rng.normal(size=(len(ids), 4)).round(5)
    held = {"bank": range(ROWS), "telco": [*range(SHARED), *range(ROWS, ROWS + 10)]}
    columns = {"bank": (("income_zq", "balance_zq"), slice(0, 2)), "telco": (("minutes_zq", "calls_zq"), slice(2, 4))}
    for name in PARTIES:
        here = folder / name
        (here / "certs").mkdir(parents=True)
        processes = ("ca", name, "coordinator") if name == "bank" else ("ca", name)
        for file in (f"{process}.{kind}" for process in processes for kind in ("crt", "key")):
            if file != "ca.key":
                shutil.copy(certificates / file, here / "certs" / file)
        heads, which = columns[name]
        lines = [[ids[row], *values[row, which]] for row in rng.permutation(held[name])]
        write_csv(here / f"{name}.csv", ["customer", *heads], lines)
        (here / "party.toml").write_text(PARTY.format(name=name, server=server))
        (here / "policy.toml").write_text("most_rounds = 500\n" if name == "telco" else "fewest_rows = 10\n")
    churned = [[ids[row], "yes" if values[row, 0] + values[row, 2] > 0 else "no"] for row in range(ROWS)]
    write_csv(folder / "bank" / "labels.csv", ["customer", "churned"], churned)
    (folder / "bank" / "coordinator.toml").write_text(COORDINATOR.format(server=server))


def align_by_hand(folder: Path) -> None:
    """The files that `colonnade align` would write."""
    ids, agreed = tuple(customers()[:SHARED]), Agreed("small", "0" * 32, ("telco",), "all", SHARED, 0)
    match = PartyMatch("telco", SHARED + 10, SHARED)
    for name in PARTIES:
        report = MatchReport(ROWS, (match,), SHARED, 0, 10)
        me = "coordinator" if name == "bank" else name
        write_alignment(folder / name / "alignment", Alignment(me, agreed, np.arange(SHARED), ids, None, report))


def write_csv(path: Path, header: list[str], lines: list[list[Any]]) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([header, *lines])


class Process:
    """`colonnade ARGUMENTS` in a folder; comes to an end, or is brought to it."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.arguments, self.out, self.lines = arguments, "", list[str]()
        self._news = threading.Condition()
        self._process = Forked(folder, arguments)
        self._readers = [threading.Thread(target=read, daemon=True) for read in (self._read_out, self._read_lines)]
        for reader in self._readers:
            reader.start()

    def _read_out(self) -> None:
        with suppress(ValueError), self._process.stdout as out:  # ValueError: closed at the end of the test
            self.out = out.read()

    def _read_lines(self) -> None:
        with suppress(ValueError), self._process.stderr as err:
            for line in err:
                with self._news:
                    self.lines.append(line.rstrip("\n"))
                    self._news.notify_all()

    @property
    def err(self) -> str:
        return "\n".join(self.lines)

    def events(self) -> list[dict[str, Any]]:
        """Its log, where it was asked for JSON."""
        return [json.loads(line) for line in self.lines]

    def wait_for(self, text: str, seconds: float = LONG) -> None:
        """Come back when a line on stderr has this text."""
        deadline = time.monotonic() + seconds
        with self._news:
            while not any(text in line for line in self.lines):
                assert self._process.poll() is None, f"{self.arguments} ended without {text!r}:\n{self.err}"
                assert time.monotonic() < deadline, f"{self.arguments} never said {text!r}:\n{self.err}"
                self._news.wait(0.2)

    def end(self, seconds: float = LONG) -> int:
        """Wait until it ends; its status."""
        try:
            status = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"{self.arguments} did not end:\n{self.err}") from None
        for reader in self._readers:
            reader.join(10)
        return status

    def terminate(self) -> int:
        """Ask it to end, as a service manager does; its status."""
        self._process.send_signal(signal.SIGTERM)
        return self.end()

    def kill(self) -> None:
        end(self._process)
