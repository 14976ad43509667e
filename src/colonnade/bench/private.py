"""Accuracy under a guarantee: several cases of one job, each with its own method and promise, several seeds each.

    [data] [model] [training]     what all cases share
    [[cases]]                     as `cases.py` has them, and
    budgets = ["eps8"]            the names under which it is reported; a case without uplink stands under all

Results: `accuracy_BUDGET.KEY` and its `_std` (test rows, in per cent), and what training cost the party that it cost
most (unit PARTY, the largest of all seeds) by two accountants: `epsilon_spent_BUDGET.KEY`, exact, and
`epsilon_rdp_BUDGET.KEY`, the paper's formula, which gives more for the same noise. `epsilon_spent.KEY` is the largest.
`seeds_BUDGET.KEY`: how many seeds, where the case says how many at most.
Looks at validation and test rows are simulated: they are not covered by epsilon, and the ledger says so.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from pydantic import Field

from colonnade.bench.cases import Case, each_case, read_cases, selected
from colonnade.bench.catalogue import Bench
from colonnade.bench.settings import Notify, Options
from colonnade.errors import ConfigError
from colonnade.privacy.accounting import exact_epsilon, rdp_epsilon
from colonnade.privacy.tally import tally
from colonnade.run import Run
from colonnade.wire.messages import Purpose


class PrivateCase(Case):
    """One method under one promise."""

    budgets: tuple[str, ...] = Field(min_length=1, description="names of the promises it is reported under")

    @property
    def keys(self) -> list[str]:
        """What its results end in."""
        return [f"_{budget}.{self.name}" for budget in self.budgets]


def run_private(bench: Bench, options: Options, notify: Notify) -> dict[str, float | None]:
    """Train every case with seeds 0 to n - 1 on the same rows."""
    cases = read_cases(bench, PrivateCase)
    keys = [key for case in cases for key in case.keys]
    twice = next((key for key in keys if keys.count(key) > 1), None)
    if twice is not None:
        raise ConfigError(f"benchmark {bench.name} has two cases for accuracy{twice}; give one a key of its own")
    results: dict[str, float | None] = {}
    for case, runs, chosen in each_case(bench, selected(cases, options), options, notify):
        results |= summarise(case, runs, chosen)
    return results | largest(results)


def summarise(case: PrivateCase, runs: Sequence[Run], chosen: int | None = None) -> dict[str, float | None]:
    """The results of one case, under each of its names."""
    tests = [100 * run.result["test_score"] for run in runs if run.result["test_score"] is not None]
    whole = len(tests) == len(runs)  # a run that has no score is not left out: there is no mean then
    values: dict[str, float | None] = {
        "accuracy": statistics.fmean(tests) if whole else None,
        "accuracy_std": statistics.stdev(tests) if whole and len(tests) > 1 else None,
    }
    if not _bare(runs[0]):  # uploads without noise: there is no such figure
        values |= epsilons(runs) or {"epsilon_spent": 0.0}
    if chosen is not None:
        values["chosen"] = chosen
    if case.seeds is not None:
        values["seeds"] = len(runs)
    return {f"{name}{key}": value for key in case.keys for name, value in values.items()}


def epsilons(runs: Sequence[Run]) -> dict[str, float | None]:
    """What training cost the party that it cost most, by both accountants; empty where nothing is promised."""
    if not runs[0].privacy.protects:
        return {}
    settings = runs[0].privacy
    shift = max((one.shift for run in runs for one in tally(run.ledger, settings.neighbours)), default=0.0)
    return {
        "epsilon_spent": exact_epsilon(shift, settings.delta),
        "epsilon_rdp": rdp_epsilon(shift, settings.delta),
    }


def _bare(run: Run) -> bool:
    return any(r.purpose is Purpose.TRAIN and r.event.bare and r.owner in run.models for r in run.ledger)


def largest(results: Mapping[str, float | None]) -> dict[str, float | None]:
    """`epsilon_spent.KEY`: the largest over all budgets under which a case stands."""
    found: dict[str, float | None] = {}
    for key, value in results.items():
        if key.startswith("epsilon_spent_") and value is not None:
            name = f"epsilon_spent.{key.rpartition('.')[2]}"
            found[name] = max(value, found.get(name) or 0.0)
    return found
