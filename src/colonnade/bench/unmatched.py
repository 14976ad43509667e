"""Two parties that share few rows: a method for unmatched rows beside those that can use only some of the rows.

    [data] [model] [training]     what all cases share; two parties
    [unmatched]                   matched = [2, 5, 10, 30] per cent of the training rows, seeds = 4
    [[cases]]
    method = { name = "fedmvt" }  the first case is the one that the others are held against
    rows = "all"                  or "matched": rows that both hold; or "guest": the guest alone, on all its rows
    tries = [{ ... }, { ... }]    settings on top of the method's; validation rows choose one for each share

A seed draws which training rows stay matched, the rest goes to the two parties in turn, and chooses first weights and
row order. The first party is the guest: labels of the other's own rows are unknown. Validation and test rows are
matched and the same for all. Every try is trained without test rows; the chosen one is trained again and tested
once, with the model of its best validation round.

Results, for a case KEY and P per cent: `test_accuracy.KEY_P` in per cent, mean over seeds, with `_std` and
`validation_accuracy`; `chosen.KEY_P`, the number of the try, where there was a choice; and `gain.KEY_P`, the points by
which the first case is better, mean over seeds.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import torch
from pydantic import Field

from colonnade.bench.accuracy import case_job, summarise, watcher
from colonnade.bench.catalogue import Bench
from colonnade.bench.clock import torch_threads
from colonnade.bench.settings import Notify, Options
from colonnade.config import Settings, build
from colonnade.errors import ConfigError
from colonnade.federation import Federation
from colonnade.job import Job
from colonnade.randomness import permutation
from colonnade.run import Run
from colonnade.search import without_test
from colonnade.tasks import Read

KEPT = ("test_accuracy", "test_accuracy_std", "validation_accuracy")


class UnmatchedSettings(Settings):
    """How many rows are matched, and how often that is drawn."""

    matched: tuple[float, ...] = Field(min_length=1, description="per cent of the training rows that both parties hold")
    seeds: int = Field(4, ge=1, description="seeds 0 to n - 1")
    threads: int = Field(1, ge=1, description="of torch: rounds of few rows lose by more")


class Case(Settings):
    """One method, the rows it can use, and the settings it may choose from."""

    key: str = Field("", description="what its results are called; empty: the method's name")
    method: dict[str, object] = Field(description="as [method] has it")
    rows: Literal["all", "matched", "guest"] = Field("all", description="which rows it is given")
    tries: tuple[dict[str, object], ...] = Field(({},), min_length=1, description="settings to choose from")

    @property
    def name(self) -> str:
        """What its results are called."""
        return self.key or str(self.method["name"])

    def given(self, federation: Federation) -> Federation:
        """The federation as far as this case can use it."""
        if self.rows == "guest":
            federation = federation.only(federation.names[:1])
        return federation if self.rows == "all" else federation.matched()


def run_unmatched(bench: Bench, options: Options, notify: Notify) -> dict[str, float | None]:
    """Every case at every share, all seeds."""
    settings = build(UnmatchedSettings, bench.tables.get("unmatched", {}), f"benchmark {bench.name}: unmatched")
    cases = [build(Case, case, f"benchmark {bench.name}: cases") for case in bench.tables.get("cases", ())]
    if not cases or len({case.name for case in cases}) < len(cases):
        raise ConfigError(f"benchmark {bench.name} needs [[cases]], each with a key of its own")
    seeds = range(settings.seeds)
    jobs = {c.name: [[_job(bench, c, n, options, s) for s in seeds] for n in range(len(c.tries))] for c in cases}
    whole = jobs[cases[0].name][0][0].federation()
    results: dict[str, float | None] = {}
    with torch_threads(settings.threads):
        for share in settings.matched:
            drawn = [scatter(whole, share / 100, seed) for seed in seeds]
            first: list[Run] = []
            for case in cases:
                name, data = f"{case.name}_{share:g}", [case.given(federation) for federation in drawn]
                chosen = _choose(jobs[case.name], data, name, notify)
                runs = _train(jobs[case.name][chosen], data, name, notify)
                first = first or runs
                values = summarise(runs, None)
                results |= {f"{key}.{name}": values[key] for key in KEPT}
                if len(case.tries) > 1:
                    results[f"chosen.{name}"] = chosen
                if case is not cases[0]:
                    results[f"gain.{name}"] = _gain(first, runs)
    return results


def scatter(federation: Federation, matched: float, seed: int) -> Federation:
    """The federation with only a share of its training rows matched; the first party is the guest."""
    order = permutation(federation.split.train.sort().values, seed, "matched rows")
    rest = order[max(1, round(matched * len(order))) :]
    held = torch.ones(federation.rows, 2, dtype=torch.bool)
    held[rest[0::2], 1] = held[rest[1::2], 0] = False
    return Federation.of_read(
        {party.name: party.columns for party in federation.parties},
        Read(federation.labels, federation.task),
        split=federation.split,
        name=federation.name,
        scaled=federation.scaled,
        held=held,
        labelled=held[:, 0],
    )


def _job(bench: Bench, case: Case, number: int, options: Options, seed: int) -> Job:
    shared = {key: value for key, value in bench.tables.items() if key != "unmatched"}
    return case_job(replace(bench, tables=shared), {"method": {**case.method, **case.tries[number]}}, options, seed)


def _choose(jobs: Sequence[Sequence[Job]], data: Sequence[Federation], name: str, notify: Notify) -> int:
    """The try with the best validation score, mean over seeds; the first of equals. Nobody sees a test row."""
    if len(jobs) == 1:
        return 0
    blind = [without_test(federation) for federation in data]
    scores = []
    for number, tried in enumerate(jobs):
        runs = _train(tried, blind, f"{name}, try {number}", notify)
        known = [run.result["validation_score"] for run in runs]
        scores.append(statistics.fmean(-1.0 if value is None else value for value in known))
    notify(f"{name}: validation scores {', '.join(f'{100 * score:.2f} %' for score in scores)}")
    return scores.index(max(scores))


def _train(jobs: Sequence[Job], data: Sequence[Federation], what: str, notify: Notify) -> list[Run]:
    return [
        job.fit(federation, watch=watcher(f"{what}, seed {seed}", notify))
        for seed, (job, federation) in enumerate(zip(jobs, data, strict=True))
    ]


def _gain(first: Sequence[Run], runs: Sequence[Run]) -> float | None:
    """By how many points the first case is better."""
    pairs = [(a.result["test_score"], b.result["test_score"]) for a, b in zip(first, runs, strict=True)]
    known = [100 * (a - b) for a, b in pairs if a is not None and b is not None]
    return statistics.fmean(known) if len(known) == len(pairs) else None
