"""`colonnade ledger`: what left, for an auditor; whoever changes an entry is found out."""

from __future__ import annotations

import csv
import io
import json
import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from colonnade.ledger_files import open_ledger, verify
from colonnade.privacy.chain import linked
from tests.cli.conftest import Call


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    shutil.copytree(finished, tmp_path / "run")
    return tmp_path / "run"


def change(path: Path, number: int, **values: object) -> None:
    lines = path.read_text().splitlines()
    lines[number - 1] = json.dumps({**json.loads(lines[number - 1]), **values})
    path.write_text("\n".join(lines) + "\n")


def test_show_is_a_line_for_each_kind_of_release(cli: Call, finished: Path) -> None:
    done = cli("ledger", "show", finished, "--json")
    groups = {(g["owner"], g["purpose"], g["mechanism"], g["audience"]): g for g in done.json["groups"]}
    assert done.json["entries"] == sum(g["releases"] for g in groups.values())
    train = groups["party_1", "TRAIN", "none", "coordinator"]
    assert train["releases"] == 6 and train["rows"] > 2000 and train["bytes"] > train["rows"] * 6 * 4
    assert train["first"] <= train["last"] and train["first"].endswith("Z")
    text = cli("ledger", "show", finished).out
    assert "EVALUATE" in text and "It is chained and not signed." in text and "earlier version" not in text


def test_export_has_every_entry(cli: Call, finished: Path) -> None:
    stored = [json.loads(line) for line in (finished / "ledger.jsonl").read_text().splitlines()]
    rows = list(csv.DictReader(io.StringIO(cli("ledger", "export", finished).out)))
    assert [row["digest"] for row in rows] == [line["digest"] for line in stored]
    assert (rows[0]["entry"], rows[0]["owner"], rows[0]["time"]) == ("1", "coordinator", stored[0]["time"])
    exported = json.loads(cli("ledger", "export", finished, "--format", "json").out)
    assert [{k: v for k, v in entry.items() if k != "entry"} for entry in exported["entries"]] == stored


def test_export_of_one_party(cli: Call, finished: Path) -> None:
    done = cli("ledger", "export", finished, "--party", "party_1", "--out", "one.csv")
    rows = list(csv.DictReader(Path("one.csv").read_text().splitlines()))
    assert done.out == f"{len(rows)} entries, written to one.csv\n"
    assert {row["owner"] for row in rows} == {"party_1", "coordinator"}
    assert {row["audience"] for row in rows if row["owner"] == "coordinator"} <= {"*", "party_1"}
    nobody = cli("ledger", "export", finished, "--party", "bank")
    assert nobody.code == 2 and "no entry is of or for 'bank'; there are coordinator, party_1, party_2" in nobody.err


def test_a_ledger_that_nobody_touched_fits(cli: Call, run: Path) -> None:
    done = cli("ledger", "verify", run)
    assert done.code == 0 and "fit together" in done.out and "not signed" in done.out
    head = cli("ledger", "verify", run, "--json").json["head"]
    assert cli("predict", run, "--rows", "test").code == 0  # the ledger grows, and its chain goes on
    assert cli("ledger", "verify", run, "--head", head[:20]).code == 0


@pytest.mark.parametrize(
    ("values", "place"), [({"rows": 0}, 4), ({"time": "2020-01-01T00:00:00.000Z"}, 4), ({"chain": "0" * 64}, 4)]
)
def test_the_first_entry_that_was_changed_is_named(cli: Call, run: Path, values: dict[str, object], place: int) -> None:
    change(run / "ledger.jsonl", place, **values)
    done = cli("ledger", "verify", run)
    assert done.code == 1 and f"does NOT fit: entry {place}: its hash does not follow" in done.out
    assert cli("ledger", "verify", run, "--json").json["entry"] == place


