"""`colonnade bench`: measure a published figure and hold it against its target."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from colonnade.bench.catalogue import find, names
from colonnade.bench.outcome import Outcome, check_out, write
from colonnade.bench.perform import perform
from colonnade.bench.settings import Options


def bench(  # one parameter per option of the command line
    name: Annotated[str | None, typer.Argument(help="Which benchmark; --list names them.", show_default=False)] = None,
    list_all: Annotated[bool, typer.Option("--list", help="Name the benchmarks and stop.")] = False,
    data_dir: Annotated[Path | None, typer.Option(help="Folder of the data files.", show_default=False)] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda or cuda:N.", show_default=False)] = None,
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds (accuracy benchmarks).")] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of a table.")] = False,
    out: Annotated[Path | None, typer.Option(help="Also write the JSON object here.", show_default=False)] = None,
) -> None:
    """Measure a published figure. Exit status 0: every target is met; 1: one is not."""
    if list_all:
        _show_list(as_json)
        return
    if name is None:
        raise typer.BadParameter("which benchmark? --list names them", param_hint="NAME")
    if out is not None:
        check_out(out)
    progress = Console(stderr=True)
    outcome = perform(name, Options(data_dir, device, seeds), lambda line: progress.print(line, highlight=False))
    if out is not None:
        write(outcome, out)
    if as_json:
        print(json.dumps(outcome.to_json()))
    else:
        _show(outcome)
    raise typer.Exit(0 if outcome.passed else 1)


def _show_list(as_json: bool) -> None:
    titles = {name: find(name).title for name in names()}
    if as_json:
        print(json.dumps(titles))
        return
    table = Table.grid(padding=(0, 2))
    for name, title in titles.items():
        table.add_row(f"[bold]{name}[/bold]", title)
    Console().print(table)


def _show(outcome: Outcome) -> None:
    machine = outcome.machine
    where = machine["gpu"] or f"{machine['cpu']}, {machine['cores']} cores"
    table = Table("key", title=f"{outcome.bench} on {where}", title_justify="left", caption=f"commit {outcome.commit}")
    table.add_column("result", justify="right")
    table.add_column("target", justify="right")
    table.add_column("ok")
    for line in outcome.lines():
        result = "-" if line.result is None else f"{line.result:.4g}"
        ok = {None: "", True: "[green]yes[/green]", False: "[red]no[/red]"}[line.ok]
        table.add_row(line.key, result, str(line.target or ""), ok)
    Console().print(table)
