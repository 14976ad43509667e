"""Counts: methods that learn across columns beside a Poisson regression that has all columns in one place.

    [data]                        tables with labels that are counts; files are looked for in --data-dir or the cache
    [model] [training]            what all cases share
    [poisson]                     alphas that the regression may choose from; shares of validation and test rows
    [search]                      "section.setting" = [values]: every combination is a candidate
    [[cases]]
    method = { name = "vimadmm" }
    name = "defaults"             key of the results; unset: the method's name
    search = false                takes the settings as they are; unset: the candidates of [search]

A seed draws the rows that train, validate and test, and first weights and row order. For each seed alone the validation
rows choose: of a case the candidate with the lowest deviance (its best round), of scikit-learn's PoissonRegressor
alpha. Candidates are trained on a federation in which the test rows are absent; the chosen one is then trained once
more and evaluated on them, once. The regression gets the columns of all parties as the federation encodes them.

Results, for a case KEY: `deviance.KEY`, the mean Poisson deviance on the test rows, mean over seeds, with `_std`;
`excess.KEY`, by how much it is above that of the regression on the same rows, mean over seeds, with `_std` and the
standard error `excess_se.KEY` of that paired difference; `chosen.KEY.CANDIDATE`, how many seeds chose it, and
`validation.KEY.CANDIDATE`, its mean validation deviance; `seconds.KEY` of a training.
`deviance.poisson_regressor` is the regression, `deviance.constant` the mean of the training rows as a guess.
"""

from __future__ import annotations

import copy
import itertools
import json
import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field
from torch import Tensor

from colonnade.bench.accuracy import case_job, watcher
from colonnade.bench.catalogue import Bench
from colonnade.bench.clock import torch_threads
from colonnade.bench.settings import Notify, Options
from colonnade.bench.table_sets import EVERY_LEVEL
from colonnade.config import Settings, build, with_overrides
from colonnade.data.fetch import find, places
from colonnade.data.frames import read_table
from colonnade.errors import ConfigError, MissingData
from colonnade.extras import need
from colonnade.federation import Federation
from colonnade.job import Job, read_job
from colonnade.row_split import RowSplit
from colonnade.run import Run
from colonnade.search import without_test

REFERENCE = "poisson_regressor"
Results = dict[str, float | None]


class PoissonBenchSettings(Settings):
    """The regression, and how rows are split."""

    alphas: tuple[float, ...] = Field(
        (1e-4, 1e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0), min_length=1, description="weights of |w|^2 to choose from"
    )
    validation: float = Field(0.1, gt=0, lt=1, description="share of the rows that choose alpha and rounds")
    test: float = Field(0.15, gt=0, lt=1, description="share of the rows that are evaluated once, at the end")
    first_seed: int = Field(0, ge=0, description="the first of the seeds; the others follow it")
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
        return Federation.from_tables(
            self.frames, labels=self.labels, id=self.id, task="count", split=split, columns=EVERY_LEVEL
        )


@dataclass
class Found:
    """What the seeds so far gave, by case."""

    deviances: dict[str, list[float | None]] = field(default_factory=dict)  # on the test rows
    seconds: dict[str, list[float]] = field(default_factory=dict)
    validation: dict[str, list[float]] = field(default_factory=dict)  # by case and candidate
    chosen: Counter[str] = field(default_factory=Counter)  # by case and candidate

    def tested(self, key: str, run: Run) -> None:
        """A run that was evaluated on the test rows."""
        self.deviances.setdefault(key, []).append(run.score)
        self.seconds.setdefault(key, []).append(run.result["seconds"])


