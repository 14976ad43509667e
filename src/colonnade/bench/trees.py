"""Trees at the parties: methods that carry them beside one LightGBM on all columns, on the same rows.

    [trees]
    sets = ["credit", "bank"]     which of `table_sets.SETS`
    draws = 5                     of noisy labels, where labels are private

Protocol of `bench tables`: a quarter of the rows tests, stratified where there are classes; of the rest 15 % validate,
by which the central model stops, and all methods but one_message. Every method has its default settings, but for
RECIPES. The first party of a set is the label holder's own. one_message has trees on top of its stack, which read that
party's columns; one_message_linear is the same without them, and has a score and a gap only. Results, means over seeds,
for a method METHOD and a set SET:

    central.SET            LightGBM on all columns in one place: AUC, accuracy, R2 or deviance
    score.METHOD.SET       the same of the method
    gap.METHOD.SET         how much better the central model is; below 0: the method is better
    mb.METHOD.SET          10^6 bytes that cross between organisations in training: labels or targets down, scores of
                           training and validation rows up, numbers of rows; of all parties but the label holder's own
    cpu_ratio.METHOD.SET   CPU seconds of the training of all parties, over those of the central model; one thread each,
                           because threads of LightGBM that wait for each other are busy all the while; intervals of
                           test scores, which the central model does not get, are not part of it
    auc_eps1.METHOD.SET    AUC where labels leave behind randomised response with label epsilon 1, mean over the draws
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch
from pydantic import Field

from colonnade.bench.catalogue import Bench
from colonnade.bench.clock import torch_threads
from colonnade.bench.settings import Notify, Options
from colonnade.bench.table_sets import EVERY_LEVEL, TableSet, folder_of, read_set
from colonnade.bench.tables import JUDGES, Array, Rows, central_trees, split_rows
from colonnade.config import Settings, build
from colonnade.extras import need
from colonnade.federation import Federation, RowSplit
from colonnade.fit import fit
from colonnade.record import Section
from colonnade.run import DTYPES, Run
from colonnade.wire.messages import Purpose

if TYPE_CHECKING:
    import pandas as pd

TASKS = {"auc": "binary", "accuracy": "multiclass", "r2": "regression", "deviance": "count"}
EPSILON = 1.0  # of private labels
PRIVATE: Section = {"labels": {"mechanism": "randomised_response", "epsilon": EPSILON}}
MOST = 600  # columns of all parties times classes, from which on trees of labels are few and coarse, as in the trials
COARSE: Section = {"label_rate": 0.15, "most": 60, "bins": 31}


class TreesSettings(Settings):
    """Which sets and methods, and how often labels are drawn."""

    sets: tuple[str, ...] = Field(
        ("credit", "bank", "adult", "vehicle", "mfeat", "motor", "dvisits"), min_length=1, description="by name"
    )
    private_sets: tuple[str, ...] = Field(("credit", "bank", "adult"), description="where labels are also drawn")
    draws: int = Field(5, ge=1, description="of noisy labels, for each split")


@dataclass(frozen=True)
class Recipe:
    """How a method is trained: keywords of `fit` for a federation."""

    options: Callable[[Federation], Section]
    private: bool = False  # it is also measured behind private labels
    method: str = ""  # its name, where it is not that of the recipe
    beside: bool = False  # only its score and gap are told, beside those of another recipe of the method


def _one_message(federation: Federation) -> Section:
    return {**_one_message_linear(federation), "stack": "trees"}


def _one_message_linear(federation: Federation) -> Section:
    trees = COARSE if federation.width * federation.outputs > MOST else {}
    return {"model": {"encoder": "trees", "trees": trees}, "guest": federation.names[0], "wire": {"numbers": "int8"}}


def _vimadmm_j(federation: Federation) -> Section:
    """As the estimators train it, in ten rounds or more of ten trees of every party."""
    from colonnade.estimators.kinds import Circumstances, tries_of  # needs scikit-learn, which other benchmarks do not

    rows, classes = len(federation.split.train), bool(federation.task.classes)
    one = tries_of("trees", Circumstances("vimadmm_j", rows, len(federation.names), classes))[0]
    return {"model": one.model, "epochs": one.epochs, "batch": one.batch, **one.settings}


def _assisted_boosting(federation: Federation) -> Section:
    return {"model": {"encoder": "trees"}, "wire": {"numbers": "int8"}}


RECIPES: Mapping[str, Recipe] = {
    "one_message": Recipe(_one_message, private=True),
    "one_message_linear": Recipe(_one_message_linear, method="one_message", beside=True),
    "assisted_boosting": Recipe(_assisted_boosting),
    "vimadmm_j": Recipe(_vimadmm_j),
}


def run_trees(bench: Bench, options: Options, notify: Notify) -> dict[str, float | None]:
    """Every set with every method and seed."""
    need("lightgbm", extra="trees", purpose="bench trees")
    settings = build(TreesSettings, bench.tables.get("trees", {}), "trees")
    names = options.only or settings.sets
    folder = folder_of((*names, *settings.private_sets), options.data_dir, "bench trees")
    taken: dict[str, list[float]] = {}
    for name in names:
        found = read_set(name, folder)
        for seed in range(options.seeds):
            trial = Trial.of(name, found, seed, settings.draws if name in settings.private_sets else 0)
            with torch_threads(1):
                measured = trial.measure()
            notify(f"{name}, seed {seed}: " + ", ".join(f"{key} {value:.4f}" for key, value in measured.items()))
            for key, value in measured.items():
                taken.setdefault(f"{key}.{name}", []).append(value)
    return {key: statistics.fmean(values) for key, values in taken.items()}


@dataclass(frozen=True)
class Trial:
    """One split of one set."""

    found: TableSet
    rows: Rows
    seed: int
    draws: int  # of noisy labels
    federation: Federation = field(repr=False)

    @classmethod
    def of(cls, name: str, found: TableSet, seed: int, draws: int) -> Trial:
        """A split by seed. It counts classes, which private labels do not cover: all that is compared has it."""
        rows = split_rows(found, seed)
        classes = sorted(set(found.labels.tolist())) if found.goal in ("auc", "accuracy") else None
        train, validation = (torch.from_numpy(np.sort(part)) for part in (rows.train, rows.validation))
        split = RowSplit(train, validation, train[:0])  # who tests predicts later, as the central model does
        federation = Federation.from_tables(
            dict(found.tables),
            labels=found.labels,
            task=TASKS[found.goal],
            classes=classes,
            split=split,
            name=name,
            columns=EVERY_LEVEL,
        )
        return cls(found, rows, seed, draws, federation)

    def measure(self) -> dict[str, float]:
        """Results by name, without the name of the set."""
        start = time.process_time()
        central = self.judged(self.rows.test, central_trees(side_by_side(self.found), self.found, self.rows, self.seed))
        seconds = time.process_time() - start
        results = {"central": central}
        for name, recipe in RECIPES.items():
            start = time.process_time()
            run = self.train(name, recipe, self.seed)
            spent = time.process_time() - start
            score = self.score(run)
            results |= {
                f"score.{name}": score,
                f"gap.{name}": (score - central) if self.found.goal == "deviance" else (central - score),
            }
            if recipe.beside:
                continue
            results |= {
                f"mb.{name}": crossed(run, self.federation.names[0]) / 1e6,
                f"cpu_ratio.{name}": spent / seconds,
            }
            if recipe.private and self.draws:
                drawn = [self.score(self.train(name, recipe, self._draw(k), PRIVATE)) for k in range(self.draws)]
                results[f"auc_eps1.{name}"] = statistics.fmean(drawn)
        return results

    def _draw(self, number: int) -> int:
        """Another seed for each draw of labels and each split."""
        return 1000 * (self.seed + 1) + number

    def train(self, name: str, recipe: Recipe, seed: int, privacy: Section | None = None) -> Run:
        """A run of one method, with labels as they are or behind a mechanism."""
        options = recipe.options(self.federation)
        return fit(self.federation, recipe.method or name, seed=seed, privacy=privacy or {}, **options)

    def score(self, run: Run) -> float:
        """On the test rows."""
        test = np.sort(self.rows.test)
        chosen = self.federation.select(torch.from_numpy(test))
        guess = run.predict_proba(chosen)[:, 1] if self.found.goal == "auc" else run.predict(chosen)
        return self.judged(test, np.asarray(guess))

    def judged(self, rows: Array, guess: Array) -> float:
        """How good guesses about some rows are."""
        return JUDGES[self.found.goal](self.found.labels[rows], guess)


def crossed(run: Run, home: str) -> int:
    """The bytes of a training that went to and came from all parties but one, with validation.

    Messages of validation rows are counted for all parties together; but for columns that the party at home shows,
    which the ledger knows of, they are equally long.
    """
    away = [place for place, party in enumerate(run.traffic.parties) if party != home]
    total = 0.0
    for one in run.traffic.rounds:
        total += int(one.up[away].sum() + one.down[away].sum())
        alike = one.evaluation_up - _shown_columns(run, home, one.number)
        total += (alike + one.evaluation_down) * len(away) / len(run.traffic.parties)
    return round(total)


def _shown_columns(run: Run, home: str, number: int) -> int:
    """Bytes of the columns that the party at home showed the label holder in the evaluation of one round."""
    mine = [e for e in run.ledger if e.owner == home and e.number == number and e.purpose is Purpose.EVALUATE]
    size = DTYPES[run.training.dtype].itemsize
    return sum(round(dict(e.notes).get("guest_columns", 0)) * e.rows * size for e in mine)


def side_by_side(found: TableSet) -> pd.DataFrame:
    """All parties' columns in one table."""
    import pandas as pd

    return pd.concat([table.add_prefix(f"{party} ") for party, table in found.tables.items()], axis=1)
