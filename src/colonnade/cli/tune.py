"""`colonnade tune`: the best settings of methods by their validation scores, with equal budgets."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from colonnade.cli.compare import read_names, read_numbers
from colonnade.cli.options import AsJson, Config, DataDir, Device, Overrides, read_config
from colonnade.cli.screen import Bars, Screen
from colonnade.cli.stopping import Terminated, terminable, told_of
from colonnade.cli.training import check, free_folder
from colonnade.errors import ConfigError, RunError

if TYPE_CHECKING:
    from colonnade.job import Job
    from colonnade.progress import Progress
    from colonnade.report.tables import Table
    from colonnade.search import Outcome, Watcher

BEST = "best.toml"


def tune(  # noqa: PLR0913, PLR0917 - one parameter per option of the command line
    config: Config,
    methods: Annotated[str | None, typer.Option(help="Names, e.g. vimadmm,fdml.", show_default=False)] = None,
    method: Annotated[list[str] | None, typer.Option(help="One name; may be repeated.", show_default=False)] = None,
    trials: Annotated[int, typer.Option(min=1, help="Settings to try, of each method.")] = 20,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Rounds of a trial; default: training.rounds.", show_default=False)
    ] = None,
    seeds: Annotated[str, typer.Option(help="Every trial is the mean over these, e.g. 0,1,2 or 0-2.")] = "0",
    search: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=LOW:HIGH[:log]", help="Or KEY=A,B,C. Search these instead.", show_default=False),
    ] = None,
    overrides: Overrides = None,
    out: Annotated[Path | None, typer.Option(help="Folder; default: a new one in runs/.", show_default=False)] = None,
    data_dir: DataDir = None,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Search the settings of one or several methods on the validation rows. Test rows are never looked at.

    Writes best.toml, which `train` and `compare` take. An interrupted search goes on with the same command and its
    --out; more --trials add to those that are there.

    Example: colonnade tune examples/digits.toml --trials 10 --rounds 20
    """
    from colonnade.compare import distinct
    from colonnade.extras import need
    from colonnade.search import STUDY, Budget, price, search_settings
    from colonnade.search_space import asked_space, declared_space

    need("optuna", extra="tune", purpose="tune")
    screen = Screen(as_json)
    tables = read_config(config, overrides, data_dir, device)
    chosen = [*(read_names(methods) if methods is not None else ()), *(method or ())]
    jobs = _jobs(tables, chosen)
    numbers = distinct(read_numbers(seeds), int, "seeds", "[0, 1, 2]")
    first = next(iter(jobs.values()))
    budget = Budget(trials, rounds or first.training.rounds, tuple(numbers))
    warning = price(first.privacy)
    federation = first.federation()
    jobs = {name: job.suited(federation) for name, job in jobs.items()}
    made = {name: job.method for name, job in jobs.items()}
    spaces = asked_space(made, search) if search else {n: declared_space(m) for n, m in made.items()}
    folder = out if out is not None and (out / STUDY).is_file() else free_folder(out, "tune")
    budget = replace(budget, rounds=rounds or first.on(federation).training.rounds)
    for job in jobs.values():
        check(job, federation)
    if warning:
        screen.aside(f"privacy: {warning}")
    outcomes = []
    with screen.progress() as bars:
        for name, job in jobs.items():
            with _interruptible(config, folder):
                watch = _watch(bars, name, trials)
                outcomes.append(search_settings(job, federation, spaces[name], budget, folder / STUDY, watch))
    _finish(screen, outcomes, tables, folder, warning)


def _jobs(tables: Mapping[str, Any], chosen: Sequence[str]) -> dict[str, Job]:
    """The methods asked for; else those of [compare]; else that of [method]."""
    from colonnade.compare import distinct
    from colonnade.job import read_job

    named = read_job(tables).method.name
    wanted = list(chosen) or tables.get("compare", {}).get("methods", [named])
    names = distinct(wanted, str, "methods", '["vimadmm", "fdml"]')
    return {name: read_job(tables, method=name) for name in names}


@contextmanager
def _interruptible(config: Path, folder: Path) -> Iterator[None]:
    """Exit with status 130 at Ctrl-C and 143 at SIGTERM, and say how to go on."""
    try:
        with terminable():
            yield
    except (KeyboardInterrupt, Terminated) as stop:
        told, status = told_of(stop)
        again = f"colonnade tune {config} --out {folder} (and the same options)"
        print(f"{told}; finished trials are kept; go on with: {again}", file=sys.stderr)
        raise typer.Exit(status) from None


