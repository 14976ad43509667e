"""Tables: the estimators as they come out of the box, beside central models and each party alone, on the same rows.

    [tables]
    sets = ["credit", "bank"]     which of `table_sets.SETS`; all if left out

One protocol for all: a quarter of the rows tests, stratified where there are classes; of the rest 15 % validate.
Whatever is chosen (rounds, kind of local model, trees, strength of a penalty) is chosen on the validation rows, by
us and by every model beside us; test rows are used once. Results, means over seeds, by set:
    auc., accuracy., r2., deviance.   ours; `_std` is the spread over seeds
    lightgbm., linear.                one model on all columns: boosted trees; logistic, ridge or Poisson regression
    alone.                            the best party by itself, with boosted trees
    gap., linear_gap.                 how much better the central model is than ours; below 0: ours is better
    linear_gap_se.                    the standard error of that difference over the seeds
    seconds.                          of our `fit` and `predict`, reading of files left out
"""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from pydantic import Field

from colonnade.bench.catalogue import Bench
from colonnade.bench.settings import Notify, Options
from colonnade.bench.table_sets import EVERY_LEVEL, SETS, Goal, TableSet, folder_of, read_set
from colonnade.config import Settings, build
from colonnade.extras import need

if TYPE_CHECKING:
    import pandas as pd

Array = np.ndarray[Any, Any]
TEST, VALIDATION = 0.25, 0.15  # shares: of all rows, and of the rest
PENALTIES = np.logspace(-4, 4, 17)
MOST_TREES, PATIENCE = 2000, 50


class TablesSettings(Settings):
    """Which sets."""

    sets: tuple[str, ...] = Field(tuple(SETS), min_length=1, description="by name")


@dataclass(frozen=True)
class Rows:
    """Which rows train, validate and test, by number."""

    train: Array
    validation: Array
    test: Array

    @property
    def given(self) -> Array:
        """What an estimator gets: it takes its validation rows from these itself."""
        return np.concatenate([self.train, self.validation])


def run_tables(bench: Bench, options: Options, notify: Notify) -> dict[str, float | None]:
    """Every set with every seed."""
    need("lightgbm", extra="trees", purpose="bench tables")
    settings = build(TablesSettings, bench.tables.get("tables", {}), "tables")
    names = options.only or settings.sets
    folder = folder_of(names, options.data_dir, "bench tables")
    results: dict[str, float | None] = {}
    for name in names:
        found = read_set(name, folder)
        results |= _one_set(name, found, options.seeds, notify)
    return results


def _one_set(name: str, found: TableSet, seeds: int, notify: Notify) -> dict[str, float | None]:
    taken: dict[str, list[float]] = {}
    for seed in range(seeds):
        for key, value in _one_seed(found, seed).items():
            taken.setdefault(key, []).append(value)
        notify(f"{name}, seed {seed}: " + ", ".join(f"{key} {values[-1]:.4f}" for key, values in taken.items()))
    sign = -1.0 if found.goal == "deviance" else 1.0
    gaps = [sign * (theirs - ours) for theirs, ours in zip(taken["linear"], taken["ours"], strict=True)]
    means = {key: statistics.fmean(values) for key, values in taken.items()}
    return {
        f"{found.goal}.{name}": means["ours"],
        f"{found.goal}_std.{name}": _spread(taken["ours"]),
        f"lightgbm.{name}": means["lightgbm"],
        f"linear.{name}": means["linear"],
        f"alone.{name}": means["alone"],
        f"gap.{name}": sign * (means["lightgbm"] - means["ours"]),
        f"linear_gap.{name}": statistics.fmean(gaps),
        f"linear_gap_se.{name}": _spread(gaps) / len(gaps) ** 0.5 if len(gaps) > 1 else None,
        f"seconds.{name}": means["seconds"],
    }


