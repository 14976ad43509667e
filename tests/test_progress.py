"""What people see of a training in Python, and a watcher that has seen enough."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from colonnade import Run, callbacks, fit, progress, resume
from colonnade.callbacks import RoundLog, TimeLimit
from colonnade.errors import ConfigError, Unwritable
from colonnade.methods import make_method
from colonnade.progress import SWITCH, Line, Now, Progress
from tests.federations import small

NOW = Progress(78, 2000, 0.9, 0.95, 3_000_000, 12.4)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Progress is on, and shown from the first round on."""
    monkeypatch.delenv(SWITCH)
    monkeypatch.setattr(progress, "FIRST", 0.0)


def trained(**more: Any) -> Run:
    return fit(small(), make_method("local_only"), rounds=4, evaluate_every=1, **more)


def test_a_long_training_says_how_far_it_is(at_once: None, capsys: pytest.CaptureFixture[str]) -> None:
    trained()
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("local_only: round 1 of 4")
    assert len(err.splitlines()) == 1, "a line now and then, not one per round"


def test_a_short_training_says_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv(SWITCH)
    monkeypatch.setattr(progress, "FIRST", 3600.0)
    trained()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("how", [{"progress": False}, {"watch": lambda now: None}], ids=["setting", "watcher"])
def test_it_can_be_switched_off(how: dict[str, Any], at_once: None, capsys: pytest.CaptureFixture[str]) -> None:
    trained(**how)
    assert capsys.readouterr().err == ""