def _watch(bars: Bars, name: str, trials: int) -> Watcher:
    task = bars.task(name, trials, "trial")

    def move(done: int, best: float | None, now: Progress | None) -> None:
        told = "" if best is None else f"best validation {best:.4f} "
        told += "" if now is None else f"round {now.round} of {now.rounds}"
        task(done, told)

    return move


def _finish(
    screen: Screen, outcomes: Sequence[Outcome], tables: Mapping[str, Any], folder: Path, warning: str | None
) -> None:
    from colonnade.privacy.repeats import of_searches

    found = [outcome for outcome in outcomes if outcome.score is not None]
    if not found:
        raise RunError("every trial diverged; search smaller step sizes, e.g. --search optimiser.lr=1e-5:1e-2:log")
    path = folder / BEST
    _write(path, best_toml(outcomes, tables, warning))
    screen.table(_table(outcomes))
    keys = ("method", "metric", "score", "usual", "trials", "diverged", "chosen", "together")
    facts = [{key: getattr(outcome, key) for key in keys} for outcome in outcomes]
    cost = {"privacy": warning, "together": of_searches([o.spent for o in outcomes]) or None}
    screen.emit({"out": str(folder), "best": str(path), **cost, "methods": facts})
    screen.notify("These are validation scores, which the search has made the most of: they promise no test score.")
    for line in _together(outcomes):
        screen.notify(line)
    screen.notify(f"next: colonnade train {path}" + (f", or colonnade compare {path}" if len(outcomes) > 1 else ""))


def best_toml(outcomes: Sequence[Outcome], tables: Mapping[str, Any], warning: str | None) -> str:
    """A configuration with the best settings of all, that of the best method in [method]."""
    from colonnade.report.repeat import to_toml

    ranked = [outcome for outcome in outcomes if outcome.score is not None]
    best = max(ranked, key=lambda outcome: outcome.gain)
    sections = {name: body for name, body in tables.items() if name not in ("method", "compare")}
    sections["method"] = {"name": best.method, **best.settings}
    if len(outcomes) > 1:
        kept = {k: v for k, v in tables.get("compare", {}).items() if k in ("seeds", "target", "clock")}
        sections["compare"] = {
            **kept,
            "methods": [outcome.method for outcome in ranked],
            **{outcome.method: outcome.settings for outcome in ranked},
        }
    told = [f"{o.method}: validation {_title(o)} {o.score:.4f}, the best of {o.trials} trials" for o in ranked]
    lines = ["Written by `colonnade tune`.", *told, *([f"Privacy: {warning}."] if warning else [])]
    lines += _together(outcomes)
    return "".join(f"# {line}\n" for line in lines) + "\n" + to_toml(sections)


def _together(outcomes: Sequence[Outcome]) -> list[str]:
    """What the search itself cost: a line per method, and one for all of them, which trained on the same rows."""
    from colonnade.privacy.repeats import of_searches

    told = [f"privacy of the search, {o.method}: {o.together}" for o in outcomes if o.together]
    if len(told) > 1:
        told.append(f"privacy of the search, all methods: {of_searches([o.spent for o in outcomes])}")
    return told


def _table(outcomes: Sequence[Outcome]) -> Table:
    from colonnade.report import words
    from colonnade.report.tables import Table

    rows = tuple(
        (
            o.method,
            str(o.trials),
            str(o.diverged),
            "-" if o.usual is None else f"{o.usual:.4f}",
            "-" if o.score is None else f"{o.score:.4f}",
            ", ".join(f"{key} {words.value(value)}" for key, value in o.chosen.items()),
        )
        for o in outcomes
    )
    columns = ("method", "trials", "diverged", "before", "best", "settings")
    names = " and ".join(dict.fromkeys(map(_title, outcomes)))
    return Table(f"Validation scores ({names}), mean over seeds", columns, rows, frozenset({0, 5}))


def _title(outcome: Outcome) -> str:
    from colonnade.evaluate.metrics import find_metric

    return find_metric(outcome.metric).title


def _write(path: Path, text: str) -> None:
    try:
        beside = path.with_name(path.name + ".part")
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written ({error.strerror}); see to the disk") from None
