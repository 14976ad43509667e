"""`colonnade predict`: what a finished run or a saved model says about rows of its own data, or of new tables."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from colonnade.cli.options import AsJson, DataDir, Decimal, Encoding, Separator, formats, text_options
from colonnade.cli.predict_ids import Absent, DeployedConfig, Ids, Patience, When, predict_ids
from colonnade.cli.predictions import Answer, show, table_of, with_terms
from colonnade.cli.resume import data_of, read_about
from colonnade.cli.screen import Screen
from colonnade.errors import ConfigError, DataError, RunError, UnknownTrainingRows

if TYPE_CHECKING:
    from torch import Tensor

    from colonnade.model import Model
    from colonnade.predict import Prediction
    from colonnade.run import Run

Folder = Annotated[
    Path,
    typer.Argument(metavar="FOLDER", help="Of a run, or of a model that Model.save wrote.", show_default=False),
]
Rows = Literal["train", "validation", "test"]


@dataclass(frozen=True)
class Wanted:
    """The rows to decide: names, what the run is given, and where they are known the labels and how much rows count."""

    names: Sequence[str]
    rows: Any
    truth: Tensor | None = None
    weights: Tensor | None = None  # None: all alike


def predict(  # noqa: PLR0913, PLR0917 - one parameter per option of the command line
    folder: Folder,
    rows: Annotated[
        Rows | None, typer.Option(help="Rows of the data the run was trained on.", show_default=False)
    ] = None,
    tables: Annotated[
        list[str] | None,
        typer.Option(metavar="PARTY=FILE", help="A new table; once per party.", show_default=False),
    ] = None,
    id: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[PARTY=]COLUMN", help="Match the tables on it, repeated: on all together; default: as in training."
        ),
    ] = None,
    separator: Separator = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    ids: Ids = None,
    config: DeployedConfig = None,
    absent: Absent = "refuse",
    patience: Patience = 30.0,
    training_rows: Annotated[
        Literal["refuse", "release"], typer.Option(help="Rows that trained with noise, which none protects now.")
    ] = "refuse",
    proba: Annotated[bool, typer.Option("--proba", help="Also the probability of each class.")] = False,
    by_party: Annotated[
        bool, typer.Option("--by-party", help="Also what each party adds to the score, where it is a sum.")
    ] = False,
    threshold: Annotated[
        float | None,
        typer.Option(
            help="Yes/no: say yes above this probability; default: the model's own, or 0.5.", show_default=False
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE.csv", help="Default: stdout.", show_default=False)
    ] = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Predict rows with the kept model: CSV with the columns row, prediction and, if wanted, proba_0, proba_1, ...

    --tables takes raw tables like those of the training: columns are found by name, rows are matched by the id of the
    training (--id names another), and each row is named by its id. A run that was trained from arrays, such as a public
    data set, takes numbers exactly as the model reads them, a column per input.

    --ids is for a run of separate organisations, at the label holder: aligned ids, in a table or one per line. The
    parties are asked, and each answer is a release.

    --absent leave-out predicts each row by the parties that it has, where the method has an answer then: tables of some
    parties are enough, with some of the rows. A row that lacks a party's part says so in the column without.

    A folder that `Model.save` wrote takes --tables. That of one party's part is refused: a prediction needs all parts.

    Example: colonnade predict runs/first --rows test --proba --output test.csv
    """
    if sum((rows is not None, bool(tables), ids is not None)) != 1:
        raise ConfigError(
            "say one thing to predict: --rows train|validation|test, or --tables PARTY=FILE per party, or --ids FILE"
        )
    _check_folder(folder, rows is not None, ids is not None)
    answer, screen = Answer(proba, threshold, output), Screen(as_json)
    if absent == "leave-out" and by_party:
        raise ConfigError("--by-party takes the parts of all parties; leave --absent leave-out out")
    if ids is not None and by_party:
        raise ConfigError("--by-party takes the parts of all parties in one place; with --ids they are at home")
    said = text_options(separator, decimal, encoding)
    if ids is not None:
        text = formats(said, ["ids"])["ids"]
        return predict_ids(folder, (ids, text), config, When(absent, patience), answer, screen)
    from colonnade.predict import Prediction

    run, model = load_model(folder)
    answer.check(model)
    model.releases_training_rows = training_rows == "release"
    with _warnings_told(screen):
        if run is not None and rows is not None:
            wanted = own_rows(folder, run, rows, data_dir, absent == "leave-out")
        else:
            from colonnade.cli.predict_tables import read_new_tables

            given, names = read_new_tables(model, tables or [], id or [], said, absent)
            wanted = Wanted(names, given)
        terms = model.contributions(wanted.rows) if by_party else None
        found = model.prediction(wanted.rows, absent=absent) if terms is None else Prediction(terms.total)
    score = None if run is None else _told(run, found, wanted, answer)
    table = table_of(model, wanted.names, found, answer)
    return show(screen, folder, output, table if terms is None else with_terms(table, terms), score, found.left_out)


