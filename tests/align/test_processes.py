"""Three organisations as three processes and a real server: `colonnade align` at each, and one of them killed."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest

from colonnade.align.files import read_alignment
from colonnade.bench import align as bench_align
from colonnade.bench.catalogue import CHECKOUT, find, read_bench
from colonnade.bench.settings import Options
from tests.nats_server import NatsServer, needs_nats
from tests.processes import LONG, TELLING, start, warm

ROWS = 3000
CONNECTION = """
[connection]
server = "{url}"
authority = "nats/certs/ca.crt"
certificate = "nats/certs/{name}.crt"
key = "nats/certs/{name}.key"
"""


def write_side(folder: Path, server: NatsServer, name: str, ids: range) -> Path:
    """The table and the configuration of one side."""
    label = ",churned" if name == "coordinator" else ",minutes"
    lines = [f"customer{label}", *(f"{number:05d},{number % 2}" for number in ids)]
    (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")
    head = (
        '[coordinator]\nrun = "churn"\nparties = ["telco", "branch", "shop"]\nown = ["branch"]\nlabel = "churned"\n'
        'keep = "partial"\n'
        if name == "coordinator"
        else f'[party]\nname = "{name}"\nrun = "churn"\n'
    )
    body = f'table = "{name}.csv"\nid = "customer"\nalignment = "{name}-rows"\n'
    path = folder / f"{name}.toml"
    path.write_text(head + body + CONNECTION.format(url=server.url, name=name))
    return path


def started(config: Path, *options: str) -> subprocess.Popen[str]:
    words = [*TELLING, "align", str(config), "--patience", "120", *options]
    log = config.with_suffix(".log").open("a")
    with log:
        return start(words, stdout=subprocess.PIPE, stderr=log)


def wait_for_line(path: Path, words: str) -> None:
    deadline = time.monotonic() + LONG
    while words not in path.read_text():
        assert time.monotonic() < deadline, path.read_text()
        time.sleep(0.02)


@needs_nats
def test_align_at_three_organisations_one_of_them_killed_and_started_again(tmp_path: Path) -> None:
    parties = {"telco": range(500, ROWS + 500), "shop": range(0, ROWS, 2)}
    with NatsServer(tmp_path / "nats", tuple(parties)) as server:
        sides = {"coordinator": range(ROWS), **parties}
        files = {name: write_side(tmp_path, server, name, ids) for name, ids in sides.items()}
        running = {name: started(files[name]) for name in ("coordinator", "telco")}
        wait_for_line(tmp_path / "coordinator.log", "joined: party telco")
        running["telco"].send_signal(signal.SIGKILL)
        running["telco"].communicate()
        running |= {"telco": started(files["telco"]), "shop": started(files["shop"], "--json")}
        told = {name: process.communicate(timeout=LONG)[0] for name, process in running.items()}
        logs = {name: (tmp_path / f"{name}.log").read_text() for name in running}
        assert {process.returncode for process in running.values()} == {0}, logs
    found = {name: read_alignment(tmp_path / f"{name}-rows") for name in files}
    assert len({side.digest for side in found.values()}) == 1
    holder = found["coordinator"]
    assert set(holder.ids[: holder.complete]) == {f"{number:05d}" for number in range(500, ROWS, 2)}
    assert holder.presence is not None and list(holder.presence) == ["telco", "shop", "branch"]
    for name in parties:
        assert [holder.ids[row] for row in found[name].rows] == list(found[name].ids)
    assert "telco" in told["coordinator"] and "83.3 %" in told["coordinator"]
    assert json.loads(told["shop"])["report"]["matches"][0]["matched"] == ROWS // 2
    assert "started over" in logs["coordinator"]
    assert {log.splitlines()[-1] for log in logs.values()} == {"loaded: pandas"}, (
        "to find rows takes tables, and no training"
    )
    assert not any("00500" in text for text in (*logs.values(), *told.values())), "an id in a log"


@needs_nats
def test_the_benchmark_measures_real_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_align, "get_context", lambda kind: warm())  # which have loaded torch already
    assert 0 < bench_align.measure(ids=30, parties=1, workers=1) < LONG


def test_the_benchmark_reports_every_promised_key(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def measure(ids: int, parties: int, workers: int) -> float:
        asked.append((ids, parties))
        return 1.0

    monkeypatch.chdir(CHECKOUT)
    monkeypatch.setattr(bench_align, "measure", measure)
    said: list[str] = []
    results = bench_align.run_align(find("align"), Options(), said.append)
    spreads = {"seconds_2_spread", "seconds_3_spread"}
    assert set(find("align").limits("cpu")) | {"seconds_1m"} | spreads == set(results)
    assert asked == [(100_000, 1)] * 3 + [(100_000, 2)] * 3 + [(1_000_000, 1)] and said
    small = {"title": "t", "kind": "align", "align": {"ids": 20, "large": 0, "repeats": 1}}
    assert set(bench_align.run_align(read_bench("x", small), Options(), said.append)) == {"seconds_2", "seconds_3"}
