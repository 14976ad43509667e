"""`colonnade predict`: what a finished run says about rows of its own data, or of new tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from colonnade.cli.options import AsJson, DataDir, RunFolder
from colonnade.cli.predict_ids import Absent, DeployedConfig, Ids, Patience, When, predict_ids
from colonnade.cli.predictions import show, table_of
from colonnade.cli.resume import data_of, read_about
from colonnade.cli.screen import Screen
from colonnade.errors import ConfigError, DataError, RowsDisagree, RunError

if TYPE_CHECKING:
    from torch import Tensor

    from colonnade.run import Run

Rows = Literal["train", "validation", "test"]


@dataclass(frozen=True)
class Wanted:
    """The rows to decide: their names, each party's columns, and the truth where it is known."""

    names: Sequence[str]
    columns: Mapping[str, Any]
    truth: Tensor | None = None


def predict(  # noqa: PLR0913, PLR0917 - one parameter per option of the command line
    run: RunFolder,
    rows: Annotated[
        Rows | None, typer.Option(help="Rows of the data the run was trained on.", show_default=False)
    ] = None,
    tables: Annotated[
        list[str] | None,
        typer.Option(metavar="PARTY=FILE", help="A table of model inputs; once per party.", show_default=False),
    ] = None,
    id: Annotated[str | None, typer.Option(metavar="COLUMN", help="Join the tables on it.", show_default=False)] = None,
    ids: Ids = None,
    config: DeployedConfig = None,
    absent: Absent = "refuse",
    patience: Patience = 30.0,
    proba: Annotated[bool, typer.Option("--proba", help="Also the probability of each class.")] = False,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE.csv", help="Default: stdout.", show_default=False)
    ] = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Predict rows with the kept model: CSV with the columns row, prediction and, if wanted, proba_0, proba_1, ...

    --tables takes numbers exactly as the model reads them, a column per input. A run that was trained from
    tables encoded them first and does not store how, so it can predict only --rows of the same tables.

    --ids is for a run of separate organisations, at the label holder: aligned ids, in a table or one per line. The
    parties are asked, and each answer is a release. A row that lacks a party's part says so in the column without.

    Example: colonnade predict runs/first --rows test --proba --output test.csv
    """
    from colonnade.run import Run

    if sum((rows is not None, bool(tables), ids is not None)) != 1:
        raise ConfigError(
            "say one thing to predict: --rows train|validation|test, or --tables PARTY=FILE per party, or --ids FILE"
        )
    if ids is not None:
        return predict_ids(run, ids, config, When(absent, patience), proba, output, Screen(as_json))
    trained = Run.load(run)
    if trained.about["engine"] == "nats":
        raise RunError(f"the parties of {run} keep their columns and models; predict aligned ids with --ids FILE")
    if trained.result["diverged"] and trained.result["best_round"] is None:
        raise RunError(f"the training of {run} diverged before any round was kept: there is no model to predict with")
    wanted = _own_rows(run, trained, rows, data_dir) if rows is not None else _new_rows(run, trained, tables or [], id)
    screen = Screen(as_json)
    logits = trained.logits(wanted.columns)
    table = table_of(trained, wanted.names, logits, proba)
    return show(screen, run, output, table, _told(trained, logits, wanted))


def _own_rows(folder: Path, run: Run, rows: Rows, data_dir: Path | None) -> Wanted:
    from colonnade.checkpoint import fingerprint
    from colonnade.job import load_data
    from colonnade.run import STORE

    federation = load_data(data_of(folder, run.config, data_dir))
    if run.method.pools:
        federation = federation.pooled()
    if (folder / STORE).exists() and read_about(folder)["data"] != fingerprint(federation):
        raise RunError(f"{folder} was trained on other data than these; give it the same files with --data-dir")
    index: Tensor = getattr(federation.split, rows)
    index = index[federation.complete[index]]  # prediction needs every party, and the score the label
    if not len(index):
        raise DataError(f"the data of {folder} have no {rows} rows; choose --rows train, validation or test")
    names = [federation.ids[i] if federation.ids else str(i) for i in index.tolist()]
    return Wanted(names, {p.name: p.columns[index] for p in federation.parties}, federation.labels[index])


def _new_rows(folder: Path, run: Run, tables: Sequence[str], key: str | None) -> Wanted:
    from colonnade.data.table import read_table

    if run.config is not None and "tables" in run.config.get("data", {}):
        raise RunError(
            f"{folder} was trained from tables, and predicting new raw tables needs its preprocessing, which is "
            "not stored yet; use --rows to predict rows of the same tables"
        )
    files = dict(_pair(text) for text in tables)
    shapes = {p["name"]: tuple(p["shape"]) for p in run.about["parties"]}
    if set(files) != set(shapes) or len(files) < len(tables):
        raise DataError(f"--tables wants one file for each of the parties {', '.join(shapes)}; got {', '.join(files)}")
    frames = {party: read_table(files[party], id=key) for party in shapes}
    names = _match(frames, key)
    columns = {p: _numbers(p, _ordered(frame, key, names), shapes[p]) for p, frame in frames.items()}
    return Wanted(names, columns)


def _pair(text: str) -> tuple[str, str]:
    party, equals, file = text.partition("=")
    if not (party and equals and file):
        raise ConfigError(f"--tables {text!r}: wanted PARTY=FILE, e.g. --tables party_1=new.csv")
    return party, file


def _match(frames: Mapping[str, Any], key: str | None) -> list[str]:
    """The names of the rows: ids that all tables have, or positions where all have the same number of rows."""
    if key is None:
        counts = {party: len(frame) for party, frame in frames.items()}
        if len(set(counts.values())) > 1:
            told = ", ".join(f"{party}: {rows} rows" for party, rows in counts.items())
            raise RowsDisagree(
                f"the tables have different numbers of rows ({told}); name a column to join on with --id"
            )
        return [str(row) for row in range(next(iter(counts.values())))]
    ids: dict[str, list[str]] = {}
    for party, frame in frames.items():
        if key not in frame.columns:
            raise DataError(f"the table of party {party!r} has no column {key!r}; --id names a column of every table")
        ids[party] = [str(value) for value in frame[key]]
        if len(set(ids[party])) < len(ids[party]):
            raise DataError(f"the table of party {party!r} has an id in {key!r} more than once; keep one row per id")
    first, *others = ids
    for party in others:
        if set(ids[party]) != set(ids[first]):
            odd = min(set(ids[party]) ^ set(ids[first]))
            raise RowsDisagree(
                f"the ids of {first!r} and {party!r} differ (for example {odd!r}); give both the same rows"
            )
    return ids[first]


def _ordered(frame: Any, key: str | None, names: Sequence[str]) -> Any:
    if key is None:
        return frame
    return frame.set_axis([str(value) for value in frame[key]], axis=0).drop(columns=key).loc[list(names)]


def _numbers(party: str, frame: Any, shape: tuple[int, ...]) -> Any:
    """The columns of a table as the party's model inputs (N, *shape)."""
    import numpy as np

    width = int(np.prod(shape))
    if frame.shape[1] != width:
        raise DataError(f"the table of party {party!r} has {frame.shape[1]} columns of inputs; its model reads {width}")
    try:
        return frame.to_numpy(dtype=np.float64).reshape(len(frame), *shape)
    except (TypeError, ValueError):
        raise DataError(
            f"the table of party {party!r} has a column that is not numeric; its model reads numbers"
        ) from None


def _told(run: Run, logits: Tensor, wanted: Wanted) -> float | None:
    from colonnade.evaluate.metrics import score
    from colonnade.federation import Task

    return None if wanted.truth is None else score(Task(run.about["task"]), logits, wanted.truth)
