"""Run one benchmark by name, on one machine, and hold its results against its targets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from colonnade.bench.accuracy import run_accuracy
from colonnade.bench.any_subset import run_any_subset
from colonnade.bench.cases import Case, read_cases
from colonnade.bench.catalogue import Bench, find
from colonnade.bench.clock import available_cores, torch_threads
from colonnade.bench.explain import run_explain
from colonnade.bench.interactions import run_interactions
from colonnade.bench.outcome import Findings, Outcome, check_out, check_part, commit, joined, machine, tidy, write
from colonnade.bench.peers import run_peers
from colonnade.bench.poisson import run_poisson
from colonnade.bench.private import PrivateCase, largest, run_private
from colonnade.bench.row_dp import run_row_dp, run_tables_row_dp
from colonnade.bench.settings import Notify, Options
from colonnade.bench.speed import run_speed
from colonnade.bench.tables import run_tables
from colonnade.bench.tables_scale import run_tables_scale
from colonnade.bench.trees import run_trees
from colonnade.bench.unmatched import run_unmatched
from colonnade.bench.worth import run_worth
from colonnade.bench.zoo import run_sweep, run_zoo, sweep_cases
from colonnade.errors import ConfigError


def _run_align(bench: Bench, options: Options, notify: Notify) -> dict[str, float | None]:
    from colonnade.bench.align import run_align  # needs cryptography, which other benchmarks do without

    return run_align(bench, options, notify)


def _run_deployment(bench: Bench, options: Options, notify: Notify) -> dict[str, float | None]:
    from colonnade.bench.deployment import run_deployment  # needs nats-py, which other benchmarks do without

    return run_deployment(bench, options, notify)


def _run_faults(bench: Bench, options: Options, notify: Notify) -> dict[str, float | None]:
    from colonnade.bench.faults import run_faults  # needs nats-py, too

    return run_faults(bench, options, notify)


def _run_restart(bench: Bench, options: Options, notify: Notify) -> dict[str, float | None]:
    from colonnade.bench.restart import run_restart  # needs nats-py, too

    return run_restart(bench, options, notify)


def _run_serve(bench: Bench, options: Options, notify: Notify) -> dict[str, float | None]:
    from colonnade.bench.serve import run_serve  # needs nats-py, FastAPI and uvicorn

    return run_serve(bench, options, notify)


def _run_audit(bench: Bench, options: Options, notify: Notify) -> dict[str, float | None]:
    from colonnade.bench.audit import run_audit  # needs SciPy and dp-accounting, which other benchmarks do without

    return run_audit(bench, options, notify)


RUNNERS: dict[str, Callable[[Bench, Options, Notify], dict[str, float | None] | Findings]] = {
    "accuracy": run_accuracy,
    "zoo": run_zoo,
    "sweep": run_sweep,
    "private": run_private,
    "unmatched": run_unmatched,
    "poisson": run_poisson,
    "explain": run_explain,
    "speed": run_speed,
    "align": _run_align,
    "deployment": _run_deployment,
    "faults": _run_faults,
    "restart": _run_restart,
    "audit": _run_audit,
    "serve": _run_serve,
    "tables": run_tables,
    "tables_scale": run_tables_scale,
    "trees": run_trees,
    "peers": run_peers,
    "worth": run_worth,
    "interactions": run_interactions,
    "any_subset": run_any_subset,
    "row_dp": run_row_dp,
    "tables_row_dp": run_tables_row_dp,
}
KEEPING = ("zoo", "sweep", "private", "row_dp")  # kinds whose trainings `--runs` keeps
LEAVING_OUT = ("zoo", "sweep", "private")  # kinds of which a file of results says which cases it has
WITH_CASES = ("zoo", "sweep", "private", "tables", "trees", "any_subset", "row_dp", "tables_row_dp")


def measure(name: str, options: Options, out: Path | None, notify: Notify) -> Outcome:
    """Run a benchmark and write what it found to `out`; some of its cases are added to those that are there."""
    _check(name, options, out)
    outcome = perform(name, options, notify)
    if out is not None:
        if _of_some(options):
            outcome = added(outcome, out)
        write(outcome, out)
    return outcome


def added(part: Outcome, path: Path) -> Outcome:
    """The outcome of some cases together with those that a file holds; `check_part` says that they belong."""
    whole = joined(part, path)
    if find(whole.bench).kind != "private":
        return whole
    # A case stands under several budgets, which may be measured one by one.
    return replace(whole, results={**whole.results, **tidy(largest(whole.results))})


def _of_some(options: Options) -> bool:
    """Whether only some of the cases are asked for."""
    return bool(options.only) or options.finished or options.beyond is not None


def _check(name: str, options: Options, out: Path | None) -> None:
    """Refuse what cannot be done before hours are spent."""
    bench = find(name)
    if out is not None:
        check_out(out)
    for given, kinds, told in (
        (options.only, WITH_CASES, "--only: benchmark {} has no cases to choose from; leave it out"),
        (options.runs, KEEPING, "--runs: benchmark {} has no trainings to keep; leave it out"),
        (options.beyond, LEAVING_OUT, "--beyond: benchmark {} has no cases that could be left out; leave it out"),
    ):
        if given and bench.kind not in kinds:
            raise ConfigError(told.format(name))
    if out is not None and options.only and bench.kind == "any_subset":
        raise ConfigError(f"benchmark {name} takes means over all sets, which some cannot be added to; leave --out out")
    if options.finished and options.runs is None:
        raise ConfigError("--finished needs the folder of kept trainings: --runs FOLDER")
    if out is not None and _of_some(options):
        check_part(out, name, _device(bench, options))
    if options.beyond is not None:
        check_part(options.beyond, name, _device(bench, options))


def lacking(outcome: Outcome) -> list[str]:
    """The cases that an outcome has no figures of, by name; of a benchmark without cases none."""
    bench = find(outcome.bench)
    if bench.kind not in LEAVING_OUT:
        return []
    kind = PrivateCase if bench.kind == "private" else Case
    cases = sweep_cases(bench) if bench.kind == "sweep" else read_cases(bench, kind)
    return [case.name for case in cases if not case.within(outcome.results)]


def perform(name: str, options: Options, notify: Notify) -> Outcome:
    """The outcome of the benchmark called `name`; progress goes to `say`."""
    bench = find(name)
    device = _device(bench, options)
    with torch_threads(options.threads or available_cores()):
        found = RUNNERS[bench.kind](bench, options, notify)
        found = found if isinstance(found, Findings) else Findings(found)
        limits = bench.limits(device)
        return Outcome(bench.name, tidy(found.results), limits, machine(device), commit(), found.curves)


def _device(bench: Bench, options: Options) -> str:
    device = options.device or str(bench.tables.get("training", {}).get("device", "cpu"))
    _check_device(device)
    return device


def _check_device(device: str) -> None:
    try:
        kind = torch.device(device).type
    except RuntimeError:
        raise ConfigError(f"--device {device!r} is not a device; use cpu, cuda or cuda:0") from None
    if kind == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"--device {device}: no GPU is available here; leave it out, or use cpu")
