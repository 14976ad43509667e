"""`colonnade bench`: measure a published figure and hold it against its target."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from colonnade.cli.options import AsJson, DataDir, Device
from colonnade.cli.screen import Screen

if TYPE_CHECKING:
    from colonnade.bench.outcome import Outcome

Name = Annotated[
    str | None,
    typer.Argument(help="Which benchmark; --list names them. paper: a table of the paper.", show_default=False),
]
TableKey = Annotated[
    str | None, typer.Argument(metavar="[TABLE]", help="After paper: which table or figure.", show_default=False)
]
ListAll = Annotated[bool, typer.Option("--list", help="Name the benchmarks and stop.")]
Seeds = Annotated[int, typer.Option(min=1, help="How many seeds, for benchmarks of accuracy.")]
WritePages = Annotated[bool, typer.Option("--write-pages", help="Write the kept results into the pages and stop.")]
Only = Annotated[
    list[str] | None,
    typer.Option(
        help="Only this case; may be repeated. --out adds it to a file of the same commit.", show_default=False
    ),
]
Runs = Annotated[
    Path | None,
    typer.Option(
        help="Keep every training of a case in this folder and go on with those that are there; processes share it.",
        show_default=False,
    ),
]
Finished = Annotated[
    bool, typer.Option("--finished", help="With --runs: train nothing, and tell of the cases that are complete.")
]
Beyond = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Leave out cases that this file of results has already.", show_default=False),
]
Out = Annotated[Path | None, typer.Option(help="Also write the JSON object to this file.", show_default=False)]


def bench(  # noqa: PLR0913, PLR0917 - one parameter per option of the command line
    name: Name = None,
    table: TableKey = None,
    list_all: ListAll = False,
    data_dir: DataDir = None,
    device: Device = None,
    seeds: Seeds = 3,
    only: Only = None,
    runs: Runs = None,
    finished: Finished = False,
    beyond: Beyond = None,
    as_json: AsJson = False,
    out: Out = None,
    write_pages: WritePages = False,
) -> None:
    """Measure a published figure, or a table of the paper. Exit status 0: every target is met; 1: one is not.

    Examples: colonnade bench speed --device cuda; colonnade bench paper --list; colonnade bench paper client-dp
    """
    from colonnade.bench.paper import PAPER, run_table
    from colonnade.bench.perform import measure
    from colonnade.bench.settings import Options

    screen = Screen(as_json)
    if list_all:
        _show_paper(screen) if name == PAPER else _show_list(screen)
        return
    if write_pages:
        _write_pages(screen)
        return
    if name is None:
        raise typer.BadParameter("which benchmark? --list names them", param_hint="NAME")
    if (table is None) == (name == PAPER):
        told = f"which table? colonnade bench {PAPER} --list names them" if table is None else f"only after {PAPER!r}"
        raise typer.BadParameter(told, param_hint="TABLE")
    options = Options(data_dir, device, seeds, only=tuple(only or ()), runs=runs, finished=finished, beyond=beyond)
    if table is not None:
        outcomes = run_table(table, options, out, _progress)
        screen.emit({outcome.bench: outcome.to_json() for outcome in outcomes})
    else:
        outcomes = [measure(name, options, out, _progress)]
        screen.emit(outcomes[0].to_json())
    if screen.talks:
        for outcome in outcomes:
            _show(screen, outcome)
    raise typer.Exit(0 if all(outcome.passed for outcome in outcomes) else 1)


def _progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _show_list(screen: Screen) -> None:
    from colonnade.bench.catalogue import find, names

    titles = {name: find(name).title for name in names()}
    screen.emit(titles)
    for name, title in titles.items():
        screen.notify(f"{name:20} {title}")


def _show_paper(screen: Screen) -> None:
    from colonnade.bench.paper import listing

    rows = listing()
    screen.emit({key: {"place": place, "title": title, "benches": told} for key, place, title, told in rows})
    for key, place, title, told in rows:
        screen.notify(f"{key:16} {title}; {place}\n{'':16} {told}")


def _write_pages(screen: Screen) -> None:
    from colonnade.bench.pages import write_pages

    changed = [str(path) for path in write_pages()]
    screen.emit({"changed": changed})
    screen.notify(f"changed: {', '.join(changed)}" if changed else "the pages show the kept results already")


def _show(screen: Screen, outcome: Outcome) -> None:
    from colonnade.report.tables import Table

    machine = outcome.machine
    where = machine["gpu"] or f"{machine['cpu']}, {machine['cores']} cores"
    caption = f"{outcome.bench} on {where}, commit {outcome.commit}"
    rows = tuple(line.words() for line in outcome.lines())
    screen.table(Table(caption, ("key", "result", "target", "ok"), rows, frozenset({0, 3})))
