"""What people see of a training in Python, and a watcher that has seen enough."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from colonnade import Run, fit, progress, resume
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
