"""Predictions over HTTPS from real processes: while a party and the server restart, and while a new version trains."""

from __future__ import annotations

import json
import shutil
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.conftest import Call, cli
from tests.cli.organisations import PARTIES, Process, align_by_hand, customers, furnish
from tests.cli.test_bad_input import edit
from tests.nats_server import NatsServer, needs_nats
from tests.processes import LONG
from tests.service.test_party_daemon import serve

__all__ = ["cli"]  # the fixture
HTTP = """
[http]
listen = "127.0.0.1:0"
certificate = "certs/server.crt"
key = "certs/server.key"
deadline = 60.0
"""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[Path, NatsServer]]:
    with NatsServer(tmp_path / "nats", PARTIES) as server:
        here = tmp_path / "here"
        furnish(here, server.certificates, server.url)
        align_by_hand(here)
        for name in PARTIES:
            edit(here / name / "party.toml", 'run = "small"\n', "")
            (here / name / "policy.toml").write_text("fewest_rows = 10\n")
        config = here / "bank" / "coordinator.toml"
        edit(config, "rounds = 100\nevaluate_every = 50", "rounds = 6\nevaluate_every = 3")
        config.write_text(config.read_text() + HTTP)
        for kind in ("crt", "key"):
            shutil.copy(server.certificates / f"server.{kind}", here / "bank/certs")
        yield here, server


def forget_a_label(labels: Path) -> None:
    """Other validation rows: two versions are then compared by asking both."""
    lines = labels.read_text().splitlines()
    held = next(n for n, line in enumerate(lines) if line.startswith(customers()[1]))
    lines[held] = f"{customers()[1]},"
    labels.write_text("\n".join(lines) + "\n")


def check_ledgers(cli: Call, folder: Path) -> None:
    """Everybody's is whole and signed, and the label holder's says who called."""
    authority = folder / "bank/certs/ca.crt"
    for place in ("bank/run/v1", *(f"{name}/party/small-v1" for name in PARTIES)):
        told = cli("ledger", "verify", folder / place, "--authority", authority)
        assert told.code == 0, told.out
    entries = [json.loads(line) for line in (folder / "bank/run/v1/ledger.jsonl").read_text().splitlines()]
    asked = [entry for entry in entries if entry["purpose"] == "PREDICT" and not entry["parameters"]]
    assert {caller for entry in asked for caller, _ in entry.get("callers", [])} == {"shop"}
    exported = cli("ledger", "export", folder / "bank/run/v1").out
    assert "shop=5" in exported


@needs_nats
@pytest.mark.slow
def test_no_call_is_lost(cli: Call, site: tuple[Path, NatsServer]) -> None:
    folder, server = site
    config, certs = folder / "bank/coordinator.toml", folder / "bank/certs"
    key = cli("keys", "add", "shop", "--may", "predict", "--config", config).out.strip()
    parties = {name: serve(folder, name) for name in PARTIES}
    holder = Process(folder / "bank", "serve", "coordinator.toml", "--log", "json")
    try:
        holder.wait_for('"event": "answering"')
        url = next(event["url"] for event in holder.events() if event["event"] == "answering")
        assert url.startswith("https://127.0.0.1:")
        tls = ssl.create_default_context(cafile=str(certs / "ca.crt"))
        headers = {"Authorization": f"Bearer {key}"}
        with (
            httpx.Client(base_url=url, verify=tls, headers=headers, timeout=2 * LONG) as client,
            ThreadPoolExecutor(4) as pool,
        ):

            def predict(*ids: str, **more: Any) -> dict[str, Any]:
                told = client.post("/v1/predict", json={"ids": list(ids), **more})
                assert told.status_code == 200, told.text
                answer: dict[str, Any] = told.json()
                return answer

            assert client.get("/healthz").status_code == 200
            early = client.post("/v1/predict", json={"ids": customers()[:1]})
            assert early.status_code in (200, 503), early.text
            holder.wait_for('"event": "promoted", "run": "small-v1"')
            while client.get("/readyz").status_code != 200:
                pass
            first = predict(*customers()[:5], absent="refuse")
            assert (first["model"], first["classes"], first["answered"]) == (1, ["no", "yes"], list(PARTIES))

            # A party is killed: calls wait for it, or are answered without it.
            parties["telco"].kill()
            waiting = [pool.submit(partial(predict, *customers()[:5], absent="refuse")) for _ in range(3)]
            without = predict(customers()[0], absent="leave-out")
            assert (without["answered"], without["left_out"]) == (["bank"], ["telco"])
            parties["telco"] = serve(folder, "telco")
            assert [one.result(LONG) for one in waiting] == [first] * 3

            # The server is killed.
            server.kill()
            waiting = [pool.submit(partial(predict, *customers()[:5], absent="refuse")) for _ in range(3)]
            server.start()
            assert [one.result(LONG) for one in waiting] == [first] * 3

            # Another version is trained meanwhile; it is put to use, and compared over the same line.
            forget_a_label(folder / "bank/labels.csv")
            assert cli("models", config, "--train").code == 0
            holder.wait_for('"event": "training", "run": "small-v2"')
            beside = [predict(customers()[0]) for _ in range(5)]
            assert {answer["model"] for answer in beside} <= {1, 2}
            holder.wait_for('promoted", "run": "small-v2"')  # or not, by the score
            assert "cannot be compared" not in holder.err
            assert predict(customers()[0], model=2)["run"] == "small-v2"
            assert predict(*customers()[:5], model=1, absent="refuse") == first
        assert holder.terminate() == 143
        assert "Traceback" not in holder.err and key not in holder.err
        for process in parties.values():
            process.terminate()
        check_ledgers(cli, folder)
    finally:
        for process in (holder, *parties.values()):
            process.kill()
