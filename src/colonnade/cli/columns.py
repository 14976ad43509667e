"""`colonnade columns`: how much each column matters, and what it adds to the score of a row."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from colonnade.cli.options import AsJson, DataDir, Decimal, Encoding, Separator, formats, text_options
from colonnade.cli.predictions import csv_text, write_text
from colonnade.cli.screen import Screen
from colonnade.errors import ConfigError, RunError

if TYPE_CHECKING:
    from colonnade.data.table_file import TextFormat
    from colonnade.explain.contributions import Contributions, Importance
    from colonnade.model import Model
    from colonnade.part import Part
    from colonnade.run import Run

MOST_SHOWN = 30  # columns on a screen; the files have all
IMPORTANCE, CONTRIBUTIONS, FACTS = "importance.csv", "contributions.csv", "columns.json"
Folder = Annotated[
    Path,
    typer.Argument(metavar="FOLDER", help="Of a party's part, a saved model or a run.", show_default=False),
]


def columns(  # noqa: PLR0913, PLR0917 - one parameter per option of the command line
    folder: Folder,
    table: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A table of one party, as in training.", show_default=False)
    ] = None,
    party: Annotated[str | None, typer.Option(help="Whose table, of a model or a run.", show_default=False)] = None,
    background: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Count from the mean of these rows; default: the mean training row."),
    ] = None,
    rows: Annotated[
        Literal["validation", "test"] | None,
        typer.Option(help="Instead: rows of a run's own data, by a metric.", show_default=False),
    ] = None,
    metric: Annotated[
        str | None, typer.Option(help="With --rows; default: that of the run.", show_default=False)
    ] = None,
    draws: Annotated[int, typer.Option(help="How often a column's values are dealt out anew.")] = 5,
    seed: Annotated[int, typer.Option(help="Of the draws.")] = 0,
    uncovered: Annotated[
        bool, typer.Option("--uncovered", help="With --rows, also a run with noise: what leaves for this has none.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Also write CSV and JSON files there.", show_default=False)
    ] = None,
    separator: Separator = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Say how much each column of a party's table matters to the score, and what it adds to that of each row.

    --table: for the party's own people, where its part and its table are; nothing leaves. A part alone needs no labels
    and no other party. --rows: in a simulation, what the model loses by a metric when a column's values are dealt out
    anew; the parties' answers are releases, in the ledger as EXPLAIN.

    Example: colonnade columns bank --table new_customers.csv --output why
    """
    if (table is None) == (rows is None):
        raise ConfigError("say one thing to explain: --table FILE of one party, or --rows validation|test of a run")
    screen = Screen(as_json)
    if rows is not None:
        if party is not None or background is not None:
            raise ConfigError("--party and --background go with --table; --rows measures the columns of all parties")
        found: tuple[Importance | None, Contributions | None] = (
            _measured(folder, (rows, metric, uncovered), draws, seed, data_dir), None,
        )  # fmt: skip
    else:
        if metric is not None or uncovered:
            raise ConfigError("--metric and --uncovered go with --rows; without labels there is nothing to measure")
        text = formats(text_options(separator, decimal, encoding), ["the table"])["the table"]
        found = _explained(folder, party, _Files(str(table), background, text), draws, seed)
    if output is not None:
        _save(output, *found)
    screen.emit(_facts(*found) | ({} if output is None else {"output": str(output)}))
    if screen.talks:
        _show(screen, folder, *found)
        if output is not None:
            screen.notify(f"written to {output}")


@dataclass(frozen=True)
class _Files:
    """A party's table, the rows to count from, and how text files of both are written."""

    table: str
    background: Path | None
    text: TextFormat

    def read(self, part: Part) -> tuple[Any, Any]:
        """Both, as the part reads them."""
        background = None if self.background is None else self._one(part, str(self.background))
        return self._one(part, self.table), background

    def _one(self, part: Part, file: str) -> Any:
        """Raw, or one column per input where it was trained from arrays."""
        from colonnade.cli.predict_tables import input_numbers
        from colonnade.data.frames import as_frame, read_table
        from colonnade.data.new_rows import read_raw

        plan = part.plans.get(part.party)
        if plan is not None:
            return read_raw(plan, file, self.text)
        frame = as_frame(f"party {part.party!r}", read_table(file, text=self.text), None)
        return input_numbers(part.party, frame, part.shape)