def _spread(values: list[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0


def _one_seed(found: TableSet, seed: int) -> dict[str, float]:
    import pandas as pd

    rows, judge = split_rows(found, seed), JUDGES[found.goal]
    truth = found.labels[rows.test]
    whole = pd.concat([table.add_prefix(f"{party} ") for party, table in found.tables.items()], axis=1)
    start = time.perf_counter()
    ours = _ours(found, rows, seed)
    seconds = time.perf_counter() - start
    parties = [judge(truth, central_trees(table, found, rows, seed)) for table in found.tables.values()]
    return {
        "ours": judge(truth, ours),
        "lightgbm": judge(truth, central_trees(whole, found, rows, seed)),
        "linear": judge(truth, _linear(whole, found, rows)),
        "alone": min(parties) if found.goal == "deviance" else max(parties),
        "seconds": seconds,
    }


def split_rows(found: TableSet, seed: int) -> Rows:
    """The split of a set: stratified where labels are classes."""
    from sklearn.model_selection import train_test_split

    classes = found.labels if found.goal in ("auc", "accuracy") else None
    rows = np.arange(len(found.labels))
    rest, test = train_test_split(rows, test_size=TEST, stratify=classes, random_state=seed)
    held = None if classes is None else classes[rest]
    train, validation = train_test_split(rest, test_size=VALIDATION, stratify=held, random_state=seed)
    return Rows(train, validation, test)


# -- who predicts -------------------------------------------------------------------------------


def _ours(found: TableSet, rows: Rows, seed: int) -> Array:
    from colonnade.estimators import VerticalClassifier, VerticalCountRegressor, VerticalRegressor

    kind: Any = {"deviance": VerticalCountRegressor, "r2": VerticalRegressor}.get(found.goal, VerticalClassifier)
    model = kind(validation_fraction=VALIDATION, random_state=seed, columns=EVERY_LEVEL)
    model.fit(found.rows(rows.given), found.labels[rows.given])
    new = found.rows(rows.test)
    return np.asarray(model.predict_proba(new)[:, 1] if found.goal == "auc" else model.predict(new))


def central_trees(table: pd.DataFrame, found: TableSet, rows: Rows, seed: int) -> Array:
    """LightGBM with its own handling of categories and missing values; validation rows say when to stop."""
    import lightgbm

    table = table.astype({name: "category" for name in table.columns if table[name].dtype.kind not in "biuf"})
    table = table.rename(columns={name: f"c{place}" for place, name in enumerate(table.columns)})
    objective = {"deviance": "poisson", "r2": "regression"}.get(found.goal)
    kind: Any = lightgbm.LGBMClassifier if objective is None else lightgbm.LGBMRegressor
    model = kind(
        n_estimators=MOST_TREES, learning_rate=0.03, random_state=seed, verbose=-1, objective=objective,
        n_jobs=torch.get_num_threads(),  # as many as ours; more than there are cores wait for each other, busily
    )  # fmt: skip
    model.fit(
        table.iloc[rows.train],
        found.labels[rows.train],
        eval_X=table.iloc[rows.validation],
        eval_y=found.labels[rows.validation],
        callbacks=[lightgbm.early_stopping(PATIENCE, verbose=False)],
    )
    new = table.iloc[rows.test]
    return np.asarray(model.predict_proba(new)[:, 1] if found.goal == "auc" else model.predict(new))


def _linear(table: pd.DataFrame, found: TableSet, rows: Rows) -> Array:
    """The usual linear model on standardised numbers and one-hot categories; validation rows choose its penalty."""
    encoded = _encoder(table).fit(table.iloc[rows.train]).transform(table)
    tried = []
    for penalty in PENALTIES:
        with warnings.catch_warnings():  # some penalties need more iterations than are worth it; they lose
            warnings.simplefilter("ignore")
            model = _linear_model(found.goal, penalty).fit(encoded[rows.train], found.labels[rows.train])
        guess = model.predict_proba(encoded)[:, 1] if found.goal == "auc" else model.predict(encoded)
        score = JUDGES[found.goal](found.labels[rows.validation], guess[rows.validation])
        tried.append((-score if found.goal == "deviance" else score, guess[rows.test]))
    return np.asarray(max(tried, key=lambda one: one[0])[1])


def _linear_model(goal: Goal, penalty: float) -> Any:
    from sklearn.linear_model import LogisticRegression, PoissonRegressor, Ridge

    if goal == "deviance":
        return PoissonRegressor(alpha=penalty, max_iter=500)
    return Ridge(alpha=penalty) if goal == "r2" else LogisticRegression(C=1 / penalty, max_iter=500)


def _encoder(table: pd.DataFrame) -> Any:
    from sklearn.compose import make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    numbers = [name for name in table.columns if table[name].dtype.kind in "biuf"]
    others = [name for name in table.columns if name not in numbers]
    return make_column_transformer(
        (make_pipeline(SimpleImputer(strategy="median"), StandardScaler()), numbers),
        (OneHotEncoder(handle_unknown="ignore", sparse_output=False), others),
    )


def _auc(truth: Array, guess: Array) -> float:
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(truth, guess))


def _accuracy(truth: Array, guess: Array) -> float:
    return float((truth == guess).mean())


def _r2(truth: Array, guess: Array) -> float:
    from sklearn.metrics import r2_score

    return float(r2_score(truth, guess))


def _deviance(truth: Array, guess: Array) -> float:
    from sklearn.metrics import mean_poisson_deviance

    return float(mean_poisson_deviance(truth, guess))


JUDGES: Mapping[Goal, Callable[[Array, Array], float]] = {
    "auc": _auc, "accuracy": _accuracy, "r2": _r2, "deviance": _deviance,
}  # fmt: skip
