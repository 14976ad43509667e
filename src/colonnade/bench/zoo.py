"""Many methods or settings on the same rows: accuracy, bytes per round and bytes until a given accuracy, several seeds.

    reach = 96.0                  per cent on validation rows: test rows are evaluated once, at the end of a run
    [data] [model] [training]     what all cases share
    [[cases]]                     as `cases.py` has them
    [sweep]                       kind = "sweep": one setting over several values, for every case
    setting = "method.rho"        section and setting; "training.schedule.participation" reaches into a table
    values = [0.5, 1.0, 2.0]

Results: those of an accuracy benchmark, each with `.KEY` (of a sweep `.KEY_VALUE`), and
`mb_per_round_up.KEY`, `mb_per_round_down.KEY`: what one party sends and receives in a full round, in MB of 10^6 bytes,
counted on the encoded messages; `class_accuracy_std.KEY`: the standard deviation of the accuracies of the classes on
test rows, in points (the paper's figure of fairness); `chosen.KEY`: the number of the try, where there was a choice;
`seeds.KEY`: how many seeds, where the case says how many at most;
of private cases `epsilon_spent.KEY` and `epsilon_rdp.KEY`, see `private.py`. Curves: the validation accuracy at every
evaluation, mean over seeds.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from colonnade.bench.accuracy import MB, summarise
from colonnade.bench.cases import Case, each_case, read_cases, selected
from colonnade.bench.catalogue import Bench
from colonnade.bench.outcome import Curve, Findings
from colonnade.bench.private import epsilons
from colonnade.bench.settings import Notify, Options
from colonnade.config import Settings, build
from colonnade.errors import ConfigError
from colonnade.run import Run

SECTIONS = ("method", "data", "model", "training", "privacy")


class SweepSettings(Settings):
    """One setting, and the values it takes."""

    setting: str = Field(pattern=rf"^({'|'.join(SECTIONS)})(\.\w+)+$", description="section.setting")
    values: tuple[bool | int | float | str, ...] = Field(min_length=1, description="in the order of the results")


def run_zoo(bench: Bench, options: Options, notify: Notify) -> Findings:
    """Train every case with seeds 0 to n - 1."""
    return _run(bench, read_cases(bench, Case), options, notify)


def run_sweep(bench: Bench, options: Options, notify: Notify) -> Findings:
    """Train every case with every value of one setting."""
    return _run(bench, sweep_cases(bench), options, notify)


def sweep_cases(bench: Bench) -> list[Case]:
    """Every case with every value."""
    settings = build(SweepSettings, bench.tables.get("sweep", {}), f"benchmark {bench.name}: sweep")
    return swept(read_cases(bench, Case), settings, bench.tables)


def swept(cases: Sequence[Case], settings: SweepSettings, shared: Mapping[str, Any]) -> list[Case]:
    """Every case once for each value, under the name KEY_VALUE."""
    section, *path = settings.setting.split(".")
    return [
        case.model_copy(
            update={
                "key": f"{case.name}_{value:g}" if isinstance(value, float) else f"{case.name}_{value}",
                section: _laid({**shared.get(section, {}), **getattr(case, section)}, path, value),
            }
        )
        for case in cases
        for value in settings.values
    ]


def _laid(section: Mapping[str, Any], path: Sequence[str], value: object) -> dict[str, Any]:
    """The section with one setting replaced, whatever else its tables hold."""
    first, *rest = path
    return {**section, first: _laid(section.get(first, {}), rest, value) if rest else value}


def _run(bench: Bench, cases: Sequence[Case], options: Options, notify: Notify) -> Findings:
    if len({case.name for case in cases}) < len(cases):
        raise ConfigError(f"benchmark {bench.name} needs [[cases]], each with a key of its own")
    results: dict[str, float | None] = {}
    curves: dict[str, Curve] = {}
    for case, runs, chosen in each_case(bench, selected(cases, options), options, notify):
        values = summarise(runs, bench.reach) | per_round(runs) | _fairness(runs) | (epsilons(runs) or _own_noise(runs))
        if chosen is not None:
            values["chosen"] = chosen
        if case.seeds is not None:
            values["seeds"] = len(runs)
        results |= {f"{key}.{case.name}": value for key, value in values.items()}
        curves[case.name] = curve(runs)
    return Findings(results, curves)


def per_round(runs: Sequence[Run]) -> dict[str, float | None]:
    """What one party sends and receives in a full round; medians, since the last batch of an epoch may be short."""
    rounds = [record for run in runs for record in run.traffic.rounds if record.up.any()]
    up = [float(record.up.max()) for record in rounds]
    down = [float(record.down.max()) for record in rounds if record.number > 1]
    return {
        "mb_per_round_up": statistics.median(up) / MB if up else 0.0,
        "mb_per_round_down": statistics.median(down) / MB if down else None,
    }


def curve(runs: Sequence[Run]) -> Curve:
    """Round and validation accuracy in per cent, mean over the runs, where all of them have one that is a number."""
    scores = [
        {int(r["round"]): 100 * r["score"] for r in run.history if "score" in r and math.isfinite(r["score"])}
        for run in runs
    ]
    common = sorted(set.intersection(*(set(one) for one in scores)))
    return tuple((number, round(statistics.fmean(one[number] for one in scores), 2)) for number in common)


def _own_noise(runs: Sequence[Run]) -> dict[str, float | None]:
    """The epsilon of a method that brings noise of its own, where an accountant knows it."""
    if all(release.event.bare for release in runs[0].ledger):
        return {}
    known = [one for one in (run.epsilon for run in runs) if one is not None and one.bounded]
    return {"epsilon_spent": max(map(float, known))} if len(known) == len(runs) else {}


def _fairness(runs: Sequence[Run]) -> dict[str, float | None]:
    known = [100 * run.result["class_accuracy_std"] for run in runs if "class_accuracy_std" in run.result]
    return {"class_accuracy_std": statistics.fmean(known)} if len(known) == len(runs) else {}
