"""`colonnade scorecard`: make a scorecard of the tables of a configuration, show that of a folder, or score with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
    from colonnade.data.frames import Frames
    from colonnade.data.ids import Ids
    from colonnade.part import Part
    from colonnade.scorecards.card import PartyCard, Scorecard

USUAL = {"label_epsilon": None, "release_labels": False, "bins": 5, "base_score": 600.0, "odds": 50.0, "pdo": 20.0,
         "monotone": False}  # fmt: skip
Source = Annotated[
    Path,
    typer.Argument(
        metavar="CONFIG.toml|FOLDER",
        help="The tables; or the folder of a scorecard, a party or a run.",
        show_default=False,
    ),
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
    monotone: Annotated[
        bool, typer.Option("--monotone", help="Merge bins until their evidence rises or falls throughout.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Of the scorecard, or of a party's card.", show_default=False)
    ] = None,
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
    labels: say --label-epsilon, or --release-labels. All tables are in one place; organisations train the method
    scorecard instead, and then the folder of a party shows its own card, and that of the run what adds points up.

    Example: colonnade scorecard credit.toml --label-epsilon 2 --out card
    """
    screen = Screen(as_json)
    said = text_options(separator, decimal, encoding)
    asked = {"label_epsilon": label_epsilon, "release_labels": release_labels, "bins": bins, "base_score": base_score,
             "odds": odds, "pdo": pdo, "monotone": monotone}  # fmt: skip
    if source.is_dir():
        if asked != USUAL or overrides or data_dir is not None:
            raise ConfigError(f"{source} has what was trained: leave out the options that are for making a scorecard")
        if out is not None and out.exists():
            raise ConfigError(f"{out} exists already; choose another --out")
        return _from_folder(screen, source, _New(tables or [], id or [], said, output), out)
    if tables or id or said or output is not None:
        raise ConfigError(
            "--tables, --id, --output and how text files are written score new rows with the folder of a scorecard; "
            "give that folder"
        )
    if out is None:
        raise ConfigError("say where the scorecard goes: --out DIR")
    if out.exists():
        raise ConfigError(f"{out} exists already; choose another --out")
    card = _made(read_config(source, overrides, data_dir), asked)
    card.save(out)
    screen.emit(card.to_json() | {"out": str(out)})
    if screen.talks:
        _show(screen, card, out)
    return None


def _made(config: Mapping[str, Any], asked: Mapping[str, Any]) -> Scorecard:
    from colonnade.job import read_job, read_table_data
    from colonnade.privacy.settings import PrivacySettings
    from colonnade.scorecards.make import scorecard as make

    if "party" in config or "coordinator" in config:
        raise ConfigError(
            "organisations train a scorecard as a run: [method] name = 'scorecard' in coordinator.toml and [columns] "
            "bins = 5 in every party.toml, then colonnade coordinator and colonnade party; give the folders of these"
        )
    job = read_job(config)
    if "tables" not in job.data:
        raise ConfigError("a scorecard needs tables: [data] tables = { party = 'FILE', ... }")
    if job.privacy != PrivacySettings():
        raise ConfigError("[privacy] is for trainings; say what a scorecard may release with --label-epsilon")
    frames, options = read_table_data(job.data)
    return make(frames, **options, **asked, seed=job.training.seed)


@dataclass(frozen=True)
class _New:
    """New tables to score, and where the scores go."""

    tables: Sequence[str]
    id: Sequence[str]
    said: Mapping[str, Sequence[str]]
    output: Path | None

    @property
    def wanted(self) -> bool:
        """Whether there are any; options that are for them alone are refused."""
        if not self.tables and (self.id or self.said or self.output is not None):
            raise ConfigError("--id, --output and how text files are written go with --tables PARTY=FILE")
        return bool(self.tables)

    def read(self, cards: Sequence[PartyCard]) -> tuple[Frames, Ids]:
        """One frame per party, its text columns as text; and the id columns."""
        from colonnade.cli.predict_tables import party_and_file
        from colonnade.data.frames import read_table
        from colonnade.data.ids import id_columns_of_new

        files = dict(party_and_file(text) for text in self.tables)
        id, written = id_option(self.id, files), formats(self.said, files)
        made_with, text = {one.party: one.id for one in cards}, {one.party: one.text_columns for one in cards}
        keys = {**made_with, **id_columns_of_new(id, {party: made_with.get(party) for party in files})}
        read = {p: read_table(f, id=keys.get(p), categories=text.get(p, []), text=written[p]) for p, f in files.items()}
        return read, id

    def tell(self, screen: Screen, header: Sequence[str], lines: Sequence[Sequence[Any]]) -> None:
        """Write the scores, or show them."""
        if self.output is not None:
            write_text(self.output, csv_text(header, lines))
        screen.emit(
            {"rows": len(lines)}
            | ({"output": str(self.output)} if self.output else {"scores": [list(line) for line in lines]})
        )
        if screen.talks and self.output is None:
            print(csv_text(header, lines), end="")
        screen.aside(f"{len(lines):,} rows" + (f", written to {self.output}" if self.output else ""))


