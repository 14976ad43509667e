"""`colonnade compare`: several methods and seeds on the same data; one table, one figure, one report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from colonnade.cli.many import Entry, affordable_jobs, state_of, train_all
from colonnade.cli.options import AsJson, DataDir, Device, Overrides, read_config
from colonnade.cli.screen import Screen
from colonnade.cli.training import check, facts, free_folder
from colonnade.errors import ConfigError

if TYPE_CHECKING:
    from colonnade.federation import Federation
    from colonnade.record import RunRecord
    from colonnade.report.record import Group, Terms

__all__ = ["Entry", "compare", "plan", "show", "train_all"]

MARKER = ".colonnade-compare"
SETTINGS = ("methods", "seeds", "target", "clock", "metrics")  # of [compare]; all else there is a method's name


def compare(  # noqa: PLR0913, PLR0917 - one parameter per option
    what: Annotated[
        list[Path],
        typer.Argument(metavar="CONFIG.toml", help="What to train; or folders of runs to put side by side."),
    ],
    methods: Annotated[str | None, typer.Option(help="Names, e.g. vimadmm,local_only.", show_default=False)] = None,
    method: Annotated[list[str] | None, typer.Option(help="One name; may be repeated.", show_default=False)] = None,
    seeds: Annotated[str | None, typer.Option(help="Numbers, e.g. 0,1,2 or 0-2.", show_default=False)] = None,
    target: Annotated[
        float | None,
        typer.Option(help="Validation score to reach: 96 (per cent), AUC or R2.", show_default=False),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            help="Columns about the test rows, e.g. auc,f1; default: what chooses the round.", show_default=False
        ),
    ] = None,
    jobs: Annotated[int, typer.Option(min=0, help="Trainings at a time; 0: as many as fit.")] = 1,
    overrides: Overrides = None,
    out: Annotated[Path | None, typer.Option(help="Folder; default: a new one in runs/.", show_default=False)] = None,
    data_dir: DataDir = None,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Train several methods on the same rows and put them side by side. Exit status 1: a run diverged.

    The [compare] section names methods and seeds; [compare.NAME] holds settings of one method. An interrupted
    comparison goes on with the same command and its --out: finished runs are not repeated.

    Example: colonnade compare examples/compare.toml --seeds 0,1,2
    """
    from colonnade.report.html import require_extra

    require_extra()  # before hours of training, not after
    screen = Screen(as_json)
    asked = {
        "methods": [*(read_names(methods) if methods is not None else ()), *(method or ())] or None,
        "seeds": None if seeds is None else read_numbers(seeds),
        "target": target,
        "metrics": None if metric is None else read_names(metric),
    }
    chosen = {key: value for key, value in asked.items() if value is not None}
    if what[0].is_dir():
        _side_by_side(screen, what, out, chosen, overrides)
        return
    if len(what) > 1:
        raise ConfigError(f"compare takes one configuration file, or folders of runs; got {len(what)} names")
    tables = read_config(what[0], overrides, data_dir, device)
    if isinstance(tables.get("compare", {}), Mapping):  # what else it is, is refused below
        tables = {**tables, "compare": {**tables.get("compare", {}), **chosen}}
    entries, terms = plan(tables), _terms(tables)
    folder = _folder(out)
    federation = entries[0].job.federation()
    _check_target(terms, federation, entries[0].job.training.metric)
    _check_metrics(terms, federation)
    for entry in entries:
        state_of(entry, folder / entry.folder)
        check(entry.job, federation)
    fitting = affordable_jobs(jobs, len(entries), federation, entries[0].job.training.device)
    if fitting < min(jobs, len(entries)):
        screen.aside(f"--jobs {jobs}: memory is enough for {fitting} at a time")
    if left := _left_out(tables):
        screen.aside(f"left out, because not for every number of parties: {left}; name it with --method to try it")
    _mark(folder)
    again = f"colonnade compare {what[0]} --out {folder} (and the same options)"
    records = train_all(screen, entries, federation, folder, fitting, again)
    show(screen, records, [folder / entry.folder for entry in entries], folder, terms)


def _left_out(tables: Mapping[str, Any]) -> str:
    """The methods that are not tried unless they are named."""
    from colonnade.methods import METHODS

    if "methods" in tables.get("compare", {}):
        return ""
    return ", ".join(name for name, method in METHODS.items() if hasattr(method, "parties"))


def plan(tables: Mapping[str, Any]) -> list[Entry]:
    """Every method with every seed, all settings checked."""
    from colonnade.config import unknown_key
    from colonnade.job import read_job
    from colonnade.methods import METHODS

    read_job(tables)  # first, so that whatever is wrong outside [compare] is said plainly
    section = tables.get("compare", {})
    known = [*SETTINGS, *METHODS]
    for key in section:
        if key not in known:
            raise ConfigError(unknown_key(key, known, "compare"))
    anyone = [name for name, method in METHODS.items() if not hasattr(method, "parties")]  # for any number of parties
    methods = distinct(section.get("methods", anyone), str, "methods", '["vimadmm", "local_only"]')
    seeds = distinct(section.get("seeds", [tables.get("training", {}).get("seed", 0)]), int, "seeds", "[0, 1, 2]")
    return [Entry(f"{m}-{s}", read_job(tables, method=m, seed=s)) for m in methods for s in seeds]


