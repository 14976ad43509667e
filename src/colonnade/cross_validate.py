"""One method on several splits of the same rows: every row tests once, and the mean and spread of every metric."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import torch

from colonnade.checkpoint import fingerprint
from colonnade.compare import marked
from colonnade.config import Settings, build
from colonnade.data.beside import classes_of
from colonnade.data.frames import by_party, read_table
from colonnade.data.ids import Ids, id_columns
from colonnade.engines.base import Encoders
from colonnade.errors import ConfigError, RowsLeftOut
from colonnade.extras import need
from colonnade.federation import Federation
from colonnade.job import Job
from colonnade.keywords import settings_of
from colonnade.many import Entry, of_rows, train_all
from colonnade.methods.base import Method
from colonnade.models.encoders import ModelSettings
from colonnade.privacy.settings import PrivacySettings
from colonnade.progress import Watcher
from colonnade.report.compared import spread
from colonnade.row_split import Marks, SplitSettings, as_settings, fold_splits
from colonnade.run import Run, Training
from colonnade.tasks import Read

if TYPE_CHECKING:
    from pandas import DataFrame


class FoldScores(TypedDict):
    """A metric on the test rows of each fold (None: undefined there), its mean and standard deviation over them."""

    mean: float | None
    std: float | None
    folds: list[float | None]


@dataclass(frozen=True)
class CrossValidation:
    """A run for each fold."""

    runs: tuple[Run, ...] = field(repr=False)

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
        return (
            f"<CrossValidation of {first.method.name} on {first.about['federation']}: {len(self.runs)} folds, {told}>"
        )


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
        privacy: as for `fit`. Every fold is a training of its own: an epsilon holds for one of them, not for all.
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
    runs = []
    for number, federation in enumerate(_federations(data, folds, asked, joining), start=1):
        rows = of_rows(fingerprint(federation.pooled() if chosen.pools else federation))
        job = Job(rows, chosen, shape, length, promise, {}, encoders)
        if folder is None:
            runs.append(job.fit(federation, None, quiet))
        else:
            train_all([Entry(f"fold-{number}", job)], federation, folder, watching=lambda name, rounds: quiet)
            runs.append(Run.load(folder / f"fold-{number}", encoders))
    return CrossValidation(tuple(runs))


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
