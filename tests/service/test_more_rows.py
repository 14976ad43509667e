"""New customers: `colonnade align --more`, and a finished run predicts them, without a training or a restart."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from colonnade.align.files import read_alignment
from colonnade.store import peek
from tests.cli.conftest import Call, cli
from tests.cli.organisations import PARTIES, Process, align_by_hand, customers, furnish
from tests.cli.test_bad_input import edit
from tests.nats_server import NatsServer, needs_nats
from tests.service.test_party_daemon import SHORT, serve, train

__all__ = ["cli"]  # the fixture
NEW = {"new-1": 0, "new-2": 3}  # who has the columns of which customer


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with NatsServer(tmp_path / "nats", PARTIES) as server:
        furnish(tmp_path / "here", server.certificates, server.url)
        align_by_hand(tmp_path / "here")
        for name in PARTIES:
            edit(tmp_path / "here" / name / "party.toml", 'run = "small"\n', "")
        yield tmp_path / "here"


def grow(path: Path, new: dict[str, int], unit: float = 1.0) -> None:
    """Rows for new ids, with the values of known ones (in another unit), at the top of a table."""
    with path.open(newline="") as file:
        head, *lines = csv.reader(file)
    values = {line[0]: line[1:] for line in lines}
    more = [[id, *values[customers()[like]]] for id, like in new.items()]
    if unit != 1.0:
        more = [[id, *(float(value) * unit for value in line)] for id, *line in more]
    with path.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([head, *more, *lines])


def extend(folder: Path) -> None:
    """`colonnade align --more` at both sides; the bank's own party takes its alignment from the same folder."""
    sides = [
        Process(folder / "bank", "align", "coordinator.toml", "--more", "--json"),
        Process(folder / "telco", "align", "party.toml", "--set", "party.run=small", "--more", "--json"),
    ]
    for side in sides:
        assert side.end() == 0, side.err


@needs_nats
@pytest.mark.slow
def test_new_customers_are_predicted_without_a_training(cli: Call, folder: Path) -> None:
    bank, telco = serve(folder, "bank"), serve(folder, "telco")
    try:
        trained = train(folder, "first", *SHORT)
        assert trained.end() == 0, trained.err
        before = read_alignment(folder / "bank/alignment")
        kept = folder / "kept"
        shutil.copytree(folder / "telco/alignment", kept)
        for table in ("bank/bank.csv", "bank/labels.csv", "telco/telco.csv"):
            grow(folder / table, NEW)
        extend(folder)
        after = read_alignment(folder / "bank/alignment")
        assert after.ids[: len(before.ids)] == before.ids and set(after.ids[len(before.ids) :]) == set(NEW)

        Path("ids.txt").write_text("\n".join([*NEW, *(customers()[like] for like in NEW.values())]))
        ask = ("predict", folder / "bank/run-first", "--ids", "ids.txt", "--proba", "--json")
        told = cli(*ask)
        assert told.code == 0, told.err
        rows = json.loads(told.out)["predictions"]
        assert rows[:2] == [{**row, "row": id} for id, row in zip(NEW, rows[2:], strict=True)], "the same columns"

        telco.kill()
        telco = serve(folder, "telco")
        again = cli(*ask)
        assert again.code == 0 and json.loads(again.out)["predictions"] == rows

        extended = folder / "extended"
        (folder / "telco/alignment").rename(extended)
        shutil.copytree(kept, folder / "telco/alignment")
        telco.kill()
        telco = serve(folder, "telco")
        refused = cli(*ask)
        assert refused.code == 2 and "run `colonnade align --more` on all sides" in refused.err
        shutil.rmtree(folder / "telco/alignment")
        extended.rename(folder / "telco/alignment")
        assert cli(*ask).code == 0, "the files are read again when a request names the extension"

        assert '"drift"' not in telco.err
        for table in ("bank/bank.csv", "bank/labels.csv"):
            grow(folder / table, {"cents": 0})
        grow(folder / "telco/telco.csv", {"cents": 0}, unit=-1e6)
        extend(folder)
        Path("cents.txt").write_text("cents")
        assert cli("predict", folder / "bank/run-first", "--ids", "cents.txt").code == 0
        telco.wait_for('"drift"')
        note = next(event["note"] for event in telco.events() if event["event"] == "drift")
        assert note.endswith("about the new rows; by column: colonnade drift party.toml --run first")
        told = cli("drift", folder / "telco/party.toml", "--run", "first")
        assert told.code == 0 and "rows aligned since: party 'telco'" in told.out

        next_ = train(folder, "next", *SHORT)
        assert next_.end() == 0, next_.err
        proposed = peek(folder / "bank/run-next/run.db", "$.agreement.proposal.rows")
        assert proposed is not None and proposed[0] == len(after.ids) + 1
    finally:
        for process in (bank, telco):
            process.kill()
