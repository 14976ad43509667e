"""`colonnade compare`: several methods and seeds on the same data, one table, one report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from colonnade.cli.options import AsJson, Config, DataDir, Device, Overrides, read_config
from colonnade.cli.screen import Screen
from colonnade.cli.training import check, facts, free_folder, resumable
from colonnade.errors import ConfigError

if TYPE_CHECKING:
    from colonnade.federation import Federation
    from colonnade.job import Job


@dataclass(frozen=True)
class Entry:
    """One training of a comparison; `folder` is inside the comparison's."""

    folder: str
    job: Job


def compare(
    config: Config,
    methods: Annotated[str | None, typer.Option(help="Names, e.g. vimadmm,local_only.", show_default=False)] = None,
    seeds: Annotated[str | None, typer.Option(help="Numbers, e.g. 0,1,2.", show_default=False)] = None,
    overrides: Overrides = None,
    out: Annotated[Path | None, typer.Option(help="Folder; default: a new one in runs/.", show_default=False)] = None,
    data_dir: DataDir = None,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Train several methods on the same rows and put them side by side. Exit status 1: a run diverged.

    The [compare] section names methods and seeds; [compare.NAME] holds settings of one method.

    Example: colonnade compare examples/compare.toml --seeds 0,1,2
    """
    from colonnade.report.html import require_extra

    require_extra()  # before hours of training, not after
    tables = read_config(config, overrides, data_dir, device)
    chosen = {
        **({"methods": _names(methods)} if methods is not None else {}),
        **({"seeds": _numbers(seeds)} if seeds is not None else {}),
    }
    entries = plan(tables, chosen)
    folder = free_folder(out, "compare")
    screen = Screen(as_json)
    federation = entries[0].job.federation()
    for entry in entries:
        check(entry.job, federation)
    records = train_all(screen, entries, federation, folder)
    show(screen, records, [folder / entry.folder for entry in entries], folder)


def plan(tables: Mapping[str, Any], chosen: Mapping[str, Any] | None = None) -> list[Entry]:
    """Every method with every seed, all settings checked; `chosen` replaces what [compare] says."""
    from colonnade.config import unknown_key
    from colonnade.job import read_job
    from colonnade.methods import METHODS

    read_job(tables)  # first, so that whatever is wrong outside [compare] is said plainly
    section = {**tables.get("compare", {}), **(chosen or {})}
    known = ["methods", "seeds", *METHODS]
    for key in section:
        if key not in known:
            raise ConfigError(unknown_key(key, known, "compare"))
    methods = _distinct(section.get("methods", list(METHODS)), str, "methods", '["vimadmm", "local_only"]')
    seeds = _distinct(section.get("seeds", [tables.get("training", {}).get("seed", 0)]), int, "seeds", "[0, 1, 2]")
    return [Entry(f"{m}-{s}", read_job(tables, method=m, seed=s)) for m in methods for s in seeds]


def train_all(screen: Screen, entries: Sequence[Entry], federation: Federation, folder: Path) -> list[dict[str, Any]]:
    """Train one after the other, each into its own folder; the records."""
    records = []
    afterwards = f"; finished runs stay in {folder}: colonnade report {folder}"
    with screen.progress() as bars:
        for entry in entries:
            watch = bars.watch(entry.folder, entry.job.training.rounds)
            with resumable(folder / entry.folder, afterwards):
                records.append(entry.job.fit(federation, folder / entry.folder, watch).record())
    return records


def show(screen: Screen, records: list[dict[str, Any]], places: Sequence[Path], folder: Path) -> None:
    """The table, the page and the facts; status 1 if a run diverged."""
    from colonnade.report.html import write_report
    from colonnade.report.privacy import notes
    from colonnade.report.record import grouped, with_tally
    from colonnade.report.tables import comparison_table, spread

    records = [with_tally(record, place) for record, place in zip(records, places, strict=True)]
    page = write_report(records, folder)
    groups = grouped(records)
    screen.table(comparison_table(groups))
    for labels, text in notes(groups):
        screen.say(f"{labels}: {text}")
    summary = []
    for group in groups:
        mean, deviation = spread([r["result"]["test_score"] for r in group.records])
        summary.append({"method": group.label, "seeds": len(group.records), "test_score": mean, "std": deviation})
    runs = [facts(record, place) for record, place in zip(records, places, strict=True)]
    screen.emit({"out": str(folder), "report": str(page), "summary": summary, "runs": runs})
    diverged = [run for run in runs if run["diverged"]]
    for run in diverged:
        screen.aside(f"{run['run']}: {run['stop']}")
    screen.say(f"runs: {folder}")
    screen.say(f"report: {page}")
    if diverged:
        raise typer.Exit(1)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _numbers(text: str) -> list[int]:
    try:
        return [int(number) for number in text.split(",")]
    except ValueError:
        raise ConfigError(f"--seeds {text!r}: wanted whole numbers and commas, e.g. --seeds 0,1,2") from None


def _distinct(values: Any, kind: type, name: str, example: str) -> list[Any]:
    """A list of distinct values of one type, or the sentence that says so."""
    good = isinstance(values, list) and values and all(type(v) is kind for v in values)
    if not good or len(set(values)) < len(values):
        raise ConfigError(
            f"[compare] {name} = {values!r} is not valid: wanted a list without repetitions, e.g. {example}"
        )
    return list(values)
