"""`colonnade status` and `colonnade watch`: how runs are, from the files that their processes leave."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from colonnade.cli.options import AsJson, Overrides
from colonnade.cli.screen import Screen
from colonnade.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Group

    from colonnade.live import Event
    from colonnade.watching.overview import ModelStatus, Status, TableStatus
    from colonnade.watching.runs import RunReader, RunStatus

PAUSE = 0.5  # seconds between two looks
BAR = 60  # letters
LAST = 12  # events below a run that is watched


def status(
    places: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[FILE.toml|RUN]...",
            help="party.toml, coordinator.toml, run folders; default: what is in this folder.",
            show_default=False,
        ),
    ] = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Show on one screen how runs are: round, score, who is waited for and since when, and what tables have cost.

    It reads the files that processes leave and asks none of them, so it disturbs no training and works without any.

    Example: colonnade status party.toml
    """
    from colonnade.watching.overview import Overview

    overview = Overview(places, overrides or []) if places else Overview.here()
    found, screen = overview.look(), Screen(as_json)
    screen.emit(found.to_json())
    for line in lines_of(found):
        screen.notify(line)


def watch(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, also of a party.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Follow one run until it ends: live on a terminal, elsewhere a line per event. Exit status 1: it did not finish.

    Nothing is asked of the process that trains; a watcher that is stopped stops nothing else.

    Example: colonnade watch runs/first
    """
    from rich.console import Console
    from rich.live import Live

    from colonnade.watching.runs import FINISHED, RunReader

    reader = RunReader(_one_run(run))
    console = Console(highlight=False, markup=False)
    try:
        if as_json or not console.is_terminal:
            for line in _told(reader, as_json):
                print(line, flush=True)
        else:
            with Live(_drawn(reader), console=console, auto_refresh=False) as live:
                while _goes_on(reader):
                    time.sleep(PAUSE)
                    live.update(_drawn(reader), refresh=True)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    if reader.status().state != FINISHED:
        raise typer.Exit(1)


def _one_run(place: Path) -> Path:
    """The folder of the run; of a model with versions, that of the last one."""
    from colonnade.service.versions import folder_of, numbers
    from colonnade.watching.overview import is_run

    if not place.is_dir():
        raise ConfigError(f"{str(place)!r} is not a folder; name the folder of a run")
    if is_run(place):
        return place
    versions = numbers(place)
    if versions:
        return folder_of(place, versions[-1])
    raise ConfigError(f"there is no run in {str(place)!r}; colonnade status {place} shows what is")


def _goes_on(reader: RunReader) -> bool:
    from colonnade.watching.runs import DAMAGED, OVER, STOPPED, UNKNOWN

    return reader.status().state not in (*OVER, STOPPED, DAMAGED, UNKNOWN, "refused") and reader.busy


def _told(reader: RunReader, as_json: bool) -> Iterator[str]:
    """A line per event that is new, and a last one about the end."""
    import json

    from colonnade.live import read_live

    before = len(read_live(reader.folder))
    first = reader.status()
    yield json.dumps(first.to_json()) if as_json else line_of(first)
    while _goes_on(reader):
        events = read_live(reader.folder)
        for event in events[before:]:
            yield json.dumps(event) if as_json else f"{event.get('time')} {in_words(event)}"
        before = len(events)
        time.sleep(PAUSE)
    if (shown := reader.status()) != first:
        yield json.dumps(shown.to_json()) if as_json else line_of(shown)


def in_words(event: Event) -> str:
    """An event for people."""
    facts = dict(event)
    kind = str(facts.pop("event"))
    facts.pop("time", None)
    if kind == "round":
        score, told = facts.get("score"), f"round {facts.get('round')} of {facts.get('rounds')}"
        told += f", {facts.get('metric')} {score:.4f}" if isinstance(score, float) else ""
        if isinstance(facts.get("epsilon"), float):
            told += f", epsilon {facts['epsilon']:.3f} ({facts.get('epsilon_is')})"
        return told
    words = [
        f"{name} {', '.join(map(str, value)) if isinstance(value, list) else value}" for name, value in facts.items()
    ]
    return f"{kind}: {', '.join(words)}" if words else kind


def _drawn(reader: RunReader) -> Group:
    from rich.console import Group
    from rich.text import Text

    from colonnade.live import read_live

    shown = reader.status()
    done = round(BAR * (shown.round or 0) / (shown.rounds or 1))
    events = [Text(f"{event.get('time')} {in_words(event)}", overflow="ellipsis", no_wrap=True) for event in
              read_live(reader.folder)[-LAST:]]  # fmt: skip
    bar = Text("█" * done + "░" * (BAR - done))
    return Group(Text(line_of(shown), style="bold"), bar, *map(Text, details_of(shown)), Text(), *events)


def lines_of(found: Status) -> list[str]:
    """Everything in words."""
    lines = []
    for shown in found.runs:
        lines += [line_of(shown), *(f"  {line}" for line in details_of(shown))]
    if found.left_out:
        lines.append(f"and {found.left_out} older runs")
    lines += [str(one) for one in found.withdrawals]
    for table in found.tables:
        lines += table_lines(table)
    for model in found.models:
        lines += model_lines(model)
    return lines or ["no run has begun"]


def line_of(shown: RunStatus) -> str:
    """A run in one line."""
    told = [f"{shown.run}: {shown.state}"]
    if shown.round is not None and shown.rounds:
        told.append(f"round {shown.round:,} of {shown.rounds:,}")
    if shown.score is not None:
        best = f" (best {shown.best:.4f})" if shown.best is not None and shown.best != shown.score else ""
        best = " (kept round)" if shown.state in ("finished", "diverged") else best
        told.append(f"{shown.metric or 'validation score'} {shown.score:.4f}{best}")
    if shown.test is not None:
        told.append(f"test {shown.test_metric} {shown.test:.4f}")
    return ", ".join(told)


def details_of(shown: RunStatus) -> list[str]:
    """What stands below it."""
    lines = []
    if shown.waits_for:
        why = f": {shown.note}" if shown.note else ""
        lines.append(f"waits for {', '.join(shown.waits_for)}{_since(shown.since)}{why}")
    elif shown.note:
        lines.append(shown.note)
    if shown.decided:
        lines.append(shown.decided)
    facts = [shown.role, shown.method, f"{len(shown.parties)} parties" if len(shown.parties) > 1 else ""]
    facts += [f"{shown.bytes / 1e6:.1f} MB of training" if shown.bytes is not None else ""]
    facts += [f"{shown.seconds:.0f} s" if shown.seconds is not None else ""]
    lines.append(", ".join(filter(None, facts)))
    if shown.epsilon is not None:
        lines.append(str(shown.epsilon))
    return lines


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _since(text: str) -> str:
    from colonnade.watching.runs import seconds_since

    past = seconds_since(text)
    if past == math.inf:
        return ""
    seconds = round(past)
    size, unit = next(((s, u) for s, u in ((86400, "days"), (3600, "h"), (60, "min")) if seconds >= 2 * s), (1, "s"))
    return f" since {text} ({seconds // size} {unit})"


def table_lines(table: TableStatus) -> list[str]:
    """What a table has cost, in words."""
    limit = "no limit" if table.most_epsilon is None else f"epsilon {table.most_epsilon:g} by unit"
    lines = [f"table {table.table!r} of {table.party}: {_count(table.runs, 'run')}; the policy allows {limit}"]
    lines += [f"  all together: {one}" for one in table.spent]
    if table.note:
        lines.append(f"  {table.note}")
    elif not table.runs:
        lines.append("  nothing was spent on it")
    rows, times, most = table.predictions
    if rows:
        told = f"{rows:,} rows, {times:,} times in all, one row {most:,} times at most"
        lines.append(f"  predicted, which no noise covers: {told}")
    return lines


def model_lines(model: ModelStatus) -> list[str]:
    """The versions of a model, in words."""
    from colonnade.cli.models import line_of_version

    waits = f"; {model.waiting} more to be trained" if model.waiting else ""
    lines = [f"model {model.run}: {f'version {model.used}' if model.used else 'none'} in use{waits}"]
    return lines + [f"  {line_of_version(version)}" for version in model.versions]
