"""`colonnade init`: a first configuration from what is there."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from colonnade.cli.init_organisations import organisations
from colonnade.cli.options import AsJson, Decimal, Encoding, Separator, id_option, text_options, written_by
from colonnade.cli.screen import Screen
from colonnade.errors import ConfigError, RunError

if TYPE_CHECKING:
    from colonnade.check import Check
    from colonnade.draft.files import PartyFile
    from colonnade.draft.labels import Candidate
    from colonnade.draft.toml import Draft

SHOWN = 3  # columns that could be the label instead

app = typer.Typer(no_args_is_help=True, help="Write a first configuration: for tables, or for organisations.")
app.command()(organisations)


@app.callback()
def init() -> None:
    """Write a first configuration: from the table files that are there, or for separate organisations."""


@app.command()
def tables(  # noqa: PLR0913, PLR0917 - one parameter per option of the command line
    places: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[FILE|FOLDER]...", help="One table per party; default: this folder.", show_default=False
        ),
    ] = None,
    out: Annotated[Path, typer.Option(metavar="FILE.toml", help="Where to write it.")] = Path("run.toml"),
    party: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=FILE", help="A party's name and table; default: named as the file.", show_default=False
        ),
    ] = None,
    label: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="What is to be predicted.", show_default=False)
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(help="What the label is: binary, multiclass, regression, count.", show_default=False),
    ] = None,
    id: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[PARTY=]COLUMN", help="What rows are matched by; repeated: several together.", show_default=False
        ),
    ] = None,
    same_order: Annotated[
        bool, typer.Option("--same-order", help="There is no id: all tables have the same rows in the same order.")
    ] = False,
    separator: Separator = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
    as_json: AsJson = False,
) -> None:
    """Look at table files, say what they are, and write a commented configuration that `train` takes as it is.

    What could be meant in two ways (which column is the id, which the label, whether whole numbers are classes, a count
    or a number) is not guessed: the ways are listed with the options that choose, and nothing is written. Exit status
    1: it was written, and `check` finds errors in the tables.

    Example: colonnade init tables bank.csv telco.csv --label churn --out churn.toml
    """
    from colonnade.data.table_file import text_formats
    from colonnade.draft.files import find_files, read_files

    screen = Screen(as_json)
    _check_free(out, force)
    files = find_files(places or [], dict(_pair(text) for text in party or []))
    written = written_by(text_options(separator, decimal, encoding), files)
    read = read_files(files, text_formats(written, files, "options"))
    draft, found = _draft(
        screen, read, written, id_option(id or [], files), label=label, task=task, same_order=same_order
    )
    text, checked = _checked(draft, out)
    _write(out, text)
    screen.emit(_facts(draft, found, checked, out))
    _tell(screen, _told(draft, found), checked, out)
    raise typer.Exit(1 if checked.errors else 0)


def _pair(text: str) -> tuple[str, Path]:
    name, equals, file = text.partition("=")
    if not (name and equals and file):
        raise ConfigError(f"--party {text!r}: needed NAME=FILE, e.g. --party bank=data/customers.csv")
    return name, Path(file)


def _draft(
    screen: Screen,
    read: Mapping[str, PartyFile],
    written: Mapping[str, Any],
    id: Any,
    *,
    label: str | None,
    task: str | None,
    same_order: bool,
) -> tuple[Draft, list[Candidate]]:
    """What the configuration says; the tables are shown before anything about them is refused."""
    from colonnade.draft.ids import choose_match
    from colonnade.draft.labels import candidates, choose_label
    from colonnade.draft.toml import Draft
    from colonnade.draft.unused import ignored_columns

    frames = {name: table.frame for name, table in read.items()}
    _show_tables(screen, read)
    match = choose_match(frames, id, same_order)
    found = candidates(frames, match.keys)
    chosen = choose_label(frames, found, label, task)
    return Draft(read, match, chosen, written, ignored_columns(frames, match.keys, chosen.column)), found


def _show_tables(screen: Screen, read: Mapping[str, PartyFile]) -> None:
    from colonnade.report.tables import Table

    rows = [
        (name, str(table.path), f"{len(table.frame):,}", f"{len(table.frame.columns):,}", _some(table.frame.columns))
        for name, table in read.items()
    ]
    columns = ("party", "file", "rows", "columns", "their names")
    screen.table(Table("Tables", columns, tuple(rows), frozenset({0, 1, 4})))


def _some(names: Sequence[Any]) -> str:
    return ", ".join(map(str, names[:8])) + (", ..." if len(names) > 8 else "")


def _checked(draft: Draft, out: Path) -> tuple[str, Check]:
    """The file's text, and what `colonnade check` says about it."""
    from colonnade.check import check_job
    from colonnade.config import parse_toml
    from colonnade.job import read_job

    text = draft.to_toml(shlex.quote(str(out)))
    return text, check_job(read_job(parse_toml(text)))