def test_the_environment_switches_it_off_unless_it_is_asked_for(
    at_once: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(SWITCH, "0")
    trained()
    assert capsys.readouterr().err == ""
    trained(progress=True, watch=lambda now: None)
    assert "round 1 of 4" in capsys.readouterr().err


def test_on_a_terminal_one_line_is_rewritten() -> None:
    line = Line("vimadmm", Terminal())
    line(NOW)
    line(NOW)
    line.close()
    text = "vimadmm: round 78 of 2000, validation accuracy 0.9000 (best 0.9500), 3.0 MB, 12 s"
    assert line.stream.getvalue() == f"\r{text}\r{text}\n"  # type: ignore[attr-defined]


def test_a_clock_is_due_first_after_a_while_and_then_regularly(monkeypatch: pytest.MonkeyPatch) -> None:
    time = 100.0
    monkeypatch.setattr("time.monotonic", lambda: time)
    clock, seen = Now(3.0, 10.0), []
    for _ in range(30):
        if clock.due():
            seen.append(time - 100)
        time += 1
    assert seen == [3, 13, 23]


# -- a watcher that has seen enough -----------------------------------------------------------


def test_a_watcher_can_stop_a_training(tmp_path: Path) -> None:
    seen: list[int] = []

    def enough(now: Progress) -> bool:
        seen.append(now.round)
        return now.round == 3

    run = fit(small(), make_method("vimadmm_j"), rounds=50, evaluate_every=1, out=tmp_path / "run", watch=enough)
    assert seen == [1, 2, 3]
    assert (run.result["rounds"], run.result["stop"]) == (3, "stopped by the watcher")
    assert run.result["best_round"] is not None
    assert run.result["test_score"] is not None
    assert Run.load(tmp_path / "run").fingerprint() == run.fingerprint()
    assert resume(tmp_path / "run", small()).fingerprint() == run.fingerprint()


def test_what_is_kept_is_the_best_round_until_then() -> None:
    method = make_method("vimadmm_j")
    stopped = fit(small(), method, rounds=50, evaluate_every=1, watch=lambda now: now.round == 4)
    short = fit(small(), method, rounds=50, evaluate_every=1)
    scores = {h["round"]: h["score"] for h in short.history if "score" in h and h["round"] <= 3}
    assert stopped.result["validation_score"] == max(scores.values())


# -- callbacks --------------------------------------------------------------------------------


class Notes:
    """Everything a callback is told."""

    def __init__(self, stop: int | None = None, how: str = "return") -> None:
        self.rounds: list[int] = []
        self.ended: list[Run] = []
        self.stop, self.how = stop, how

    def on_round(self, now: Progress) -> bool | None:
        self.rounds.append(now.round)
        if now.round == self.stop and self.how == "call":
            now.stop()
        return now.round == self.stop if self.how == "return" else None

    def on_end(self, run: Run) -> None:
        self.ended.append(run)


def test_callbacks_hear_every_round_and_the_end() -> None:
    one, other = Notes(), Notes()
    run = trained(callbacks=[one, other])
    assert one.rounds == other.rounds == [1, 2, 3, 4, 4]  # at last the final model is evaluated
    assert one.ended == other.ended == [run]


@pytest.mark.parametrize("how", ["return", "call"])
def test_a_callback_can_stop_a_training_and_all_others_still_hear_of_that_round(how: str, tmp_path: Path) -> None:
    first, later = Notes(2, how), Notes()
    run = trained(callbacks=[first, later], out=tmp_path / "run")
    assert first.rounds == later.rounds == [1, 2]
    assert run.result["rounds"] == 2
    assert run.result["best_round"] is not None
    assert later.ended == [run]
    assert later.ended[0].path == tmp_path / "run"


def test_a_callback_may_lack_either_function() -> None:
    class Round:
        seen = 0

        def on_round(self, now: Progress) -> None:
            self.seen += 1

    class End:
        run: Run | None = None

        def on_end(self, run: Run) -> None:
            self.run = run

    each, end = Round(), End()
    run = trained(callbacks=[each, end])
    assert (each.seen, end.run) == (5, run)


def test_a_resumed_run_tells_its_callbacks(tmp_path: Path) -> None:
    class Killed(Exception):
        pass

    class Kill:
        def on_round(self, now: Progress) -> None:
            if now.round == 2:
                raise Killed

    with pytest.raises(Killed):
        trained(callbacks=[Kill()], out=tmp_path / "run", checkpoint_every=1)
    notes = Notes()
    run = resume(tmp_path / "run", small(), callbacks=[notes])
    assert notes.rounds[-1] == 4
    assert notes.ended == [run]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ([3], r"a callback has on_round\(progress\) or on_end\(run\); got 3$"),
        ([lambda now: True], "a function of the progress is given as watch="),
        ([Notes], r"got the class Notes: say Notes\(\.\.\.\)"),
        (Notes(), "callbacks needs a list"),
    ],
    ids=["number", "function", "class", "not a list"],
)
def test_what_is_no_callback_is_refused_before_training(given: Any, told: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=told):
        trained(callbacks=given, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_round_log_has_a_line_per_round_and_one_for_the_final_model(tmp_path: Path) -> None:
    trained(callbacks=[RoundLog(tmp_path / "rounds.jsonl")])
    lines = [json.loads(line) for line in (tmp_path / "rounds.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == [1, 2, 3, 4, 4]
    assert all(line["rounds"] == 4 and line["metric"] == "validation accuracy" for line in lines)
    assert "epsilon" not in lines[-1]


def test_the_round_log_never_has_an_epsilon_without_what_belongs_to_it(tmp_path: Path) -> None:
    noise = {"mechanism": "gaussian", "clip": 1.0, "sigma": 5.0}
    fit(small(), "vimadmm", rounds=2, privacy=noise, callbacks=[RoundLog(tmp_path / "rounds.jsonl")])
    last = json.loads((tmp_path / "rounds.jsonl").read_text().splitlines()[-1])
    assert last["epsilon"] > 0
    assert "unit PARTY" in last["epsilon_is"]
    assert "delta 1e-05" in last["epsilon_is"]


def test_a_round_log_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(Unwritable, match="cannot be written"):
        trained(callbacks=[RoundLog(tmp_path / "missing" / "rounds.jsonl")])


def test_a_time_limit_ends_a_training(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 1000, 10))
    monkeypatch.setattr(callbacks.time, "monotonic", lambda: next(clock))
    limit = TimeLimit(20)
    assert trained(callbacks=[limit], progress=False).result["rounds"] == 3
    assert trained(callbacks=[limit], progress=False).result["rounds"] == 3, "each training has its own time"
    with pytest.raises(ConfigError, match="seconds above 0"):
        TimeLimit(0)
