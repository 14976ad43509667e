"""Accuracy benchmarks: the same job with several seeds; accuracy, and rounds and bytes until a given one."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from colonnade.bench.catalogue import Bench
from colonnade.bench.settings import Notify, Options
from colonnade.job import Job, read_job
from colonnade.progress import Progress, Watcher
from colonnade.run import Run
from colonnade.wire.traffic import Traffic

MB = 1e6
SHARED = ("data", "model", "training")  # sections of which a case says only what differs
SAY_EVERY = 5.0  # seconds between lines of progress


def run_accuracy(bench: Bench, options: Options, notify: Notify) -> dict[str, float | None]:
    """Train with seeds 0 to n - 1 on the same rows and summarise."""
    jobs = [case_job(bench, {}, options, seed) for seed in range(options.seeds)]
    federation = jobs[0].federation()
    runs = [job.fit(federation, watch=watcher(f"seed {seed}", notify)) for seed, job in enumerate(jobs)]
    return summarise(runs, bench.reach)


def case_job(bench: Bench, case: Mapping[str, Any], options: Options, seed: int) -> Job:
    """The benchmark's job with one seed; sections of `case` come on top, of those in SHARED only what it names."""
    tables = {key: dict(value) for key, value in bench.tables.items() if key not in ("cases", bench.kind)}
    for name, section in case.items():
        tables[name] = {**tables.get(name, {}), **section} if name in SHARED else dict(section)
    if options.data_dir is not None:
        tables.setdefault("data", {})["data_dir"] = str(options.data_dir)
    if options.device is not None:
        tables.setdefault("training", {})["device"] = options.device
    return read_job(tables, seed=seed)


def summarise(runs: Sequence[Run], reach: float | None) -> dict[str, float | None]:
    """The results of one or more runs of the same job; scores in per cent."""
    tests = [_percent(run.result["test_score"]) for run in runs]
    results = {
        "test_accuracy": _mean(tests),
        "test_accuracy_std": _over(tests, statistics.stdev) if len(tests) > 1 else None,
        "validation_accuracy": _mean([_percent(run.result["validation_score"]) for run in runs]),
    }
    if reach is not None:
        first = [rounds_to(run, reach) for run in runs]
        reached = list(zip(runs, first, strict=True))
        results |= {
            f"rounds_to_{reach:g}": _mean(first),
            f"rounds_to_{reach:g}_worst": _over(first, max),
            f"mb_to_{reach:g}": _mean([bytes_to(run.traffic, n) / MB if n else None for run, n in reached]),
            f"mb_to_{reach:g}_multicast": _mean(
                [bytes_to(run.traffic, n, multicast=True) / MB if n else None for run, n in reached]
            ),
        }
    results["rounds"] = _mean([run.result["rounds"] for run in runs])
    results["seconds"] = _mean([run.result["seconds"] for run in runs])
    return results


def rounds_to(run: Run, reach: float) -> int | None:
    """The first round after which the validation score is at least `reach` per cent; None if none is."""
    for record in run.history:
        if "score" in record and 100 * record["score"] >= reach:
            return int(record["round"])
    return None


def bytes_to(traffic: Traffic, rounds: int, *, multicast: bool = False) -> int:
    """Training bytes of all parties, both directions, that the model after `rounds` rounds has used.

    That is rounds 1 to `rounds`, and of the next one only what goes down: it carries the last reply,
    from which the parties learn before they are evaluated. What they then upload belongs to the round after.
    """
    total = 0
    for record in traffic.rounds:
        if record.number <= rounds + 1:
            total += record.multicast_down if multicast else int(record.down.sum())
        if record.number <= rounds:
            total += int(record.up.sum())
    return total


def _percent(score: float | None) -> float | None:
    return None if score is None else 100 * score


def _mean(values: Sequence[float | None]) -> float | None:
    return _over(values, statistics.fmean)


def _over(values: Sequence[float | None], summary: Callable[[list[float]], float]) -> float | None:
    """A summary of all runs; None if one of them has no value, because the others do not speak for it."""
    known = [value for value in values if value is not None]
    return summary(known) if len(known) == len(values) else None


def watcher(what: str, notify: Notify) -> Watcher:
    """Says now and then how far a training is."""
    last = time.monotonic()

    def watch(progress: Progress) -> None:
        nonlocal last
        if time.monotonic() - last >= SAY_EVERY or progress.round == progress.rounds:
            last = time.monotonic()
            best = "" if progress.best is None else f", best {progress.judged} {progress.best:.4f}"
            notify(f"{what}: round {progress.round} of {progress.rounds}{best}")

    return watch
