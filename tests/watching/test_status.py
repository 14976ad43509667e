"""`colonnade status` and `colonnade watch`: one screen from files, without torch and without asking a process."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from colonnade.deploy.spent_note import entries_of, read_note
from colonnade.deploy.table_ledger import TableLedger
from colonnade.fit import fit
from colonnade.folder import claimed
from colonnade.live import Live
from colonnade.watching import runs
from colonnade.watching.overview import Overview
from colonnade.watching.stores import StoreReader
from tests.cli.conftest import Call, cli
from tests.federations import small
from tests.service.test_approval import ASKED, Story, party_file, story, until

__all__ = ["cli", "story"]  # the fixtures
NO_TORCH = "import sys; sys.modules.update(dict.fromkeys(('torch', 'pandas', 'sklearn', 'fastapi')));"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run. Look, do not change."""
    folder = tmp_path_factory.mktemp("trained") / "runs" / "first"
    fit(small(), "vimadmm", rounds=4, evaluate_every=2, checkpoint_every=1, out=folder, progress=False)
    return folder


@pytest.fixture
def unfinished(trained: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "unfinished"
    shutil.copytree(trained, folder)
    (folder / "run.json").unlink()
    return folder


def test_it_needs_no_torch_and_changes_nothing(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "runs").symlink_to(trained.parent)
    before = {path.name: path.read_bytes() for path in trained.iterdir() if path.suffix not in (".db-shm", ".lock")}
    code = f"{NO_TORCH} from colonnade.cli.main import main; main(['status'])"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "first: finished, round 4 of 4, validation accuracy 0." in done.stdout and "test accuracy 0." in done.stdout
    assert "simulation, vimadmm, 4 parties" in done.stdout
    after = {path.name: path.read_bytes() for path in trained.iterdir() if path.suffix not in (".db-shm", ".lock")}
    assert after == before


def test_the_figures_are_those_of_the_record(trained: Path, unfinished: Path, cli: Call) -> None:
    record = json.loads((trained / "run.json").read_text())
    told = cli("status", trained, "--json").json["runs"][0]
    assert told["score"] == record["result"]["validation_score"] and told["test"] == record["result"]["test_score"]
    assert told["bytes"] == record["traffic"]["up"] + record["traffic"]["down"]
    with claimed(unfinished):
        read = StoreReader(unfinished / "run.db").look()
        assert read is not None
        assert read.scores == {h["round"]: h["score"] for h in record["history"] if "score" in h}
        done = [one for one in record["traffic"]["rounds"] if one["number"] <= read.facts["number"]]
        assert len(done) == len(record["traffic"]["rounds"]) - 2  # the request to stop and the test rows come later
        for place, party in enumerate(read.about.parties):
            assert read.up[party] == sum(one["up"][place] for one in done)
            assert read.down[party] == sum(one["down"][place] for one in done) > 0
        assert read.entries == len((trained / "ledger.jsonl").read_text().splitlines()) - 5  # the test rows come last
        assert cli("status", unfinished, "--json").json["runs"][0]["state"] == "training"
    assert "not running, round 4 of 4" in cli("status", unfinished).out


def test_nothing_to_show_is_said(cli: Call, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    told = cli("status")
    assert told.code == 2 and "neither party.toml nor coordinator.toml nor a folder runs" in told.err
    assert "not a run" in cli("status", tmp_path / "empty").out
    told = cli("status", tmp_path / "missing")
    assert told.code == 2 and "is neither a run folder nor a file" in told.err
    told = cli("watch", tmp_path / "empty")
    assert told.code == 2 and "there is no run in" in told.err


def test_a_damaged_run_is_named_beside_the_others(trained: Path, tmp_path: Path, cli: Call) -> None:
    shutil.copytree(trained, tmp_path / "runs" / "good")
    (tmp_path / "runs" / "bad").mkdir()
    (tmp_path / "runs" / "bad" / "run.db").write_bytes(b"not a database, but long enough to be read as one" * 9)
    told = {run["run"]: run for run in cli("status", tmp_path / "runs", "--json").json["runs"]}
    assert told["good"]["state"] == "finished" and told["bad"]["state"] == "damaged"
    assert "cannot be read now" in told["bad"]["note"]


def test_watch_tells_events_and_ends_with_the_run(
    unfinished: Path, trained: Path, cli: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "FRESH", 0.0)
    begun, lines = threading.Event(), []

    def training() -> None:
        with claimed(unfinished):
            begun.set()
            until(lambda: lines)
            writer = Live(unfinished)
            writer.tell("waiting", {"round": 3, "parties": ["telco"]})
            until(lambda: "waiting" in "".join(lines))
            shutil.copy(trained / "run.json", unfinished / "run.json")

    def follow() -> None:
        from colonnade.cli.status import _told
        from colonnade.watching.runs import RunReader

        for line in _told(RunReader(unfinished), False):
            lines.append(line)

    watching = threading.Thread(target=follow)
    process = threading.Thread(target=training)
    process.start()
    assert begun.wait(60)
    watching.start()
    process.join(60)
    watching.join(60)
    assert "training, round 4 of 4" in lines[0] and "waiting: parties telco, round 3" in lines[1]
    assert "finished" in lines[-1] and len(lines) == 3
    assert cli("watch", unfinished).code == 0
    (unfinished / "run.json").unlink()
    assert cli("watch", unfinished).code == 1


def test_what_a_terminal_shows(unfinished: Path) -> None:
    from rich.console import Console

    from colonnade.cli.status import _drawn

    Live(unfinished).tell("waiting", {"round": 3, "parties": ["telco"]})
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(_drawn(runs.RunReader(unfinished)))
    shown = console.export_text().splitlines()
    assert shown[0].startswith("unfinished: not running, round 4 of 4") and shown[1].strip() == "█" * 60
    assert shown[-1].endswith("waiting: parties telco, round 3")


def test_a_party_that_waits_for_a_person_and_what_its_table_cost(story: Story, cli: Call) -> None:
    training = story.begin()
    config = party_file(story)
    until(lambda: "waits for approval" in cli("status", config).out)
    (shown,) = cli("status", config, "--json").json["runs"]
    assert shown["waits_for"] == ["a person here"] and shown["since"] and shown["rounds"] == 6
    assert "approval: the policy asks for a person's approval" in shown["note"]
    assert cli("approve", "test", "--config", config).code == 0
    training.join(60)
    (shown,) = cli("status", config, "--json").json["runs"]
    assert (shown["state"], shown["round"], shown["role"]) == ("finished", 6, "party")

    spent = story.place.with_name(f"{story.place.name}.spent.db")
    (table,) = {entered.table for entered in TableLedger(spent).runs()}
    assert entries_of(spent, table)[1] == 1 and read_note(spent, table, "another digest") is None
    config.write_text(config.read_text().replace('id = "i"', f'id = "i"\nspent = "{spent}"\ntable_name = "{table}"'))
    told = cli("status", config).out
    assert f"table '{table}' of {ASKED}: 1 run; the policy allows no limit" in told
    assert "no epsilon (unit PARTY, absent, delta 1e-05): 6 releases left without noise" in told
    spent.with_name(f"{spent.name}.note.json").unlink()
    assert "not computed yet: colonnade privacy budget" in cli("status", config).out
    assert cli("privacy", "budget", config).code == 0
    assert "left without noise" in cli("status", config).out


def test_an_overview_keeps_what_it_has_read(trained: Path) -> None:
    overview = Overview([trained.parent])
    first = overview.look()
    assert overview.look() == first and list(overview.readers()) == ["first"]