def _from_folder(screen: Screen, folder: Path, new: _New, out: Path | None) -> None:
    """A scorecard, a party's part of one, or the run of one."""
    from colonnade.part import PARTY
    from colonnade.record import RECORD
    from colonnade.scorecards.card import FILE, Scorecard

    if (folder / RECORD).exists() and not (folder / FILE).exists():
        return _of_run(screen, folder, new, out)
    if (folder / PARTY).exists() and not (folder / FILE).exists():
        return _of_party(screen, folder, new, out)
    card = Scorecard.load(folder)
    if out is not None:
        raise ConfigError(f"{folder} is a scorecard already; --out is for one that is made")
    if not new.wanted:
        raise ConfigError(f"{folder} is a scorecard: say what to score, --tables PARTY=FILE once per party")
    frames, id = new.read(card.parties)
    points = card.score(frames, id=id)
    chance = card.probability(points.to_numpy())
    lines = [(str(row), int(n), float(f"{p:.6g}")) for row, n, p in zip(points.index, points, chance, strict=True)]
    return new.tell(screen, ("row", "points", f"probability_{card.event}"), lines)


def _of_run(screen: Screen, folder: Path, new: _New, out: Path | None) -> None:
    """All cards of a simulation; of organisations what adds their points up."""
    from colonnade.run import Run
    from colonnade.scorecards.make import card_of

    card = card_of(Run.load(folder), f"What was released of the labels stands in the ledger of {folder}.")
    if new.wanted:
        raise ConfigError(f"{folder} is a run: score with colonnade predict {folder}, which has a column of points")
    if out is not None:
        if not card.parties:
            raise ConfigError(f"the cards of {folder} are with its parties: each writes its own, from its own folder")
        card.save(out)
    screen.emit(card.to_json() | ({} if out is None else {"out": str(out)}))
    if screen.talks:
        _show(screen, card, out)
        if not card.parties:
            screen.notify("each party shows its own card from its own folder; scores: colonnade predict --ids")


def _of_party(screen: Screen, folder: Path, new: _New, out: Path | None) -> None:
    """A party's own card or its own points, at home: nothing leaves."""
    from colonnade.part import Part
    from colonnade.scorecards.card import PartyCard
    from colonnade.scorecards.make import notes_of

    part = Part.load(folder)
    card = PartyCard.of(part)
    if new.wanted:
        frames, id = new.read([card])
        if set(frames) != {card.party}:
            raise ConfigError(f"{folder} is of party {card.party!r} alone: say --tables {card.party}=FILE")
        points = card.points(frames[card.party]).tolist()
        names = _names(part, frames[card.party], id)
        return new.tell(screen, ("row", f"points_{card.party}"), list(zip(names, points, strict=True)))
    if out is not None:
        card.save(out)
    screen.emit({"party": card.party, **card.to_json()} | ({} if out is None else {"out": str(out)}))
    if screen.talks:
        _table(screen, card)
        for line in (*notes_of(card, part), *([] if out is None else [f"written to {out}"])):
            screen.notify(line)
    return None


def _names(part: Part, frame: Any, id: Ids) -> list[str]:
    """What the rows of a party's table are called: by the id that was said, or that of the training, else numbered."""
    from colonnade.data.frames import names_of
    from colonnade.data.ids import id_columns, text_ids

    said = id_columns(id, [part.party]).get(part.party)
    key = said or part.plans[part.party].id
    if key is None or (said is None and not set(names_of(key)) <= set(frame.columns)):
        return [str(at) for at in range(len(frame))]
    return list(text_ids(f"party {part.party!r}", frame, key))


def _table(screen: Screen, card: PartyCard) -> None:
    from colonnade.report.tables import Table

    lines = [
        (column, name, f"{rows:,}", f"{events:.0f}" + (f" ± {noise:.0f}" if noise else ""), f"{woe:+.3f}",
         f"{iv:.3f}", f"{points:+d}")
        for column, name, rows, events, noise, woe, iv, points in card.lines()
    ]  # fmt: skip
    headings = ("column", "bin", "rows", "events", "weight of evidence", "information value", "points")
    screen.table(Table(card.party, headings, tuple(lines), frozenset({0, 1})))


def _show(screen: Screen, card: Scorecard, out: Path | None) -> None:
    for one in card.parties:
        _table(screen, one)
    s = card.scale
    screen.notify(f"base points {card.base_points}; low points warn of {card.event!r}")
    screen.notify(f"{s.base_score:g} points: {s.odds:g} to 1 against it; {s.pdo:g} points more double that")
    for name, value in card.metrics.items():
        screen.notify(f"test {name}: {'not measured' if value is None else f'{value:.4f}'}")
    for line in (card.labels, *card.notes, *([] if out is None else [f"written to {out}"])):
        screen.notify(line)