def _load(folder: Path) -> tuple[Run | None, Model]:
    from colonnade.cli.predict import load_model
    from colonnade.record import RECORD, read_record

    if (folder / RECORD).exists() and read_record(folder)["about"]["engine"] == "nats":
        raise RunError(
            f"the parties of {folder} keep their columns and models: each explains its own columns in its own folder"
        )
    return load_model(folder)


def _measured(
    folder: Path, asked: tuple[Any, str | None, bool], draws: int, seed: int, data_dir: Path | None
) -> Importance:
    from colonnade.cli.predict import own_rows
    from colonnade.explain.parties import check_measured, measure

    rows, metric, uncovered = asked
    run, model = _load(folder)
    if run is None:
        raise RunError(f"{folder} is a saved model, which holds no record of its data; use --table with --party")
    check_measured(model, uncovered)
    wanted = own_rows(folder, run, rows, data_dir)
    assert wanted.truth is not None
    chosen = metric or run.metric
    return measure(model, wanted.rows, wanted.truth, chosen, weights=wanted.weights, draws=draws, seed=seed)


def _explained(
    folder: Path, party: str | None, files: _Files, draws: int, seed: int
) -> tuple[Importance | None, Contributions]:
    from colonnade.explain import columns as own
    from colonnade.part import PARTY, Part
    from colonnade.record import RECORD

    if (folder / PARTY).exists() and not (folder / RECORD).exists():
        part = Part.load(folder)
        if party not in (None, part.party):
            raise ConfigError(f"{folder} holds the part of {part.party!r}, not that of {party!r}")
        table, background = files.read(part)
        found = own.explain_part(part, table, background, seed)
        return own.importance_of_part(part, table, draws, seed) if len(found.total) > 1 else None, found
    model, party = _model(folder, party)
    part = model.part(party)
    table, background = files.read(part)
    found = own.explain_party(model, party, table, background, seed)
    return own.importance_of_party(model, party, table, draws, seed) if len(found.total) > 1 else None, found


def _model(folder: Path, party: str | None) -> tuple[Model, str]:
    _, model = _load(folder)
    if party is None:
        raise ConfigError(
            f"{folder} has several parties: say whose table it is with --party ({', '.join(model.parts)})"
        )
    return model, party


def _facts(importance: Importance | None, rows: Contributions | None) -> dict[str, object]:
    return {
        "importance": None if importance is None else importance.to_json(),
        "contributions": None if rows is None else rows.to_json(),
    }


def _save(folder: Path, importance: Importance | None, rows: Contributions | None) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"the results cannot be written to {folder}: {error}; choose another --output") from None
    if importance is not None:
        write_text(folder / IMPORTANCE, csv_text(("party", "column", "importance", "spread"), importance.ranked()))
    if rows is not None:
        write_text(folder / CONTRIBUTIONS, csv_text(rows.header, rows.rows()))
    write_text(folder / FACTS, json.dumps(_facts(importance, rows), indent=1) + "\n")


def _show(screen: Screen, folder: Path, importance: Importance | None, rows: Contributions | None) -> None:
    from colonnade.report.tables import Table

    if importance is not None:
        caption = f"{folder}: importance of columns"
        lines = [(party, column, f"{mean:.4f}", f"{spread:.4f}") for party, column, mean, spread in importance.ranked()]
        headings = ("party", "column", "importance", "spread")
        screen.table(Table(caption, headings, tuple(lines[:MOST_SHOWN]), frozenset({0, 1})))
        if len(lines) > MOST_SHOWN:
            screen.notify(f"{len(lines) - MOST_SHOWN} columns more; --output writes all")
        score = "" if importance.score is None else f" (of {importance.score:.4f})"
        times = f"{importance.rows:,} rows, values dealt out {len(importance.draws)} times"
        screen.notify(f"importance: {importance.of}{score}; {times}")
    elif rows is not None:
        each = zip(rows.names, rows.values[0, :, 0].tolist(), strict=True)
        added = [(name, f"{value:+.4f}") for name, value in each]
        ends = [("(base)", f"{float(rows.base[0]):+.4f}"), ("(total)", f"{float(rows.total[0, 0]):+.4f}")]
        told = f"{rows.of}, {rows.outputs[0]}" if len(rows.outputs) > 1 else rows.of
        screen.table(Table(f"{folder}: {told}", ("column", "adds"), (ends[0], *added, ends[1])))
    if rows is not None:
        screen.notify(f"what columns add to {rows.of}: {rows.way}; --output writes it for every row")
