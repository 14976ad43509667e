"""What people see: text and tables on stdout, progress on stderr; or one JSON object and nothing else."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table as RichTable
from rich.text import Text

from colonnade.progress import EVERY, FIRST, Now, switched_off

if TYPE_CHECKING:
    from colonnade.progress import Progress as Exchange
    from colonnade.report.tables import Table

WIDE = 140  # columns where there is no terminal: a table in a file is not cut
MOST_NAME = 48  # letters of a name that stands on one line
NOISY = "noisy labels: protected labels judge the validation rows, so this ranks rounds and is not the true score"


@dataclass(frozen=True)
class Screen:
    """Where a command writes, given --json and --quiet."""

    as_json: bool = False
    quiet: bool = False

    @property
    def talks(self) -> bool:
        """Whether text for people is wanted on stdout."""
        return not (self.as_json or self.quiet)

    def notify(self, text: str = "") -> None:
        """A line for people."""
        if self.talks:
            print(text)

    def aside(self, text: str) -> None:
        """A line for people who may be piping stdout somewhere."""
        if not self.quiet:
            print(text, file=sys.stderr)

    def table(self, table: Table) -> None:
        """A table for people; numbers are not cut, words wrap, in the first column only where they are many."""
        if not self.talks:
            return
        drawn = RichTable(title=table.caption, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
        names = max((len(row[0]) for row in table.rows), default=0) <= MOST_NAME
        for place, name in enumerate(table.columns):
            number = place not in table.words
            heading = name.replace(" ", "\n", 1) if number else name
            drawn.add_column(heading, justify="right" if number else "left", no_wrap=number or (place == 0 and names))
        for row in table.rows:
            drawn.add_row(*row)
        terminal = sys.stdout.isatty()
        Console(highlight=False, markup=False, width=None if terminal else WIDE).print(drawn)

    def emit(self, facts: Mapping[str, Any]) -> None:
        """The one JSON object, if it is wanted; what is not a number is null, as JSON has it."""
        if self.as_json:
            print(json.dumps(_plain(facts)))

    @contextmanager
    def progress(self) -> Iterator[Bars]:
        """Progress bars on stderr; where there is no terminal, a line now and then."""
        console = Console(stderr=True)
        columns = (
            SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=30), MofNCompleteColumn(),
            TextColumn("{task.fields[told]}"), TimeElapsedColumn(), TimeLeft(),
        )  # fmt: skip
        hidden = self.quiet or not console.is_terminal
        lines = None if self.quiet or console.is_terminal or switched_off() else Now(FIRST, EVERY)
        with Progress(*columns, console=console, disable=hidden) as bars:
            yield Bars(bars, lines)


class TimeLeft(ProgressColumn):
    """How long it takes at the speed of the last rounds; a run that stops early takes less."""

    max_refresh = 0.5  # seconds: a figure that changes faster cannot be read

    def render(self, task: Task) -> Text:
        """`0:42 left`; nothing where it is not known or not needed any more."""
        left = task.time_remaining
        if left is None or task.finished:
            return Text("")
        minutes, seconds = divmod(math.ceil(left), 60)
        hours, minutes = divmod(minutes, 60)
        clock = f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
        return Text(f"{clock} left", style="progress.remaining")


@dataclass(frozen=True)
class Bars:
    """One bar per training; or lines, for all that are at work, when `lines` is due."""

    bars: Progress
    lines: Now | None = None
    said: set[str] = field(default_factory=set)  # legends that stand above the bars already

    def watch(self, name: str, rounds: int) -> Callable[[Exchange], None]:
        """A new bar; the returned function moves it."""
        task = self.task(name, rounds)

        def move(now: Exchange) -> None:
            self._explain(now)
            task(now.round, told(now))

        return move

    def task(self, name: str, total: int, unit: str = "round") -> Callable[..., None]:
        """A new bar of so many units; the returned function says how many are done, and what stands beside it."""
        task = self.bars.add_task(name, total=total, told="", unit=unit)

        def move(done: int, told: str = "") -> None:
            self.bars.update(task, completed=done, told=told)
            if self.lines is not None and self.lines.due():
                self._print()

        return move

    def _print(self) -> None:
        """A line for everything that has begun and is not done."""
        for task in self.bars.tasks:
            if not task.finished and (task.completed or task.fields["told"]):
                counted = f"{task.fields['unit']} {task.completed:.0f} of {task.total:.0f}"
                line = f"{task.description}: {counted} {task.fields['told']}"
                print(line.rstrip(), file=sys.stderr, flush=True)

    def _explain(self, now: Exchange) -> None:
        """What belongs to the figures beside the bars, once above them."""
        legends = [now.spent.legend] if now.spent is not None else []
        legends += [NOISY] if now.noisy_labels and now.score is not None else []
        for legend in legends:
            if legend not in self.said and not self.bars.disable:
                self.bars.console.print(legend, highlight=False)
                self.said.add(legend)


def told(now: Exchange) -> str:
    """What stands beside a bar: the score and what judged it, the bytes, and what the parties have spent."""
    score = "" if now.score is None else f"{now.judged} {now.score:.4f} (best {now.best:.4f}) "
    return f"{score}{now.bytes / 1e6:.1f} MB" + ("" if now.spent is None else f" {now.spent.figure}")


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