def test_a_line_that_is_no_entry(cli: Call, run: Path) -> None:
    lines = (run / "ledger.jsonl").read_text().splitlines()
    (run / "ledger.jsonl").write_text("\n".join([*lines[:2], lines[2][:40], *lines[3:]]))
    done = cli("ledger", "verify", run)
    assert done.code == 1 and "entry 3: it cannot be read" in done.out
    assert "warning: entry 3" in cli("ledger", "export", run).err


def test_a_whole_new_chain_is_found_out_by_the_store_beside_it_or_a_hash_that_was_noted(cli: Call, run: Path) -> None:
    head = cli("ledger", "verify", run, "--json").json["head"]
    path = run / "ledger.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        line.pop("chain")
    lines[3]["rows"] = 1
    path.write_text("".join(json.dumps(line) + "\n" for line in linked(lines)))
    assert "entry 4: run.db has another one in its place" in cli("ledger", "verify", run).out
    (run / "run.db").unlink()
    assert cli("ledger", "verify", run).code == 0, "a chain alone proves nothing against whoever can write the folder"
    told = cli("ledger", "verify", run, "--head", head)
    assert told.code == 1 and "noted earlier is not in the chain" in told.out


def as_at_a_party(run: Path) -> Path:
    """The two files of a ledger under the names that a party's folder has: the store is read, the lines are beside."""
    (run / "run.db").rename(run / "party.db")
    return run / "ledger.jsonl"


@pytest.mark.parametrize("values", [{"rows": 0}, {"chain": "0" * 64}])
def test_a_change_in_the_lines_beside_a_party_s_store_is_named(run: Path, values: dict[str, object]) -> None:
    lines = as_at_a_party(run)
    change(lines, 3, **values)
    assert open_ledger(run).path.name == "party.db"
    found = verify(replace(open_ledger(run), deployed=False))
    assert found.place == 3 and found.problem.startswith("in ledger.jsonl, its hash does not follow")


def test_a_line_beside_a_party_s_store_that_is_no_entry(run: Path) -> None:
    lines = as_at_a_party(run)
    kept = lines.read_text().splitlines()
    lines.write_text("\n".join([*kept[:2], kept[2][:40]]))
    found = verify(replace(open_ledger(run), deployed=False))
    assert found.place == 3 and found.problem.startswith("in ledger.jsonl, it cannot be read")


def test_lines_beside_a_party_s_store_may_be_from_before_the_last_entries(run: Path) -> None:
    lines = as_at_a_party(run)
    lines.write_text("".join(f"{line}\n" for line in lines.read_text().splitlines()[:2]))
    assert not verify(replace(open_ledger(run), deployed=False)).problem


def test_a_ledger_of_an_earlier_version_is_shown_and_not_proved(cli: Call, run: Path) -> None:
    path = run / "ledger.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        for name in ("chain", "time", "size"):
            line.pop(name)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert "which recorded no time. It has no chain." in cli("ledger", "show", run).out
    assert cli("ledger", "export", run).code == 0
    done = cli("ledger", "verify", run)
    assert done.code == 1 and "no entry has a hash" in done.out


def test_an_authority_that_is_named_needs_a_signature(cli: Call, run: Path) -> None:
    done = cli("ledger", "verify", run, "--authority", "ca.crt")
    assert done.code == 1 and "the signature is missing" in done.out


def test_a_folder_without_a_ledger(cli: Call, tmp_path: Path) -> None:
    done = cli("ledger", "show", tmp_path)
    assert done.code == 2 and "has no ledger" in done.err


def test_a_run_that_has_not_ended_is_read_from_its_store(run: Path) -> None:
    (run / "ledger.jsonl").unlink()
    found = open_ledger(run)
    assert found.path.name == "run.db" and found.lines and not verify(found).problem
    db = sqlite3.connect(run / "run.db")
    db.executescript(
        "drop trigger ledger_no_change; update ledger set body = json_set(body, '$.rows', 1) where id = 2;"
    )
    db.commit()
    db.close()
    assert verify(open_ledger(run)).place == 2
