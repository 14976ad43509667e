"""Many methods on the same rows: accuracy, bytes per round and bytes until a given accuracy, several seeds each.

    reach = 96.0                  per cent on validation rows: test rows are looked at once, at the end of a run
    [data] [model] [training]     what all cases share
    [[cases]]
    key = "vimadmm_25"            what its results are called; the method's name if left out
    method = { name = "vimadmm", ... }
    training = { rounds = 400 }   what differs

Results: those of an accuracy benchmark, each with `.KEY`, and `mb_per_round_up.KEY`, `mb_per_round_down.KEY`: what
one party sends and receives in a full round, in MB of 10^6 bytes, counted on the encoded messages.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from pydantic import Field

from colonnade.bench.accuracy import MB, case_job, summarise, watcher
from colonnade.bench.catalogue import Bench
from colonnade.bench.settings import Options, Say
from colonnade.config import Settings, build
from colonnade.errors import ConfigError
from colonnade.run import Run


class Case(Settings):
    """One method with its settings."""

    key: str = Field("", description="what its results are called; empty: the method's name")
    method: dict[str, object] = Field(description="as [method] has it")
    training: dict[str, object] = Field(default_factory=dict, description="what differs from [training]")

    @property
    def name(self) -> str:
        """What its results are called."""
        return self.key or str(self.method["name"])


def run_zoo(bench: Bench, options: Options, say: Say) -> dict[str, float | None]:
    """Train every case with seeds 0 to n - 1 on the same rows."""
    cases = [build(Case, case, f"benchmark {bench.name}: cases") for case in bench.tables.get("cases", ())]
    if not cases or len({case.name for case in cases}) < len(cases):
        raise ConfigError(f"benchmark {bench.name} needs [[cases]], each with a key of its own")
    jobs = [
        [case_job(bench, case.model_dump(exclude={"key"}), options, seed) for seed in range(options.seeds)]
        for case in cases
    ]
    federation = jobs[0][0].federation()
    results: dict[str, float | None] = {}
    for case, seeds in zip(cases, jobs, strict=True):
        runs = [job.fit(federation, watch=watcher(f"{case.name}, seed {s}", say)) for s, job in enumerate(seeds)]
        values = {**summarise(runs, bench.reach), **per_round(runs)}
        results |= {f"{key}.{case.name}": value for key, value in values.items()}
    return results


def per_round(runs: Sequence[Run]) -> dict[str, float | None]:
    """What one party sends and receives in a full round; medians, since the last batch of an epoch may be short."""
    rounds = [record for run in runs for record in run.traffic.rounds if record.up.any()]
    up = [float(record.up.max()) for record in rounds]
    down = [float(record.down.max()) for record in rounds if record.number > 1]
    return {
        "mb_per_round_up": statistics.median(up) / MB if up else 0.0,
        "mb_per_round_down": statistics.median(down) / MB if down else None,
    }
