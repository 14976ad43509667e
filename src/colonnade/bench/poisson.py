"""Counts: methods that learn across columns beside a Poisson regression that has all columns in one place.

    [data]                        tables with labels that are counts; files are looked for in --data-dir or the cache
    [model] [training]            what all cases share
    [poisson]                     alphas that the regression may choose from; shares of validation and test rows
    [[cases]]
    method = { name = "vimadmm" }

A seed draws the rows that train, validate and test, and first weights and row order. scikit-learn's PoissonRegressor
gets the columns of all parties as the federation encodes them and the same rows; its alpha is the one with the lowest
deviance on the validation rows, which also choose the round of a method. Test rows are evaluated once.

Results, for a case KEY: `deviance.KEY`, the mean Poisson deviance on the test rows, mean over seeds, with `_std`;
`excess.KEY`, by how much it is above that of the regression on the same rows, mean over seeds; `seconds.KEY` of a
training. `deviance.poisson_regressor` is the regression, `deviance.constant` the mean of the training rows as a guess.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field
from torch import Tensor

from colonnade.bench.accuracy import case_job, watcher
from colonnade.bench.catalogue import Bench
from colonnade.bench.clock import torch_threads
from colonnade.bench.settings import Options, Say
from colonnade.config import Settings, build
from colonnade.data.fetch import find, places
from colonnade.data.frames import read_table
from colonnade.errors import ConfigError, MissingData
from colonnade.extras import need
from colonnade.federation import Federation
from colonnade.row_split import RowSplit
from colonnade.run import Run

REFERENCE = "poisson_regressor"
Results = dict[str, float | None]


class PoissonBenchSettings(Settings):
    """The regression, and how rows are split."""

    alphas: tuple[float, ...] = Field(
        (1e-4, 1e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0), min_length=1, description="weights of |w|^2 to choose from"
    )
    validation: float = Field(0.1, gt=0, lt=1, description="share of the rows that choose alpha and rounds")
    test: float = Field(0.15, gt=0, lt=1, description="share of the rows that are evaluated once, at the end")
    folder: str = Field("", description="folder of the files, in --data-dir or the cache")
    threads: int = Field(1, ge=1, description="of torch: rounds of few rows lose by more")


@dataclass(frozen=True)
class Tables:
    """The parties' tables, read once; every seed splits their rows anew."""

    frames: Mapping[str, Any]
    labels: str
    id: str

    @classmethod
    def read(cls, data: Mapping[str, Any], folder: str, data_dir: Path | None) -> Tables:
        """The files of a [data] section."""
        folders = places(folder, data_dir)
        found = {party: find(str(name), folders) for party, name in data["tables"].items()}
        lost = next((party for party, path in found.items() if path is None), None)
        if lost is not None:
            raise MissingData(
                f"{data['tables'][lost]!r} is in none of {', '.join(map(str, folders))}; name its folder: --data-dir"
            )
        frames = {party: read_table(path, id=data["id"]) for party, path in found.items() if path is not None}
        return cls(frames, data["labels"], data["id"])

    def federation(self, split: RowSplit | None = None) -> Federation:
        """The joined tables; columns are scaled by the rows of this split that train."""
        return Federation.from_tables(self.frames, labels=self.labels, id=self.id, task="count", split=split)


def run_poisson(bench: Bench, options: Options, say: Say) -> Results:
    """Every case and the regression, on the same split for each seed."""
    settings = build(PoissonBenchSettings, bench.tables.get("poisson", {}), f"benchmark {bench.name}: poisson")
    cases = bench.tables.get("cases", ())
    if not cases:
        raise ConfigError(f"benchmark {bench.name} needs [[cases]], each with a method")
    tables = Tables.read(bench.tables["data"], settings.folder, options.data_dir)
    rows = tables.federation().rows
    shares = {"validation": settings.validation, "test": settings.test}
    deviances: dict[str, list[float | None]] = {}
    seconds: dict[str, list[float]] = {}
    with torch_threads(settings.threads):
        for seed in range(options.seeds):
            federation = tables.federation(RowSplit.random(rows, seed=seed, **shares))
            deviances.setdefault(REFERENCE, []).append(regression(federation, settings.alphas))
            for case in cases:
                run = _train(bench, case, federation, seed, options, say)
                deviances.setdefault(run.method.name, []).append(run.score)
                seconds.setdefault(run.method.name, []).append(run.result["seconds"])
            deviances.setdefault("constant", []).append(run.metrics["poisson_deviance"]["baseline"])
    return summarise(deviances, seconds)


def _train(bench: Bench, case: Mapping[str, Any], federation: Federation, seed: int, options: Options, say: Say) -> Run:
    shared = {key: value for key, value in bench.tables.items() if key not in ("poisson", "data")}
    bare = Bench(bench.name, bench.title, bench.kind, None, {}, shared)
    job = case_job(bare, case, Options(device=options.device), seed)
    return job.fit(federation, watch=watcher(f"{job.method.name}, seed {seed}", say))


def regression(federation: Federation, alphas: Sequence[float]) -> float:
    """The test deviance of a Poisson regression over all columns, its alpha chosen on the validation rows."""
    linear, metrics = (
        need(f"sklearn.{part}", extra="tables", purpose="a Poisson regression") for part in ("linear_model", "metrics")
    )
    x = np.hstack([party.columns.double().flatten(1).numpy() for party in federation.parties])
    y, split = federation.labels[:, 0].numpy(), federation.split

    def deviance(model: Any, rows: Tensor) -> float:
        return float(metrics.mean_poisson_deviance(y[rows], model.predict(x[rows])))

    train = split.train.numpy()
    fitted = [linear.PoissonRegressor(alpha=a, max_iter=10_000, tol=1e-6).fit(x[train], y[train]) for a in alphas]
    return deviance(min(fitted, key=lambda model: deviance(model, split.validation)), split.test)


def summarise(deviances: Mapping[str, Sequence[float | None]], seconds: Mapping[str, Sequence[float]]) -> Results:
    """Means over seeds; None where a run has no score, because the others do not speak for it."""
    results: Results = {}
    for key, found in deviances.items():
        known = [value for value in found if value is not None]
        whole = len(known) == len(found)
        results[f"deviance.{key}"] = statistics.fmean(known) if whole else None
        results[f"deviance_std.{key}"] = statistics.stdev(known) if whole and len(known) > 1 else None
        if key in seconds:
            beside = zip(found, deviances[REFERENCE], strict=True)
            apart = [a - b for a, b in beside if a is not None and b is not None]
            results[f"excess.{key}"] = statistics.fmean(apart) if whole else None
            results[f"seconds.{key}"] = statistics.fmean(seconds[key])
    return results