def _facts(draft: Draft, found: Sequence[Candidate], checked: Check, out: Path) -> dict[str, object]:
    """All that was found, for machines."""
    label = draft.label
    return {
        "out": str(out),
        "tables": {name: {"file": str(t.path), "rows": len(t.frame)} for name, t in draft.tables.items()},
        "id": dict(draft.match.keys) or None,
        "common": draft.match.common,
        "label": {"party": label.party, "column": label.column, "task": label.task.name},
        "candidates": [
            {"party": one.party, "column": one.column, "tasks": [task.name for task in one.tasks]} for one in found
        ],
        "ignored": dict(draft.ignored),
        "errors": checked.errors,
        "warnings": checked.warnings,
    }


def _told(draft: Draft, found: Sequence[Candidate]) -> Iterator[str]:
    """What the tables were taken for, in sentences."""
    match, label = draft.match, draft.label
    yield f"id: {match.words}; {match.common:,} ids are in all tables" if match.keys else f"rows by {match.words}"
    why = "the only column that is called as labels are" if label.by_name else "as you said"
    yield f"label: {label.column} of {label.party}, {label.words}: {why}"
    others = [one for one in found if (one.party, one.column) != (label.party, label.column)]
    if others:
        listed = "; ".join(f"{one.column} of {one.party} ({one.words})" for one in others[:SHOWN])
        more = f"; and {len(others) - SHOWN} more" if len(others) > SHOWN else ""
        yield f"other columns that could be the label (--label): {listed}{more}"
    for name, columns in draft.ignored.items():
        if columns:
            yield f"left out of {name}, since nearly every row has another value: {', '.join(columns)}"


def _tell(screen: Screen, told: Iterator[str], checked: Check, out: Path) -> None:
    from colonnade.report.words import count

    for line in told:
        screen.notify(line)
    for one in checked.findings:
        if one.level != "note":
            screen.notify(f"{one.level}: {one.text}")
    screen.notify(f"check: {count(len(checked.errors), 'error')}, {count(len(checked.warnings), 'warning')}")
    screen.notify(f"written: {out}    (read it: every section says what may be changed)")
    name = shlex.quote(str(out))
    first = f"colonnade check {name}" if checked.errors else f"colonnade train {name} --out runs/first"
    screen.notify(f"next: {first}")


def _check_free(out: Path, force: bool) -> None:
    if not str(out).isprintable():
        raise RunError(f"{str(out)!r} has characters that cannot be printed; choose another name with --out")
    if out.is_dir():
        raise RunError(f"{out} is a folder; name the file to write: --out {out / 'run.toml'}")
    if out.exists() and not force:
        raise RunError(f"{out} already exists; choose another name with --out, or replace it with --force")


def _write(out: Path, text: str) -> None:
    """Beside, then renamed: a reader sees the old file or the new one."""
    beside = out.with_name(out.name + ".part")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(out)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise RunError(f"{out} cannot be written: {error.strerror}; choose another place with --out") from None
