"""`colonnade check`: look at the tables before anything runs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from colonnade.cli.options import AsJson, DataDir, Overrides, read_config
from colonnade.cli.screen import Screen

if TYPE_CHECKING:
    from colonnade.check import Check

Config = Annotated[
    Path,
    typer.Argument(
        metavar="CONFIG.toml", help="What to train; or a party.toml or coordinator.toml.", show_default=False
    ),
]


def check(config: Config, overrides: Overrides = None, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Look at the tables of a configuration and say what is wrong or doubtful. Changes nothing, sends nothing.

    With a party.toml or coordinator.toml it looks at that organisation's own table alone. Exit status 1: there are
    errors, which `train` would stop at.

    Example: colonnade check churn.toml
    """
    found = _looked_at(config, overrides, data_dir)
    screen = Screen(as_json)
    screen.emit(found.to_json())
    if screen.talks:
        _show(screen, found)
    raise typer.Exit(1 if found.errors else 0)


def _looked_at(config: Path, overrides: list[str] | None, data_dir: Path | None) -> Check:
    from colonnade.config import read_toml

    sections = read_toml(config)
    if "party" in sections:
        return _party(config, overrides)
    if "coordinator" in sections:
        return _coordinator(config, overrides)
    from colonnade.check import check_job
    from colonnade.job import read_job

    return check_job(read_job(read_config(config, overrides, data_dir)))


def _party(config: Path, overrides: list[str] | None) -> Check:
    from colonnade.check import inspect_party
    from colonnade.data.frames import read_table
    from colonnade.deploy.label_beside import check_no_label, labels_beside
    from colonnade.deploy.settings import read_party
    from colonnade.deploy.tables import without_label

    read = read_party(config, overrides)
    p = read.party
    table = read_table(p.table, id=p.id, categories=p.categories, text=p.text)
    table = without_label(table, p.label)
    check_no_label(table, labels_beside(read), p.table.name)
    return inspect_party(p.name, table, p.id, read.columns)


def _coordinator(config: Path, overrides: list[str] | None) -> Check:
    from colonnade.check import inspect_label_table
    from colonnade.data.frames import read_table
    from colonnade.deploy.settings import read_coordinator

    read = read_coordinator(config, overrides)
    c = read.coordinator
    found = inspect_label_table(read_table(c.table, id=c.id, text=c.text), c.id, c.label, c.task, c.classes)
    return found.answered(read.training)


def _show(screen: Screen, found: Check) -> None:
    from colonnade.report.tables import Table
    from colonnade.report.words import count

    rows = []
    for table in found.tables:
        kinds = Counter(column.kind for column in table.columns)
        holes = sum(column.missing for column in table.columns)
        told = ", ".join(f"{number} {kind}" for kind, number in kinds.items())
        rows.append((table.party, f"{table.rows:,}", f"{len(table.columns):,}", told, f"{holes:,}"))
    if rows:
        columns = ("party", "rows", "columns", "kinds of columns", "missing values")
        screen.table(Table("Tables", columns, tuple(rows), frozenset({0, 3})))
    for one in found.findings:
        screen.notify(f"{one.level}: {one.text}")
    screen.notify(f"{count(len(found.errors), 'error')}, {count(len(found.warnings), 'warning')}")
