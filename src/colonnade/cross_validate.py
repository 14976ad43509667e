"""One method on several splits of the same rows: every row tests once, and the mean and spread of every metric."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import torch
from torch import Tensor

from colonnade.checkpoint import fingerprint
from colonnade.compare import marked
from colonnade.config import Settings, build
from colonnade.data.beside import classes_of
from colonnade.data.frames import by_party, read_table
from colonnade.data.ids import Ids, id_columns
from colonnade.engines.base import Encoders
from colonnade.errors import ConfigError, DataError, RowsLeftOut
from colonnade.extras import need
from colonnade.federation import Federation
from colonnade.job import Job
from colonnade.keywords import settings_of
from colonnade.many import Entry, of_rows, train_all
from colonnade.methods.base import Method
from colonnade.models.encoders import ModelSettings
from colonnade.privacy.events import Unit
from colonnade.privacy.repeats import Training as Spent
from colonnade.privacy.repeats import folds_together, largest_sets, seeded
from colonnade.privacy.settings import PrivacySettings
from colonnade.privacy.together import Together
from colonnade.progress import Watcher
from colonnade.report.compared import spread
from colonnade.report.privacy import trainings_of
from colonnade.report.uploads import UNMEASURED, told_of_uploads
from colonnade.row_split import Marks, RowSplit, SplitSettings, as_settings, fold_splits
from colonnade.run import Run, Training
from colonnade.tasks import Read

if TYPE_CHECKING:
    from pandas import DataFrame


class FoldScores(TypedDict):
    """A metric on the test rows of each fold (None: undefined there), its mean and standard deviation over them."""

    mean: float | None
    std: float | None
    folds: list[float | None]


FOLDS = "{0} folds on the same people cost, together: {1}. {2}"
TRAINS = "A row trains in at most {0} of them: the figure of unit ROW is that of the row in the most costly ones. "
UNCOVERED = (
    "Not covered: what parties say about a row where it validates or tests ({0}), how columns become numbers where "
    "that is taken from such rows, scores, predictions, and a choice by the scores."
)
GAIN = "run.upload_gain(federation) measures it of one fold."


@dataclass(frozen=True)
class CrossValidation:
    """A run for each fold."""

    runs: tuple[Run, ...] = field(repr=False)
    splits: tuple[RowSplit, ...] = field(repr=False)  # of the same rows, one for each fold

    @property
    def metrics(self) -> dict[str, FoldScores]:
        """Every metric of the task by name; mean and standard deviation (`std`) over the folds that define it."""
        found: dict[str, FoldScores] = {}
        for name in self.runs[0].metrics:
            values = [run.metrics[name]["test"] for run in self.runs]
            mean, deviation = spread([value for value in values if value is not None])
            found[name] = {"mean": mean, "std": deviation, "folds": values}
        return found

    @property
    def score(self) -> float | None:
        """The mean over the folds of the metric that the runs are judged by; None: not measured."""
        found = self.metrics.get(self.runs[0].metric)
        return None if found is None else found["mean"]

    @cached_property
    def costs(self) -> tuple[Together, ...]:
        """What all folds together cost, a figure for each unit; empty, where nothing was promised.

        A party takes part in every fold, so its figure is of all of them. A row trains in all but the fold that it
        tests in (by time the earliest rows in all): its figure is of the folds of the row that it costs most.

        Raises:
            DataError: the library that accounts is not installed.
        """
        if len(self._trainings) < len(self.runs):  # all columns are in one place, and nothing is promised
            return ()
        return tuple(folds_together(self._trainings, *map(largest_sets, self._folds_of_rows())))

    @property
    def together(self) -> str:
        """The same in words, with what it does not cover; empty, where nothing was promised."""
        try:
            if not self.costs:
                return ""
        except DataError as error:
            return f"What all folds cost together is not known here: {error}"
        most = max(len(one) for one in largest_sets(self._folds_of_rows()[0]))
        bare = Counter({"EVALUATE": 0})
        for one in self._trainings:
            for purpose, number in (item for tally in one.tallies for item in tally.bare):
                bare[purpose] += number
        left = ", ".join(f"{n:,} releases for {purpose}" for purpose, n in sorted(bare.items()) if purpose != "TRAIN")
        rows = TRAINS.format(most) if any(one.unit is Unit.ROW for one in self.costs) else ""
        told = FOLDS.format(len(self.runs), "; ".join(map(str, self.costs)), rows + UNCOVERED.format(left))
        unmeasured = any(told_of_uploads(run.record()) for run in self.runs)
        return told + seeded(self._trainings) + (f" {UNMEASURED.format(GAIN)}" if unmeasured else "")

    @cached_property
    def _trainings(self) -> list[Spent]:
        return trainings_of([run.record() for run in self.runs]) or []

    def _folds_of_rows(self) -> tuple[Tensor, Tensor]:
        """(N, folds) whether a row trains, and whether its label is told to others if it is told behind noise."""
        count = max(int(rows.max()) for one in self.splits for rows in (one.train, one.test)) + 1
        trains = torch.zeros(count, len(self.splits), dtype=torch.bool)
        for number, one in enumerate(self.splits):
            trains[one.train.cpu(), number] = True
        told = trains.clone()
        for number, one in enumerate(self.splits):
            told[one.validation.cpu(), number] = True  # its noisy label chooses the kept round
        return trains, told

    def to_frame(self) -> DataFrame:
        """A line per metric: mean, std, and a column for each fold.

        Raises:
            DataError: pandas is not installed.
        """
        pandas: Any = need("pandas", extra="tables", purpose="data frames")
        lines = {
            name: {"mean": one["mean"], "std": one["std"], **{f"fold {k}": v for k, v in enumerate(one["folds"], 1)}}
            for name, one in self.metrics.items()
        }
        frame: DataFrame = pandas.DataFrame.from_dict(lines, orient="index")
        return frame

    def __repr__(self) -> str:
        first, found = self.runs[0], self.metrics.get(self.runs[0].metric)
        told = "not measured on test rows"
        if found is not None and found["mean"] is not None:
            deviation = f" +- {found['std']:.4f}" if found["std"] is not None else ""
            told = f"{first.score_name} {found['mean']:.4f}{deviation}"
        beside = f"\n{self.together}" if self.together else ""
        of = f"{first.method.name} on {first.about['federation']}: {len(self.runs)} folds, {told}"
        return f"<CrossValidation of {of}>{beside}"


def cross_validate(  # noqa: PLR0913 - the front door: everything a user may want to say about the data and the training
    data: Federation | Mapping[str, Any],
    method: Method | type[Settings] | str,
    *,
    folds: int = 5,
    split: SplitSettings | Mapping[str, Any] | None = None,
    labels: Any = None,
    id: Ids = None,
    meaning: Mapping[str, Any] | None = None,
    training: Training | None = None,
    model: ModelSettings | Mapping[str, Any] | None = None,
    encoders: Encoders = None,
    privacy: PrivacySettings | Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    progress: bool | None = None,
    **settings: Any,
) -> CrossValidation:
    """Train a method once for each fold, and test it on the rows of that fold.

    Args:
        data: tables by party, which are encoded anew for each fold with statistics of its training rows; or a
            federation of arrays. One that was made from tables is refused: its encoding has seen all folds.
        method: as for `fit`.
        folds: how many. Every row tests once; with a time column each fold tests on the next stretch of time and
            trains on all before it, so that the earliest rows only train.
        split: `validation` share of the other rows, `stratify` (default: where a row has one class), `time` or
            `groups` (columns beside the labels, of tables only), `seed`.
        labels: with tables, as for `Federation.from_tables`.
        id: the same.
        meaning: its other arguments: `{"task": "count", "weights": "months", "by": "city"}`.
        training: as for `fit`; None: by keyword.
        model: as for `fit`.
        encoders: as for `fit`.
        privacy: as for `fit`. Every fold is a training of its own, and an epsilon holds for one of them; `.costs` and
            `.together` of what is returned say what all of them cost.
        out: a folder for the runs, one folder each; the same call goes on after an interruption. None: not saved.
        progress: as for `fit`.
        **settings: of the training and of the method, as for `fit`.

    Examples:
        >>> import colonnade as cn
        >>> found = cn.cross_validate(cn.sets.load_set("digits", parties=2), "vimadmm", folds=3, rounds=3)
        >>> len(found.runs), found.metrics["accuracy"]["mean"] > 0.5
        (3, True)
    """
    asked = as_settings(split)
    if asked.fold is not None or "test" in asked.model_fields_set:
        raise ConfigError("cross_validate tests each fold in turn: leave test, fold and folds out of split")
    chosen, length = settings_of(method, training, settings)
    shape = model if isinstance(model, ModelSettings) else build(ModelSettings, model or {}, "model")
    promise = privacy if isinstance(privacy, PrivacySettings) else build(PrivacySettings, privacy or {}, "privacy")
    if promise.labels.protects and asked.stratify is None:
        asked = asked.model_copy(update={"stratify": False})  # it would count labels that are protected
    folder = None if out is None else marked(Path(out))
    spared = {"columns_from": "others"} if promise.by_row and not isinstance(data, Federation) else {}
    joining = {**spared, **(meaning or {}), "labels": labels, "id": id}
    quiet: Watcher | None = (lambda now: None) if progress is False else None
    runs, splits = [], []
    for number, federation in enumerate(_federations(data, folds, asked, joining), start=1):
        splits.append(federation.split)
        rows = of_rows(fingerprint(federation.pooled() if chosen.pools else federation))
        job = Job(rows, chosen, shape, length, promise, {}, encoders)
        if folder is None:
            runs.append(job.fit(federation, None, quiet))
        else:
            train_all([Entry(f"fold-{number}", job)], federation, folder, watching=lambda name, rounds: quiet)
            runs.append(Run.load(folder / f"fold-{number}", encoders))
    return CrossValidation(tuple(runs), tuple(splits))


def _federations(data: Any, folds: int, split: SplitSettings, joining: Mapping[str, Any]) -> Iterator[Federation]:
    """The data of each fold."""
    if isinstance(data, Federation):
        yield from _resplit(data, folds, split, joining)
        return
    if joining["labels"] is None:
        raise ConfigError("cross_validate needs a Federation, or tables by party with labels=..., e.g. labels='churn'")
    given = by_party("tables", data)
    keys = id_columns(joining["id"], given)
    tables = {p: read_table(t, id=keys.get(p)) if isinstance(t, (str, Path)) else t for p, t in given.items()}
    if isinstance(folds, bool) or not isinstance(folds, int) or folds < 2:
        raise ConfigError(f"folds = {folds!r}: needed a whole number, at least 2")
    for number in range(1, folds + 1):
        with warnings.catch_warnings():
            if number > 1:
                warnings.simplefilter("ignore", RowsLeftOut)  # said once
            mine = split.model_copy(update={"folds": folds, "fold": number})
            yield Federation.from_tables(tables, split=mine, **joining)


def _resplit(
    federation: Federation, folds: int, split: SplitSettings, joining: Mapping[str, Any]
) -> Iterator[Federation]:
    said = [name for name, value in joining.items() if value is not None]
    if said:
        raise ConfigError(f"{said[0]} is for tables; this federation has its labels and ids already")
    if federation.plans:
        raise ConfigError(
            "this federation was made from tables and encoded with statistics of its own training rows, which would "
            "be test rows of some folds; pass the tables to cross_validate, with labels= and id="
        )
    if split.time is not None or split.groups is not None:
        raise ConfigError("time and groups name columns of tables, and a federation has none; pass the tables")
    marks = Marks(classes=classes_of(Read(federation.labels, federation.task)))
    complete = torch.ones(federation.rows, dtype=torch.bool) & federation.complete
    for one in fold_splits(complete, folds, split, marks):
        yield replace(federation, split=one)
