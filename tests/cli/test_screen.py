"""Progress for people who watch: score, bytes, epsilon, time left; and silence where nobody does."""

from __future__ import annotations

import io
import sys
from dataclasses import replace

import pytest
from rich.console import Console
from rich.progress import Progress as RichProgress

from colonnade.cli.screen import Bars, Screen, TimeLeft
from colonnade.progress import SWITCH, Progress
from colonnade.report.tables import Table

HALF = Progress(round=50, rounds=100, score=0.9512, best=0.96, bytes=12_300_000, seconds=30.0)


class Clock:
    """A second per round."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def shown(rounds: int, seconds: float, total: int = 100) -> str:
    """What stands in the column after so many rounds of equal length."""
    clock = Clock()
    bars = RichProgress(TimeLeft(), console=Console(file=io.StringIO()), get_time=clock, speed_estimate_period=1e9)
    task = bars.add_task("x", total=total)
    for number in range(1, rounds + 1):
        clock.now = number * seconds
        bars.update(task, completed=number)
    return TimeLeft().render(bars.tasks[0]).plain


@pytest.mark.parametrize(
    ("rounds", "seconds", "text"),
    [(0, 1, ""), (50, 1, "0:50 left"), (10, 1, "1:30 left"), (50, 100, "1:23:20 left"), (100, 1, "")],
)
def test_time_left(rounds: int, seconds: float, text: str) -> None:
    assert shown(rounds, seconds) == text


def test_a_resumed_run_is_not_taken_for_a_fast_one() -> None:
    """Its first step goes from nothing to where it was: that is no speed."""
    clock = Clock()
    bars = RichProgress(console=Console(file=io.StringIO()), get_time=clock, speed_estimate_period=1e9)
    task = bars.add_task("x", total=100)
    for number in (80, 81, 82, 83):
        clock.now += 10
        bars.update(task, completed=number)
    assert TimeLeft().render(bars.tasks[0]).plain == "2:50 left"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def watch(screen: Screen, monkeypatch: pytest.MonkeyPatch, stream: io.StringIO) -> str:
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setenv("TERM", "xterm")
    with screen.progress() as bars:
        bars.watch("vimadmm", 100)(HALF)
    return stream.getvalue()


def test_a_terminal_is_told_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    out = watch(Screen(), monkeypatch, Terminal())
    for part in ("vimadmm", "50/100", "validation accuracy 0.9512 (best 0.9600)", "12.3 MB"):
        assert part in out


def test_a_file_is_told_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.delenv(SWITCH)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setattr("time.monotonic", lambda: now)
    with Screen().progress() as bars:
        first, second, tried = bars.watch("vimadmm", 100), bars.watch("fdml", 100), bars.task("tuning", 20, "trial")
        for number in range(1, 26):  # a second each
            now += 1.0
            first(replace(HALF, round=number))
            if number > 20:
                second(replace(HALF, round=number - 20))
                tried(1, "best validation 0.5")
    told = [f"vimadmm: round {n} of 100 validation accuracy 0.9512 (best 0.9600) 12.3 MB" for n in (3, 13, 23)]
    also = [told[0].replace("vimadmm: round 3", "fdml: round 2"), "tuning: trial 1 of 20 best validation 0.5"]
    assert sys.stderr.getvalue().splitlines() == [*told, *also]


def test_nobody_is_told_anything_who_asked_for_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("colonnade.cli.screen.FIRST", 0.0)
    assert watch(Screen(), monkeypatch, io.StringIO()).strip() == ""  # tests set the switch
    monkeypatch.delenv(SWITCH)
    assert watch(Screen(), monkeypatch, io.StringIO()).startswith("vimadmm: round 50 of 100")
    assert watch(Screen(quiet=True), monkeypatch, io.StringIO()).strip() == ""
    assert watch(Screen(quiet=True), monkeypatch, Terminal()).strip() == ""


def test_every_column_is_on_the_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    with Screen().progress() as bars:
        assert isinstance(bars, Bars)
        assert any(isinstance(column, TimeLeft) for column in bars.bars.columns)


def test_long_names_wrap_before_a_number_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    numbers = tuple(f"{place}.25 ± 0.125" for place in range(7))
    names = ("a method (with settings, among settings, that many runs differ in, so that its name is long) #1", "b")
    Screen().table(Table("t", ("method", *"abcdefg"), tuple((name, *numbers) for name in names)))
    shown = capsys.readouterr().out
    assert all(number in shown for number in numbers)
