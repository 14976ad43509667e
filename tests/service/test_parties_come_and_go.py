"""A shop joins a bank and a telco, and the telco leaves: from the command line, with alignments of their own."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from colonnade.align.files import read_alignment, read_as_of
from colonnade.record import read_record
from colonnade.report import words
from colonnade.run import Run
from tests.cli.conftest import Call, cli
from tests.cli.organisations import PARTIES, PARTY, Process, customers, furnish, write_csv
from tests.cli.test_bad_input import edit
from tests.nats_server import NatsServer, needs_nats
from tests.service.test_party_daemon import serve, train

__all__ = ["cli"]  # the fixture
EVERYBODY = (*PARTIES, "shop")
METHOD = """[method]
name = "one_message"
folds = 2

[model]
encoder = "trees"
trees = { most = 8, smallest_leaf = 3 }

[training.schedule]
batch = 40  # one message of the rows of bank and telco, two of all rows of bank and shop
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    here = tmp_path / "here"
    with NatsServer(tmp_path / "nats", EVERYBODY) as server:
        furnish(here, server.certificates, server.url)
        (here / "shop" / "certs").mkdir(parents=True)
        for file in ("ca.crt", "shop.crt", "shop.key"):
            shutil.copy(server.certificates / file, here / "shop" / "certs" / file)
        values = np.random.default_rng(8).normal(size=(60, 2)).round(5)
        lines = [[customers()[row], *values[row]] for row in reversed(range(60))]
        write_csv(here / "shop" / "shop.csv", ["customer", "visits_zq", "spent_zq"], lines)
        (here / "shop" / "party.toml").write_text(PARTY.format(name="shop", server=server.url))
        for name in EVERYBODY:
            edit(here / name / "party.toml", 'run = "small"\n', "")
            (here / name / "policy.toml").write_text("fewest_rows = 10\nalignments_per_day = 9\n")
        configured = (here / "bank" / "coordinator.toml").read_text().partition("[method]")[0] + METHOD
        (here / "bank" / "coordinator.toml").write_text(configured)
        yield here


def align(folder: Path, run: str) -> None:
    side = Process(folder / "bank", "align", "coordinator.toml", "--set", f"coordinator.run={run}", "--json")
    assert side.end() == 0, side.err


def scores(run: Path, party: int, alignment: Path, digest: str) -> dict[str, list[float]]:
    """What the label holder kept of a party, by id."""
    rows, kept = read_as_of(alignment, digest), Run.load(run).kept
    seen = kept["cache.seen"][party]
    return {id: kept["cache.scores"][party, row].tolist() for row, id in enumerate(rows.ids) if seen[row]}


@needs_nats
@pytest.mark.slow
def test_a_party_joins_and_another_leaves(cli: Call, folder: Path) -> None:
    processes = [serve(folder, name) for name in EVERYBODY]
    bank, config = folder / "bank", folder / "bank" / "coordinator.toml"
    try:
        align(folder, "first")
        first = train(folder, "first")
        assert first.end() == 0, first.err

        edit(config, 'parties = ["bank", "telco"]', 'parties = ["bank", "telco", "shop"]\ntakes_over = "run-first"')
        refused = train(folder, "second")
        assert refused.end() == 2 and "aligned with telco, and not with shop" in refused.err
        align(folder, "second")
        second = train(folder, "second")
        assert second.end() == 0, second.err
        before, after = (read_record(bank / f"run-{run}") for run in ("first", "second"))
        assert "shop joined the model of run 'first'" in " ".join(words.summary(after))
        assert before["about"]["rows"] == after["about"]["rows"]
        now, (then,) = read_alignment(bank / "alignment"), (bank / "alignment" / "former").iterdir()
        for party in (0, 1):
            old = scores(bank / "run-first", party, bank / "alignment", read_alignment(then).digest)
            new = scores(bank / "run-second", party, bank / "alignment", now.digest)
            assert old == new and old, "what was sent once stands beside the people that it was about"
        parts = [(folder / "telco/party" / run / "model.safetensors").read_bytes() for run in ("first", "second")]
        assert parts[0] == parts[1]

        Path("ids.txt").write_text("\n".join(now.ids[:5]))
        told = cli("predict", bank / "run-second", "--ids", "ids.txt", "--proba", "--json")
        assert told.code == 0, told.err
        assert len(json.loads(told.out)["predictions"]) == 5

        edit(
            config,
            'parties = ["bank", "telco", "shop"]\ntakes_over = "run-first"',
            'parties = ["bank", "shop"]\ntakes_over = "run-second"',
        )
        align(folder, "third")
        (bank / "run-first").rename(bank / "elsewhere")
        refused = train(folder, "third")
        assert refused.end() == 2 and "run-first' has no finished run of a label holder" in refused.err
        (bank / "elsewhere").rename(bank / "run-first")
        third = train(folder, "third")
        assert third.end() == 0, third.err
        about = read_record(bank / "run-third")["about"]
        assert [one["party"] for one in about["left"]] == ["telco"] and [one["party"] for one in about["joined"]] == [
            "shop"
        ]
        told = cli("predict", bank / "run-third", "--ids", "ids.txt", "--json")
        assert told.code == 0, told.err
        for name in ("bank", "shop"):
            text = (folder / name / "party" / "third" / "ledger.jsonl").read_text()
            assert {json.loads(line)["purpose"] for line in text.splitlines()} <= {"PREDICT"}  # written when idle
    finally:
        for process in processes:
            process.kill()