def run_poisson(bench: Bench, options: Options, notify: Notify) -> Results:
    """Every case and the regression, on the same split for each seed."""
    settings = build(PoissonBenchSettings, bench.tables.get("poisson", {}), f"benchmark {bench.name}: poisson")
    cases = [Case.read(bench, case, options) for case in bench.tables.get("cases", ())]
    if not cases:
        raise ConfigError(f"benchmark {bench.name} needs [[cases]], each with a method")
    tables = Tables.read(bench.tables["data"], settings.folder, options.data_dir)
    rows = tables.federation().rows
    shares = {"validation": settings.validation, "test": settings.test}
    found = Found()
    with torch_threads(settings.threads):
        for seed in range(settings.first_seed, settings.first_seed + options.seeds):
            federation = tables.federation(RowSplit.random(rows, seed=seed, **shares))
            found.deviances.setdefault(REFERENCE, []).append(regression(federation, settings.alphas))
            for case in cases:
                name = case.choose(federation, seed, found, notify)
                run = case.train(name, federation, seed, notify)
                found.tested(case.key, run)
            found.deviances.setdefault("constant", []).append(run.metrics["poisson_deviance"]["baseline"])
    return summarise(found)


@dataclass(frozen=True)
class Case:
    """A method, and the settings that the validation rows choose from."""

    key: str
    candidates: Mapping[str, Job]  # by their name

    @classmethod
    def read(cls, bench: Bench, given: Mapping[str, Any], options: Options) -> Case:
        """A case of the file, with every combination of [search] unless it says `search = false`."""
        case = copy.deepcopy({key: value for key, value in given.items() if key not in ("name", "search")})
        shared = {key: value for key, value in bench.tables.items() if key not in ("poisson", "data", "search")}
        bare = Bench(bench.name, bench.title, bench.kind, None, {}, shared)
        plain = case_job(bare, case, Options(device=options.device), 0)
        grid = bench.tables.get("search", {}) if given.get("search", True) else {}
        candidates = {}
        for values in itertools.product(*grid.values()):
            texts = [f"{name}={json.dumps(value)}" for name, value in zip(grid, values, strict=True)]
            names = [f"{name.rpartition('.')[2]}={value}" for name, value in zip(grid, values, strict=True)]
            candidates[",".join(names)] = read_job(with_overrides(copy.deepcopy(plain.tables), texts))
        return cls(str(given.get("name", plain.method.name)), candidates)

    def choose(self, federation: Federation, seed: int, found: Found, notify: Notify) -> str:
        """The candidate with the lowest deviance on the validation rows; the test rows are absent."""
        if len(self.candidates) == 1:
            return next(iter(self.candidates))
        judged = without_test(federation)
        scores = {}
        for name in self.candidates:
            result = self.train(name, judged, seed, notify).result
            value = result["validation_score"]
            scores[name] = math.inf if value is None or result["diverged"] else float(value)
            found.validation.setdefault(f"{self.key}.{name}", []).append(scores[name])
        best = min(scores, key=lambda name: scores[name])
        found.chosen[f"{self.key}.{best}"] += 1
        return best

    def train(self, name: str, federation: Federation, seed: int, notify: Notify) -> Run:
        """One candidate with one seed."""
        job = self.candidates[name]
        training = job.training.model_copy(update={"seed": seed})
        told = watcher(f"{self.key}, seed {seed}, {name or 'settings as they are'}", notify)
        return replace(job, training=training).fit(federation, watch=told)


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


def summarise(found: Found) -> Results:
    """Means over seeds; None where a run has no score, because the others do not speak for it."""
    results: Results = {}
    for key, scores in found.deviances.items():
        known = [value for value in scores if value is not None]
        whole = len(known) == len(scores)
        results |= _spread("deviance", key, known if whole else [])
        if key in found.seconds:
            beside = zip(scores, found.deviances[REFERENCE], strict=True)
            apart = [a - b for a, b in beside if a is not None and b is not None] if whole else []
            results |= _spread("excess", key, apart)
            deviation = results[f"excess_std.{key}"]
            results[f"excess_se.{key}"] = None if deviation is None else deviation / math.sqrt(len(apart))
            results[f"seconds.{key}"] = statistics.fmean(found.seconds[key])
    for key, judged in found.validation.items():
        results[f"chosen.{key}"] = float(found.chosen[key])
        results[f"validation.{key}"] = statistics.fmean(judged)
    return results


def _spread(what: str, key: str, known: Sequence[float]) -> Results:
    return {
        f"{what}.{key}": statistics.fmean(known) if known else None,
        f"{what}_std.{key}": statistics.stdev(known) if len(known) > 1 else None,
    }
