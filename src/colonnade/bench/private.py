"""Accuracy under a guarantee: several cases of one job, each with its own method and promise, several seeds each.

    [data] [model] [training]     what all cases share
    [[cases]]
    method = { name = "vimadmm", ... }
    budgets = ["eps8"]            the names under which it is reported; a case without uplink stands under all
    privacy = { ... }             as in any configuration file
    training = { rounds = 106 }   what differs

Results: `accuracy_BUDGET.METHOD` and its `_std` (test rows, in per cent), `epsilon_spent_BUDGET.METHOD` (training,
unit PARTY, exact accountant, the largest of all parties and seeds) and the largest of those, `epsilon_spent.METHOD`.
Looks at validation and test rows are simulated: they are not covered by epsilon, and the ledger says so.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from pydantic import Field

from colonnade.bench.accuracy import case_job, watcher
from colonnade.bench.catalogue import Bench
from colonnade.bench.settings import Options, Say
from colonnade.config import Settings, build
from colonnade.errors import ConfigError
from colonnade.privacy.accounting import exact_epsilon
from colonnade.privacy.tally import tally
from colonnade.run import Run
from colonnade.wire.messages import Purpose


class Case(Settings):
    """One method under one promise."""

    method: dict[str, object] = Field(description="as [method] has it")
    budgets: tuple[str, ...] = Field(min_length=1, description="names of the promises it is reported under")
    privacy: dict[str, object] = Field(default_factory=dict, description="as [privacy] has it")
    training: dict[str, object] = Field(default_factory=dict, description="what differs from [training]")


def run_private(bench: Bench, options: Options, say: Say) -> dict[str, float | None]:
    """Train every case with seeds 0 to n - 1 on the same rows."""
    cases = [build(Case, case, f"benchmark {bench.name}: cases") for case in bench.tables.get("cases", ())]
    if not cases:
        raise ConfigError(f"benchmark {bench.name} has no [[cases]]")
    jobs = [
        [case_job(bench, case.model_dump(exclude={"budgets"}), options, seed) for seed in range(options.seeds)]
        for case in cases
    ]
    federation = jobs[0][0].federation()
    results: dict[str, float | None] = {}
    for case, seeds in zip(cases, jobs, strict=True):
        name = f"{' and '.join(case.budgets)}, {case.method['name']}"
        runs = [job.fit(federation, watch=watcher(f"{name}, seed {seed}", say)) for seed, job in enumerate(seeds)]
        results |= summarise(case, runs)
    return results | _largest(results)


def summarise(case: Case, runs: Sequence[Run]) -> dict[str, float | None]:
    """The results of one case, under each of its names."""
    tests = [100 * run.result["test_score"] for run in runs if run.result["test_score"] is not None]
    whole = len(tests) == len(runs)  # a run that has no score is not left out: there is no mean then
    values: dict[str, float | None] = {
        "accuracy": statistics.fmean(tests) if whole else None,
        "accuracy_std": statistics.stdev(tests) if whole and len(tests) > 1 else None,
        "epsilon_spent": max(spent(run) for run in runs) if runs[0].privacy.protects else 0.0,
    }
    if any(r.purpose is Purpose.TRAIN and r.event.bare and r.owner in runs[0].models for r in runs[0].ledger):
        del values["epsilon_spent"]  # uploads without noise: there is no such figure
    return {f"{key}_{budget}.{case.method['name']}": v for budget in case.budgets for key, v in values.items()}


def spent(run: Run) -> float:
    """What training cost the party that it cost most."""
    settings = run.privacy
    shift = max((one.shift for one in tally(run.ledger, settings.neighbours)), default=0.0)
    return exact_epsilon(shift, settings.delta)


def _largest(results: Mapping[str, float | None]) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    for key, value in results.items():
        if key.startswith("epsilon_spent_") and value is not None:
            name = f"epsilon_spent.{key.rpartition('.')[2]}"
            found[name] = max(value, found.get(name) or 0.0)
    return found