def _check_folder(folder: Path, rows: bool, ids: bool) -> None:
    """Refuse what a folder of a model or of a part cannot do; what there is in a run folder is seen later."""
    from colonnade.model import ABOUT
    from colonnade.part import PARTY
    from colonnade.record import RECORD

    if (folder / RECORD).exists():
        return
    if (folder / ABOUT).exists() and (rows or ids):
        told = "--rows: it holds no record of the data it was trained on" if rows else "--ids: its parts are all here"
        raise RunError(f"{folder} is a saved model, which cannot predict {told}; use --tables PARTY=FILE")
    if (folder / PARTY).exists():
        raise RunError(
            f"{folder} holds the part of one party, and a prediction needs the parts of all: predict a saved model or "
            f"a run with --tables, or ask the parties with --ids at the label holder (one party's share, in Python: "
            f"Part.load({str(folder)!r}).predict(table))"
        )


def load_model(folder: Path) -> tuple[Run | None, Model]:
    """The run of a folder and its model; of a saved model there is no run."""
    from colonnade.model import ABOUT, Model
    from colonnade.record import RECORD
    from colonnade.run import Run

    if (folder / ABOUT).exists() and not (folder / RECORD).exists():
        return None, Model.load(folder)
    run = Run.load(folder)
    if run.about["engine"] == "nats":
        raise RunError(f"the parties of {folder} keep their columns and models; predict aligned ids with --ids FILE")
    if run.result["diverged"] and run.result["best_round"] is None:
        raise RunError(
            f"the training of {folder} diverged before any round was kept: there is no model to predict with"
        )
    return run, run.model


def own_rows(folder: Path, run: Run, rows: Rows, data_dir: Path | None, some: bool = False) -> Wanted:
    """Rows of the data that a run was trained on, found again by its own configuration.

    Those that all parties hold, or with `some` also others, and whose label is known.
    """
    import torch

    from colonnade.checkpoint import fingerprint
    from colonnade.job import load_data
    from colonnade.privacy.training_rows import TrainingRows
    from colonnade.run import STORE

    federation = load_data(data_of(folder, run.config, data_dir), run.about)
    if run.method.pools:
        federation = federation.pooled()
    if (folder / STORE).exists() and read_about(folder)["data"] != fingerprint(federation):
        raise RunError(f"{folder} was trained on other data than these; give it the same files with --data-dir")
    if run.model.trained is None:
        run.model.trained = TrainingRows.of(federation)
    index: Tensor = getattr(federation.split, rows)
    known = torch.ones(federation.rows, dtype=torch.bool) if federation.labelled is None else federation.labelled
    index = index[(known if some else federation.complete)[index]]
    if not len(index):
        raise DataError(f"the data of {folder} have no {rows} rows; choose --rows train, validation or test")
    names = [federation.ids[i] if federation.ids else str(i) for i in index.tolist()]
    heavy = None if federation.weights is None else federation.weights[index]
    return Wanted(names, federation.select(index), federation.labels[index], heavy)


@contextmanager
def _warnings_told(screen: Screen) -> Iterator[None]:
    """Warnings as lines for people, without the file and line that Python would add."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for warning in (w for w in caught if w.category in (UserWarning, UnknownTrainingRows)):
        screen.aside(f"warning: {warning.message}")


def _told(run: Run, found: Prediction, wanted: Wanted, answer: Answer) -> tuple[str, float] | None:
    """The run's metric where labels are known; with a threshold the accuracy of what is decided."""
    from colonnade.evaluate.metrics import find_metric

    if wanted.truth is None:
        return None
    metric = find_metric(run.metric if answer.threshold is None else "accuracy")
    answers = run.model.answers(found.logits, answer.threshold, found.complete)
    value = metric(run.task, answers.to(metric), wanted.truth, wanted.weights)
    at = "" if answer.threshold is None else f" at threshold {answer.threshold:g}"
    return None if math.isnan(value) else (f"{metric.title}{at}", value)
