"""live.jsonl: what a training leaves for those who watch it, and that it is never in the training's way."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from colonnade import live
from colonnade.fit import fit
from colonnade.folder import claimed
from colonnade.live import FILE, Live, read_live
from colonnade.watching import runs
from colonnade.watching.runs import RunReader
from tests.federations import small


def test_a_training_leaves_its_rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "OFTEN", 0.0)
    monkeypatch.setattr(live, "SHARE", 1e9)
    noise = {"mechanism": "gaussian", "clip": 1.0, "sigma": 5.0, "evaluation": "simulated"}
    run = fit(small(), "vimadmm", rounds=4, evaluate_every=2, privacy=noise, out=tmp_path, progress=False)
    events = read_live(tmp_path)
    rounds = [event for event in events if event["event"] == "round"]
    assert [event["round"] for event in rounds] == [1, 2, 3, 4, 4]  # once more when the last one was evaluated
    scores = {h["round"]: h["score"] for h in run.history if "score" in h}
    assert {event["scored"]: event["score"] for event in rounds if event["score"] is not None} == scores
    assert "exact accountant, unit PARTY, neighbours: absent, delta" in rounds[-1]["epsilon_is"]
    assert events[-1]["event"] == "ended"
    shown = RunReader(tmp_path).status()  # from the record now, with the same figure
    assert shown.epsilon is not None and shown.epsilon.epsilon == pytest.approx(rounds[-1]["epsilon"])
    assert "exact accountant, unit PARTY" in str(shown.epsilon)


def test_a_file_that_cannot_be_written_ends_nothing(tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()
    assert fit(small(), "vimadmm", rounds=2, out=tmp_path, progress=False).result["rounds"] == 2
    assert read_live(tmp_path) == []


def test_rounds_are_thinned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1.0]
    monkeypatch.setattr(live.time, "monotonic", lambda: clock[0])
    writer, lines = Live(tmp_path), 0
    for _ in range(864_000):  # a day of ten rounds in a second
        lines += writer.due()
        clock[0] += 0.1
    assert 1_000 < lines < 10_000


def test_a_long_file_is_put_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "LARGEST", 1000)
    writer = Live(tmp_path)
    for number in range(100):
        writer.tell("refusing", {"round": number, "reason": "x"})
    sizes = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    assert set(sizes) == {FILE, f"{FILE}.1"} and max(sizes.values()) < 1200
    assert read_live(tmp_path)[-1]["round"] == 99


def test_waiting_is_a_line_when_it_changes(tmp_path: Path) -> None:
    told: list[str] = []
    tell = Live(tmp_path).telling(lambda event, **facts: told.append(event))
    for seconds in range(5):
        tell("waiting", round=3, parties=["telco"], seconds=seconds)
    tell("waiting", round=3, parties=["telco", "bank"], seconds=6)
    tell("round", number=3)  # a watcher of the training writes those
    tell("refused", party="telco", reason="x")  # a flood of these is not kept
    assert len(told) == 8
    events = [{k: v for k, v in event.items() if k != "time"} for event in read_live(tmp_path)]
    assert [event["parties"] for event in events] == [["telco"], ["telco", "bank"]]


def test_what_others_say_stays_on_its_line(tmp_path: Path) -> None:
    Live(tmp_path).tell("refusing", {"round": 1, "reason": 'a\n{"event": "ended"}' + "x" * 1000})
    (event,) = read_live(tmp_path)
    assert event["event"] == "refusing" and "\n" not in event["reason"] and len(event["reason"]) == live.LONGEST


def test_lines_that_are_not_whole_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = json.dumps({"time": "2026-01-01T00:00:00Z", "event": "agreed"})
    (tmp_path / FILE).write_text(f'{good}\n[1]\n{{"event": 3}}\n{good}\n{good[:20]}')
    assert [event["event"] for event in read_live(tmp_path)] == ["agreed", "agreed"]
    monkeypatch.setattr(live, "TAIL", 100)
    assert [event["event"] for event in read_live(tmp_path)] == ["agreed"]


def test_figures_of_one_moment_stay_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OFTEN", "SELDOM"):
        monkeypatch.setattr(live, name, 1e9)  # one line, however slow the machine is
    monkeypatch.setattr(runs, "FRESH", 1e9)
    fit(small(), "vimadmm", rounds=3, checkpoint_every=1, evaluate_every=1, out=tmp_path, progress=False)
    (tmp_path / "run.json").unlink()
    shown = RunReader(tmp_path).status()
    assert (shown.state, shown.round, shown.best) == ("not running", 3, None)  # where it would go on
    with claimed(tmp_path):
        assert RunReader(tmp_path).status().round == 1  # the last line, a moment ago: round, best and cost of then
        monkeypatch.setattr(runs, "FRESH", 0.0)
        shown = RunReader(tmp_path).status()
        assert (shown.round, shown.best, shown.metric) == (3, None, "validation accuracy")


def test_a_label_holder_that_waits_before_its_run_has_begun(tmp_path: Path) -> None:
    (tmp_path / "deployment.json").write_text('{"config": "/x/coordinator.toml", "run": "churn"}')
    (tmp_path / "run.db").touch()
    with claimed(tmp_path):
        Live(tmp_path).tell("waiting", {"round": -1, "parties": ["telco"], "note": "a person at telco has to approve"})
        shown = RunReader(tmp_path).status()
        (told,) = read_live(tmp_path)
    assert (shown.run, shown.role, shown.state, shown.waits_for) == ("churn", "label holder", "waiting", ("telco",))
    assert "round" not in told, "the number of a step of the agreement says nothing to people"


def test_who_is_waited_for_and_since_when(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "FRESH", 0.0)
    fit(small(), "vimadmm", rounds=2, checkpoint_every=1, out=tmp_path, progress=False)
    (tmp_path / "run.json").unlink()
    reader, writer = RunReader(tmp_path), Live(tmp_path)
    assert reader.status().state == "not running"
    with claimed(tmp_path):
        writer.tell("waiting", {"round": 3, "parties": ["telco"], "note": "a person at telco has to approve the run"})
        shown = reader.status()
        assert (shown.state, shown.waits_for, shown.round, shown.rounds) == ("waiting", ("telco",), 2, 2)
        assert shown.since == shown.time != "" and "a person at telco" in shown.note
        writer.tell("disconnected", {})
        assert reader.status().waits_for == ("the server",)
        writer.tell("reconnected", {})
        assert (reader.status().state, reader.status().waits_for) == ("training", ())