def show(
    screen: Screen,
    records: list[RunRecord],
    places: Sequence[Path],
    folder: Path,
    terms: Terms | None = None,
) -> None:
    """The table, the page, the figure and the facts; status 1 if a run diverged."""
    from colonnade.report.html import write_figure, write_report
    from colonnade.report.metrics import compared
    from colonnade.report.privacy import notes
    from colonnade.report.record import Terms, grouped, with_files
    from colonnade.report.tables import costs_table

    records = [with_files(record, place) for record, place in zip(records, places, strict=True)]
    page = write_report(records, folder, terms)
    groups = grouped(records)
    screen.table(compared(groups, terms or Terms()))
    extra: dict[str, object] = {}
    if terms is not None:
        screen.table(costs_table(groups, terms))
        extra = {"figure": str(write_figure(groups, folder, terms)), "clock": terms.clock.model_dump()}
    for labels, text in notes(groups):
        screen.say(f"{labels}: {text}")
    runs = [facts(record, place) for record, place in zip(records, places, strict=True)]
    summary = [_summary(group, terms or Terms()) for group in groups]
    screen.emit({"out": str(folder), "report": str(page), **extra, "summary": summary, "runs": runs})
    diverged = [run for run in runs if run["diverged"]]
    for run in diverged:
        screen.aside(f"{run['run']}: {run['stop']}")
    screen.say(f"runs: {folder}")
    screen.say(f"report: {page}")
    if extra:
        screen.say(f"figure: {extra['figure']}")
    if diverged:
        raise typer.Exit(1)


def _summary(group: Group, terms: Terms) -> dict[str, object]:
    """A method for machines; mean and standard deviation over seeds."""
    from colonnade.report.metrics import mean_metrics
    from colonnade.report.tables import reached, simulated_seconds, spread

    mean, deviation = spread([r["result"]["test_score"] for r in group.records])
    traffic = [r["traffic"] for r in group.records]
    told = {
        "method": group.label,
        "seeds": len(group.records),
        "test_score": mean,
        "std": deviation,
        "metrics": mean_metrics(group),
        "megabytes": spread([(t["up"] + t["down"]) / 1e6 for t in traffic])[0],
        "simulated_seconds": spread(simulated_seconds(group, terms))[0],
    }
    if terms.target is None:
        return told
    found = reached(group, terms)
    means = {key: spread([getattr(one, key) for one in found]) for key in ("rounds", "megabytes", "simulated")}
    to_target = {key: {"mean": mean, "std": deviation} for key, (mean, deviation) in means.items()}
    return {**told, "target": terms.target, "reached": len(found), "to_target": to_target}


def _side_by_side(
    screen: Screen,
    folders: Sequence[Path],
    out: Path | None,
    chosen: Mapping[str, Any],
    overrides: list[str] | None,
) -> None:
    """Runs that are there already: the same table, page and figure, nothing trained."""
    from colonnade.config import with_overrides
    from colonnade.report.record import Terms, check_record, run_folders
    from colonnade.run import read_record

    if "methods" in chosen or "seeds" in chosen:
        raise ConfigError("--methods and --seeds choose what to train; these runs are trained already")
    places = [place for folder in folders for place in run_folders(folder)]
    records = [check_record(read_record(place), str(place)) for place in places]
    changes = with_overrides({"compare": (records[0]["config"] or {}).get("compare", {})}, overrides or [])
    if set(changes) != {"compare"}:
        raise ConfigError(
            "--set changes only compare.clock, compare.target and compare.metrics of runs that are trained already"
        )
    terms = Terms.read({**changes["compare"], **chosen})
    show(screen, records, places, out or (folders[0] if len(folders) == 1 else Path()), terms)


def _terms(tables: Mapping[str, Any]) -> Terms:
    from colonnade.report.record import Terms

    return Terms.read(tables.get("compare", {}))


def _check_target(terms: Terms, federation: Federation, name: str | None) -> None:
    from colonnade.evaluate.metrics import choose_metric

    metric, target = choose_metric(federation.task, name), terms.target
    if target is not None and metric.share and not 1 < target <= 100:
        raise ConfigError(f"target {target:g}: needed per cent of {metric.title}, above 1 and up to 100, e.g. 96")
    if target is not None and not metric.share and metric.better == "higher" and target > 1:
        raise ConfigError(f"target {target:g}: runs are judged by {metric.title}, which is at most 1")


def _check_metrics(terms: Terms, federation: Federation) -> None:
    from colonnade.evaluate.metrics import choose_metric

    for name in terms.metrics:
        choose_metric(federation.task, name)


def _folder(out: Path | None) -> Path:
    """A free folder, or that of a comparison which goes on."""
    return out if out is not None and (out / MARKER).is_file() else free_folder(out, "compare")


def _mark(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARKER).write_text("Written by `colonnade compare`, which may go on here.\n", encoding="utf-8")


def read_names(text: str) -> list[str]:
    """Names and commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def read_numbers(text: str) -> list[int]:
    """Seeds: numbers and ranges, e.g. 0,1,2 or 0-2."""
    try:
        parts = [[int(end) for end in part.split("-")] for part in text.split(",")]
        if any(len(ends) > 2 for ends in parts):
            raise ValueError
        return [number for ends in parts for number in range(ends[0], ends[-1] + 1)]
    except ValueError:
        raise ConfigError(f"--seeds {text!r}: wanted whole numbers and commas, e.g. --seeds 0,1,2 or 0-2") from None


def distinct(values: Any, kind: type, name: str, example: str) -> list[Any]:
    """A list of distinct values of one type, or the sentence that says so."""
    good = isinstance(values, list) and values and all(type(v) is kind for v in values)
    if not good or len(set(values)) < len(values):
        raise ConfigError(
            f"[compare] {name} = {values!r} is not valid: wanted a list without repetitions, e.g. {example}"
        )
    return list(values)
