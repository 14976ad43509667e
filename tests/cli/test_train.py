"""`train` and `resume`: what they write, what they print, and what an interruption leaves behind."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from colonnade.cli.screen import Bars
from colonnade.fit import Progress, fit
from colonnade.methods import make_method
from colonnade.run import Run, read_record
from colonnade.store import Store
from tests.cli.conftest import Call
from tests.federations import small
from tests.processes import LONG, Forked

FILES = {"run.json", "model.safetensors", "ledger.jsonl", "run.db"}


def interrupt_at(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the user press Ctrl-C after so many rounds of every training."""

    def watch(self: Bars, name: str, rounds: int) -> object:
        def move(now: Progress) -> None:
            if now.round == number:
                raise KeyboardInterrupt

        return move

    monkeypatch.setattr(Bars, "watch", watch)


def test_a_run_is_told_in_words_and_saved(cli: Call, config: Path) -> None:
    done = cli("train", config, "--out", "here")
    assert done.code == 0
    assert {path.name for path in Path("here").iterdir()} >= FILES
    assert "vimadmm trained one model over 2 parties of digits-2" in done.out
    assert "the replies reveal the training labels to every party" in done.out
    assert "No noise was used; the ledger lists" in done.out
    assert done.out.rstrip().endswith("next: colonnade report here")
    assert done.err == ""  # no terminal, no progress


def test_json_is_one_object_and_agrees_with_the_record(cli: Call, config: Path) -> None:
    done = cli("train", config, "--out", "here", "--json")
    record = read_record(Path("here"))
    assert done.json["test_score"] == record["result"]["test_score"]
    assert done.json["bytes"]["up"] == record["traffic"]["up"]
    assert done.json["fingerprint"] == record["fingerprint"]


def test_quiet_prints_the_folder_only(cli: Call, config: Path) -> None:
    done = cli("train", config, "--quiet")
    assert Path(done.out.strip(), "run.json").exists()
    assert done.out.startswith(f"runs{os.sep}")


def test_where_a_page_listens_needs_the_page(cli: Call, config: Path) -> None:
    done = cli("train", config, "--listen", "127.0.0.1:8080")
    assert done.code == 2
    assert "--live was not given" in done.err
    assert not list(Path().glob("runs/*"))


def test_two_runs_in_one_second_get_two_folders(cli: Call, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.strftime", lambda form: "20260101-000000")
    first = cli("train", config, "--quiet", "--set", "training.rounds=1").out.strip()
    second = cli("train", config, "--quiet", "--set", "training.rounds=1").out.strip()
    assert (first, second) == ("runs/20260101-000000-vimadmm", "runs/20260101-000000-vimadmm-2")


def test_settings_of_the_command_line_win(cli: Call, config: Path) -> None:
    changes = ("--set", "training.rounds=2", "--set", "method.name=local_only", "--set", "training.schedule.batch=99")
    assert cli("train", config, "--out", "here", *changes, "--device", "cpu").code == 0
    record = read_record(Path("here"))
    assert record["method"]["name"] == "local_only"
    assert (record["training"]["rounds"], record["training"]["schedule"]["batch"]) == (2, 99)
    assert record["config"]["training"]["device"] == "cpu"


def test_a_diverged_run_exits_1_with_its_reason_and_a_complete_folder(cli: Call, config: Path) -> None:
    wild = ("method.optimiser={kind='sgd',lr=1e30}", "method.local_steps=5", "method.head_update=sgd")
    changes = [part for change in wild for part in ("--set", change)]
    done = cli("train", config, "--out", "here", "--json", *changes)
    assert done.code == 1, done.err
    assert done.json["diverged"] is True
    assert done.err.startswith("diverged: ")
    assert {path.name for path in Path("here").iterdir()} >= FILES
    assert cli("report", "here").code == 0


def test_an_interrupted_run_says_how_to_go_on_and_ends_the_same(
    cli: Call, config: Path, finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        interrupt_at(5, patch)
        broken = cli("train", config, "--out", "here")
    assert broken.code == 130
    assert broken.err.strip() == "interrupted; continue with: colonnade resume here"
    unfinished = cli("report", "here")
    assert unfinished.code == 2
    assert "colonnade resume here" in unfinished.err
    done = cli("resume", "here", "--json")
    assert done.code == 0, done.err
    assert done.json["fingerprint"] == read_record(finished)["fingerprint"]
    assert done.json["rounds"] == 6


def test_a_finished_run_says_so(cli: Call, finished: Path) -> None:
    done = cli("resume", finished)
    assert done.code == 0
    assert "is already finished (all rounds done); there is nothing to resume" in done.out
    assert cli("resume", finished, "--json").json["resumed"] is False


def test_a_run_from_python_is_resumed_in_python(cli: Call) -> None:
    def stop(now: Progress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(small(), make_method("local_only"), rounds=3, out="here", watch=stop)
    refused = cli("resume", "here")
    assert refused.code == 2
    assert "was started from Python" in refused.err


@pytest.mark.skipif(os.name == "nt", reason="signals")
@pytest.mark.parametrize(
    ("number", "status", "told"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "stopped by SIGTERM")],
    ids=["Ctrl-C", "SIGTERM"],
)
def test_a_real_signal_from_outside(config: Path, tmp_path: Path, number: int, status: int, told: str) -> None:
    process = Forked(tmp_path, ["train", str(config), "--set", "training.rounds=100000", "--out", "here"])
    wait_until_training(process, tmp_path / "here")
    process.send_signal(number)
    out, err = process.communicate(timeout=LONG)
    assert process.poll() == status, err
    assert out == ""
    assert err.splitlines()[-1] == f"{told}; continue with: colonnade resume here"
    assert "Traceback" not in err


def wait_until_training(process: Forked, folder: Path) -> None:
    """Come back when the first rounds are in the store."""
    deadline = time.monotonic() + LONG
    while not committed(folder / "run.db"):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "nothing was stored"
        time.sleep(0.02)


def committed(path: Path) -> bool:
    """Whether a store holds a checkpoint; it is read as a stranger would, without making or changing it."""
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
            return db.execute("select 1 from state").fetchone() is not None
    except sqlite3.OperationalError:  # not there yet, or just being made
        return False


def test_the_run_can_be_loaded_in_python(finished: Path) -> None:
    run = Run.load(finished)
    assert run.accuracy == json.loads((finished / "run.json").read_text())["result"]["test_score"]


class LateInterrupt:
    """A connection whose user presses Ctrl-C at the moment a commit is through."""

    def __init__(self, db: Any) -> None:
        self.db = db

    def execute(self, statement: str, *values: Any) -> Any:
        done = self.db.execute(statement, *values)
        if statement == "commit":
            raise KeyboardInterrupt
        return done

    def __getattr__(self, name: str) -> Any:
        return getattr(self.db, name)


def test_an_interrupt_just_after_a_commit_is_still_an_interrupt(tmp_path: Path) -> None:
    store = Store(tmp_path / "run.db")
    store._db = LateInterrupt(store._db)  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        store.commit({"number": 1}, {}, history=[], traffic=[], ledger=[])
    found = store.snapshot()
    assert found is not None
    assert found.facts == {"number": 1}
    store.close()
