"""Peers: another system for boosted trees over columns of several parties, beside our methods, on the same rows.

    [peers]
    trees = [20, 100]     of XGBoost's federated mode

Bank marketing with the call's duration, as others publish it, in two parties: the bank, which has the labels, and the
call centre. Protocol of `bench tables`; what needs no validation rows trains without them. Results, means over seeds,
of a method or of xgboost_20, xgboost_100:
    auc.       on the test rows; auc.central is LightGBM on all columns in one place
    mb.        10^6 bytes between the two organisations in training; XGBoost's include its predictions
    seconds.   of training, ours in one process, XGBoost's with a process for each party, one thread for each
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import numpy as np
from pydantic import Field

from colonnade.bench.catalogue import Bench
from colonnade.bench.clock import torch_threads
from colonnade.bench.settings import Notify, Options
from colonnade.bench.table_sets import TableSet, bank_with_duration
from colonnade.bench.tables import Array, central_trees
from colonnade.bench.trees import RECIPES, Trial, crossed, side_by_side
from colonnade.bench.xgboost_federated import train_federated, version
from colonnade.config import Settings, build
from colonnade.errors import ConfigError
from colonnade.extras import need


class PeersSettings(Settings):
    """How long XGBoost trains."""

    trees: tuple[int, ...] = Field((20, 100), min_length=1, description="of XGBoost's federated mode")


def run_peers(bench: Bench, options: Options, notify: Notify) -> dict[str, float | None]:
    """Every system with every seed."""
    need("lightgbm", extra="trees", purpose="bench peers")
    notify(f"XGBoost {version()}")
    settings = build(PeersSettings, bench.tables.get("peers", {}), "peers")
    if options.data_dir is None:
        raise ConfigError("bench peers needs --data-dir: the folder that holds bank_marketing")
    taken: dict[str, list[float]] = {}
    for seed in range(options.seeds):
        with torch_threads(1):
            found = _one_seed(options.data_dir, settings, seed)
        notify(f"seed {seed}: " + ", ".join(f"{key} {value:.4f}" for key, value in found.items()))
        for key, value in found.items():
            taken.setdefault(key, []).append(value)
    return {key: statistics.fmean(values) for key, values in taken.items()}


def _one_seed(folder: Path, settings: PeersSettings, seed: int) -> dict[str, float]:
    found = bank_with_duration(folder)
    trial = Trial.of("bank", found, seed, 0)
    central = central_trees(side_by_side(found), found, trial.rows, seed)
    results = {"auc.central": trial.judged(trial.rows.test, central)}
    for name, recipe in RECIPES.items():
        if recipe.beside:
            continue
        start = time.perf_counter()
        run = trial.train(name, recipe, seed)
        results[f"seconds.{name}"] = time.perf_counter() - start
        results[f"auc.{name}"] = trial.score(run)
        results[f"mb.{name}"] = crossed(run, trial.federation.names[0]) / 1e6
    tables, rows = _numbers(found), trial.rows
    for trees in settings.trees:
        peer = train_federated(tables, found.labels, rows.given, rows.test, trees)
        results[f"seconds.xgboost_{trees}"] = peer.seconds
        results[f"auc.xgboost_{trees}"] = trial.judged(rows.test, peer.scores)
        results[f"mb.xgboost_{trees}"] = peer.moved / 1e6
    return results


def _numbers(found: TableSet) -> list[Array]:
    """Tables with a number for each level of a text column, in the order of the alphabet."""
    coded = [
        table.apply(lambda column: column if column.dtype.kind in "biuf" else column.astype("category").cat.codes)
        for table in found.tables.values()
    ]
    return [table.to_numpy(np.float32) for table in coded]
