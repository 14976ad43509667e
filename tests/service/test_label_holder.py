"""`colonnade serve coordinator.toml`: versions are trained, compared and put to use by real processes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.conftest import Call, cli
from tests.cli.organisations import Process, customers
from tests.cli.test_bad_input import edit
from tests.nats_server import needs_nats
from tests.service.test_party_daemon import folder, serve

__all__ = ["cli", "folder"]  # the fixtures


def on_the_page(process: Process) -> dict[str, Any]:
    """What the live page of a process that serves shows."""
    process.wait_for('"url": "http://')
    url = re.findall(r'"url": "(http://127\.0\.0\.1:\d+)"', process.err)[0]
    found: dict[str, Any] = httpx.get(f"{url}/watch/state", timeout=60).json()
    return found


@needs_nats
@pytest.mark.slow
def test_versions_are_trained_and_put_to_use(cli: Call, folder: Path) -> None:
    config = folder / "bank" / "coordinator.toml"
    edit(config, "rounds = 100\nevaluate_every = 50", "rounds = 6\nevaluate_every = 3")
    for file in (config, folder / "telco" / "party.toml"):
        with file.open("a") as more:
            more.write('[http]\nlisten = "127.0.0.1:0"\npage = true\npage_without_key = true\n')
    parties = [serve(folder, name) for name in ("bank", "telco")]
    holder = Process(folder / "bank", "serve", "coordinator.toml", "--log", "json")
    try:
        holder.wait_for('"event": "promoted", "run": "small-v1"')
        assert cli("models", config, "--json").json["in_use"] == 1
        shown = on_the_page(holder)
        assert shown["models"][0]["used"] == 1 and shown["runs"][0]["run"] == "small-v1"
        assert shown["shown"]["status"]["state"] == "finished" and shown["shown"]["curve"][-1][0] == 6
        (run,) = on_the_page(parties[1])["runs"]
        assert (run["run"], run["role"], run["round"]) == ("small-v1", "party", 6)
        assert cli("models", config, "--train").code == 0
        # The same data: exactly as good.
        holder.wait_for('"event": "promoted", "run": "small-v2"')
        assert "of version 1" in holder.err and "on the same" in holder.err

        # Other labels: both models are asked about the same rows.
        labels = (folder / "bank/labels.csv").read_text()
        lines = labels.splitlines()
        held = next(n for n, line in enumerate(lines) if line.startswith(customers()[1]))
        lines[held] = f"{customers()[1]},"
        (folder / "bank/labels.csv").write_text("\n".join(lines) + "\n")
        cli("models", config, "--train")
        holder.wait_for('"event": "promoted", "run": "small-v3"')
        assert "cannot be compared" not in holder.err and '"predicted"' in parties[1].err

        (folder / "telco/policy.toml").write_text("most_rounds = 1\n")
        assert holder.terminate() == 143
        parties[1].terminate()
        parties[1] = serve(folder, "telco")
        cli("models", config, "--train")
        holder = Process(folder / "bank", "serve", "coordinator.toml", "--log", "json")
        holder.wait_for('"event": "failed", "run": "small-v4"')
        assert "most_rounds: 6 rounds were asked for, the policy allows 1" in holder.err

        used = cli("models", config, "--promote", "1", "--json").json["in_use"]
        assert used == 1
        Path("ids.txt").write_text(f"{customers()[0]}\n")
        told = cli("predict", folder / "bank/run", "--ids", "ids.txt", "--proba", "--json")
        assert told.code == 0, told.err
        shown = cli("models", config, "--back").out
        assert "version 4: failed; failed: party 'telco' refuses" in shown and "in use: version 1" not in shown
        assert holder.terminate() == 143
        assert "Traceback" not in holder.err
    finally:
        for process in (holder, *parties):
            process.kill()
