"""`colonnade scorecard`: make a scorecard of the tables of a configuration, or score new tables with one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from colonnade.cli.options import (
    AsJson,
    DataDir,
    Decimal,
    Encoding,
    Overrides,
    Separator,
    formats,
    id_option,
    read_config,
    text_options,
)
from colonnade.cli.predictions import csv_text, write_text
from colonnade.cli.screen import Screen
from colonnade.errors import ConfigError

if TYPE_CHECKING:
    from colonnade.scorecards.card import Scorecard

Source = Annotated[
    Path,
    typer.Argument(metavar="CONFIG.toml|FOLDER", help="The tables; or the folder of a scorecard.", show_default=False),
]


def scorecard(  # noqa: PLR0913, PLR0917 - one parameter per option of the command line
    source: Source,
    label_epsilon: Annotated[
        float | None, typer.Option(help="Release noisy labels with this epsilon (unit LABEL).", show_default=False)
    ] = None,
    release_labels: Annotated[
        bool, typer.Option("--release-labels", help="Release the labels without protection.")
    ] = False,
    bins: Annotated[int, typer.Option(help="Of each column of numbers or dates.")] = 5,
    base_score: Annotated[float, typer.Option(help="Points at which the odds are --odds.")] = 600.0,
    odds: Annotated[float, typer.Option(help="Non-events to one event, at the base score.")] = 50.0,
    pdo: Annotated[float, typer.Option(help="Points that double the odds.")] = 20.0,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Of the scorecard.", show_default=False)] = None,
    tables: Annotated[
        list[str] | None,
        typer.Option(metavar="PARTY=FILE", help="Of a folder: a new table to score; once per party."),
    ] = None,
    id: Annotated[list[str] | None, typer.Option(metavar="[PARTY=]COLUMN", help="Match the new tables on it.")] = None,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE.csv", help="Of the scores; default: stdout.", show_default=False)
    ] = None,
    separator: Separator = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    overrides: Overrides = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Make a scorecard over the tables of several parties: bins, weights of evidence and points, a table per party.

    Of the configuration only [data] and training.seed are used. Weights of evidence tell the other parties about the
    labels: say --label-epsilon, or --release-labels. All tables are in one place; between organisations there is none.

    Example: colonnade scorecard credit.toml --label-epsilon 2 --out card
    """
    screen = Screen(as_json)
    said = text_options(separator, decimal, encoding)
    if source.is_dir():
        return _score(screen, source, (tables or [], id or [], said), output)
    if tables or id or said or output is not None:
        raise ConfigError(
            "--tables, --id, --output and how text files are written score new rows with the folder of a scorecard; "
            "give that folder"
        )
    if out is None:
        raise ConfigError("say where the scorecard goes: --out DIR")
    if out.exists():
        raise ConfigError(f"{out} exists already; choose another --out")
    card = _made(
        read_config(source, overrides, data_dir),
        {"label_epsilon": label_epsilon, "release_labels": release_labels, "bins": bins, "base_score": base_score,
         "odds": odds, "pdo": pdo},
    )  # fmt: skip
    card.save(out)
    screen.emit(card.to_json() | {"out": str(out)})
    if screen.talks:
        _show(screen, out, card)
    return None


def _made(config: Mapping[str, Any], asked: Mapping[str, Any]) -> Scorecard:
    from colonnade.job import read_job, read_table_data
    from colonnade.privacy.settings import PrivacySettings
    from colonnade.scorecards.make import scorecard as make

    if "party" in config or "coordinator" in config:
        raise ConfigError(
            "between organisations there is no scorecard: labels would have to be sent before the training that the "
            "run agreed on; make it where the tables may be together, or explain columns at home with colonnade columns"
        )
    job = read_job(config)
    if "tables" not in job.data:
        raise ConfigError("a scorecard needs tables: [data] tables = { party = 'FILE', ... }")
    if job.privacy != PrivacySettings():
        raise ConfigError("[privacy] is for trainings; say what a scorecard may release with --label-epsilon")
    frames, options = read_table_data(job.data)
    return make(frames, **options, **asked, seed=job.training.seed)


def _score(
    screen: Screen,
    folder: Path,
    given: tuple[Sequence[str], Sequence[str], Mapping[str, Sequence[str]]],
    output: Path | None,
) -> None:
    from colonnade.cli.predict_tables import party_and_file
    from colonnade.data.frames import read_table
    from colonnade.data.ids import id_columns
    from colonnade.data.kinds import BOOLEAN
    from colonnade.scorecards.card import Scorecard

    card, (tables, ids, said) = Scorecard.load(folder), given
    files = dict(party_and_file(text) for text in tables)
    if not files:
        raise ConfigError(f"{folder} is a scorecard: say what to score, --tables PARTY=FILE once per party")
    id, written = id_option(ids, files), formats(said, files)
    keys = id_columns(id, files)
    text = {
        one.party: [c.bins.column for c in one.columns if c.bins.kind == "level" and c.bins.holds != BOOLEAN]
        for one in card.parties
    }
    frames = {p: read_table(f, id=keys.get(p), categories=text.get(p, []), text=written[p]) for p, f in files.items()}
    points = card.score(frames, id=id)
    chance = card.probability(points.to_numpy())
    lines = [(str(row), int(n), float(f"{p:.6g}")) for row, n, p in zip(points.index, points, chance, strict=True)]
    header = ("row", "points", f"probability_{card.event}")
    if output is not None:
        write_text(output, csv_text(header, lines))
    told = {"rows": len(lines)} | ({"output": str(output)} if output else {"scores": [*map(list, lines)]})
    screen.emit(told)
    if screen.talks and output is None:
        print(csv_text(header, lines), end="")
    screen.aside(f"{len(lines):,} rows" + (f", written to {output}" if output else ""))


def _show(screen: Screen, out: Path, card: Scorecard) -> None:
    from colonnade.report.tables import Table

    for one in card.parties:
        lines = [
            (column, name, f"{rows:,}", f"{events:.0f}" + (f" ± {noise:.0f}" if noise else ""), f"{woe:+.3f}",
             f"{iv:.3f}", f"{points:+d}")
            for column, name, rows, events, noise, woe, iv, points in one.lines()
        ]  # fmt: skip
        headings = ("column", "bin", "rows", "events", "weight of evidence", "information value", "points")
        screen.table(Table(one.party, headings, tuple(lines), frozenset({0, 1})))
    s = card.scale
    screen.notify(f"base points {card.base_points}; low points warn of {card.event!r}")
    screen.notify(f"{s.base_score:g} points: {s.odds:g} to 1 against it; {s.pdo:g} points more double that")
    for name, value in card.metrics.items():
        screen.notify(f"test {name}: {'not measured' if value is None else f'{value:.4f}'}")
    for line in (card.labels, *card.notes, f"written to {out}"):
        screen.notify(line)
