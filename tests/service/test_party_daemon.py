"""`colonnade serve party.toml`: real processes that serve several runs, are killed, stopped and told to read again."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Call, cli
from tests.cli.organisations import PARTIES, Process, align_by_hand, customers, furnish
from tests.cli.test_bad_input import edit
from tests.nats_server import NatsServer, needs_nats

__all__ = ["cli"]  # the fixture
SHORT = ("--set", "training.rounds=6", "--set", "training.evaluate_every=3")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """The organisations, aligned, with a server; no party.toml names a run."""
    with NatsServer(tmp_path / "nats", PARTIES) as server:
        furnish(tmp_path / "here", server.certificates, server.url)
        align_by_hand(tmp_path / "here")
        for name in PARTIES:
            edit(tmp_path / "here" / name / "party.toml", 'run = "small"\n', "")
            (tmp_path / "here" / name / "policy.toml").write_text("fewest_rows = 10\n")
        yield tmp_path / "here"


def serve(folder: Path, name: str) -> Process:
    process = Process(folder / name, "serve", "party.toml", "--log", "json")
    process.wait_for('"serving"')
    return process


def train(folder: Path, run: str, *more: str) -> Process:
    names = ("--set", f"coordinator.run={run}", "--set", f"coordinator.folder=run-{run}")
    return Process(folder / "bank", "coordinator", "coordinator.toml", *names, *more, "--json", "--log", "json")


def model(folder: Path, run: str) -> bytes:
    return (folder / "bank" / f"run-{run}" / "model.safetensors").read_bytes()


@needs_nats
@pytest.mark.slow
def test_one_process_serves_all_runs(cli: Call, folder: Path) -> None:
    bank, telco = serve(folder, "bank"), serve(folder, "telco")
    try:
        alone = train(folder, "alone", *SHORT)
        assert alone.end() == 0, alone.err
        first, second = train(folder, "first", *SHORT), train(folder, "second", *SHORT)
        assert (first.end(), second.end()) == (0, 0)
        assert model(folder, "first") == model(folder, "second") == model(folder, "alone")
        parts = [(folder / "telco/party" / run / "model.safetensors").read_bytes() for run in ("alone", "second")]
        assert parts[0] == parts[1]

        telco.kill()
        telco = serve(folder, "telco")
        assert telco.events()[-1]["runs"] == ["alone", "first", "second"]
        long = train(folder, "long", "--set", "training.rounds=1000000", "--set", "training.evaluate_every=0")
        telco.wait_for('"event": "answered"')
        Path("ids.txt").write_text(f"{customers()[0]}\n{customers()[3]}\n")
        ask = ("predict", folder / "bank/run-first", "--ids", "ids.txt", "--proba", "--json")
        told = cli(*ask)
        assert told.code == 0, told.err
        assert long._process.poll() is None, "the training goes on"
        long.terminate()

        (folder / "telco/policy.toml").write_text('purposes = ["TRAIN", "EVALUATE"]\n')
        telco._process.send_signal(signal.SIGHUP)
        telco.wait_for('"event": "policy"')
        refused = cli(*ask)
        assert refused.code == 2 and "PREDICT was asked for, the policy allows TRAIN, EVALUATE" in refused.err
        (folder / "telco/policy.toml").write_text("most_round = 3\n")
        telco._process.send_signal(signal.SIGHUP)
        telco.wait_for("the policy stays as it was")
        assert (telco.terminate(), bank.terminate()) == (143, 143)
        assert telco.events()[-1]["event"] == "stopped"
        assert "Traceback" not in telco.err + bank.err
    finally:
        for process in (bank, telco):
            process.kill()
