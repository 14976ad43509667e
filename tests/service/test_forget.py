"""`colonnade forget` between real processes: rows of people who withdrew are not used again, at any organisation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from colonnade.align.files import read_alignment
from colonnade.store import peek
from colonnade.withdrawn import read_withdrawn
from tests.cli.conftest import Call, cli
from tests.cli.organisations import customers
from tests.nats_server import needs_nats
from tests.service.test_party_daemon import SHORT, folder, serve, train

__all__ = ["cli", "folder"]  # the fixtures


def trained_rows(folder: Path, run: str) -> list[int]:
    found = peek(folder / f"bank/run-{run}/run.db", "$.agreement.train")
    assert found is not None
    return list(found[0])


def drop(path: Path, id: str) -> None:
    lines = path.read_text().splitlines()
    path.write_text("\n".join(line for line in lines if not line.startswith(f"{id},")) + "\n")


def check_drift(cli: Call, folder: Path) -> None:
    told = cli("drift", folder / "bank/coordinator.toml", "--set", "coordinator.folder=run-third", "--json").json
    assert told["of"] == "scores" and told["rows"] == 1 and told["shifts"][0]["verdict"] == "too few rows to say"
    told = cli("drift", folder / "telco/party.toml", "--run", "third", "--json").json
    assert told["rows"] == 46 and {shift["name"] for shift in told["shifts"]} == {"minutes_zq", "calls_zq"}
    shown = cli("drift", folder / "telco/party.toml").out
    assert "too few rows to say" in shown and "since run third: 0 of 2 columns have moved far" in shown
    assert cli("drift", folder / "telco/party.toml", "--run", "nobody").code == 2


def check_training(cli: Call, folder: Path) -> None:
    """Somebody withdraws while a run trains: it ends, and is not continued."""
    fourth = train(folder, "fourth", "--set", "training.rounds=5000")
    fourth.wait_for('"event": "round"')
    third_person = read_alignment(folder / "bank/alignment").ids[trained_rows(folder, "fourth")[0]]
    assert cli("forget", folder / "telco/party.toml", "--id", third_person).code == 0
    assert fourth.end() == 2 and "party 'telco' refuses" in fourth.err and "who withdrew" in fourth.err
    again = train(folder, "fourth", "--set", "training.rounds=5000")
    assert again.end() == 2 and "run 'fourth' began with row" in again.err


@needs_nats
@pytest.mark.slow
def test_a_person_withdraws_at_a_party(cli: Call, folder: Path) -> None:
    bank, telco = serve(folder, "bank"), serve(folder, "telco")
    holder = ("--set", "coordinator.folder=run-first", "--json")
    try:
        first = train(folder, "first", *SHORT)
        assert first.end() == 0, first.err
        alignment, rows = read_alignment(folder / "bank/alignment"), trained_rows(folder, "first")
        gone, other = alignment.ids[rows[0]], alignment.ids[rows[1]]

        told = cli("forget", folder / "telco/party.toml", "--id", gone, "--reason", "letter of 3 May")
        assert "run first trained with 1 of its" in told.out and "no promise of unit ROW" in told.out
        runs = cli("runs", folder / "telco/party.toml")
        assert "trained with 1 row of a person who withdrew since" in runs.out

        # The label holder does not know yet, and the party refuses by itself.
        Path("one.txt").write_text(gone)
        ask = ("predict", folder / "bank/run-first", "--ids", "one.txt", "--proba")
        refused = cli(*ask)
        assert refused.code == 2 and "of a person who withdrew" in refused.err

        # The next training asks who withdrew, and leaves the row out at all sides.
        second = train(folder, "second", *SHORT)
        assert second.end() == 0, second.err
        assert rows[0] not in trained_rows(folder, "second")
        known = read_withdrawn(folder / "bank/withdrawn.json")
        assert [(person.id, person.by, person.reason) for person in known.people] == [(gone, "telco", "")]
        refused = cli(*ask)
        assert refused.code == 2 and f"first: {gone!r}" in refused.err
        shown = cli("forget", folder / "bank/coordinator.toml", *holder).json
        assert shown["confirmed"]["telco"]["rows"] == 1 and shown["marked"][0]["trained"] == 1
        report = cli("report", folder / "bank/run-first", "--out", "page", "--page-only")
        assert report.code == 0 and "who withdrew since" in Path("page/report.html").read_text()

        # The label holder forgets somebody else: all parties are told at once, and confirm.
        done = cli("forget", folder / "bank/coordinator.toml", "--id", other, *holder).json
        assert done["answers"] == {"bank": "", "telco": ""}
        at_telco = read_withdrawn(folder / "telco/withdrawn.json")
        assert at_telco.ids == {gone, other} and at_telco.confirmed["coordinator"].rows == 2

        # An old copy of the party's list brings nobody back.
        telco.kill()
        (folder / "telco/withdrawn.json").unlink()
        telco = serve(folder, "telco")
        third = train(folder, "third", *SHORT)
        assert third.end() == 0, third.err
        assert not {rows[0], rows[1]} & {*trained_rows(folder, "third")}
        assert read_withdrawn(folder / "telco/withdrawn.json").ids == {gone, other}

        # A run that began afterwards does not need the lines in the tables any more; one from before does.
        telco.kill()
        for table in ("telco/telco.csv", "bank/bank.csv", "bank/labels.csv"):
            drop(folder / table, gone)
        telco = serve(folder, "telco")
        telco.wait_for('"event": "failed", "run": "first"')
        Path("rest.txt").write_text(next(id for id in customers() if id in alignment.ids and id not in (gone, other)))
        answered = cli("predict", folder / "bank/run-third", "--ids", "rest.txt", "--proba", "--json")
        assert answered.code == 0, answered.err
        check_drift(cli, folder)
        check_training(cli, folder)
        assert gone not in telco.err + bank.err and json.loads(answered.out)["predictions"]
    finally:
        for process in (bank, telco):
            process.kill()
