"""`colonnade compare`: several methods and seeds on the same data; one table, one figure, one report."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from colonnade.cli.options import AsJson, DataDir, Device, Overrides, read_config
from colonnade.cli.screen import Screen
from colonnade.cli.stopping import Terminated, terminable, told_of
from colonnade.cli.training import check, facts, free_folder, resumable
from colonnade.errors import ConfigError

if TYPE_CHECKING:
    from colonnade.federation import Federation
    from colonnade.many import Done, Entry
    from colonnade.record import RunRecord, Worth
    from colonnade.report.record import Terms


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
    alone: Annotated[bool, typer.Option("--alone", help="Also train each party alone: is it worth joining?")] = False,
    central: Annotated[bool, typer.Option("--central", help="Also train one model over all columns.")] = False,
    jobs: Annotated[int, typer.Option(min=0, help="Trainings at a time; 0: as many as fit.")] = 1,
    overrides: Overrides = None,
    out: Annotated[Path | None, typer.Option(help="Folder; default: a new one in runs/.", show_default=False)] = None,
    data_dir: DataDir = None,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Train several methods on the same rows and put them side by side. Exit status 1: a run diverged.

    The [compare] section names methods and seeds; [compare.NAME] holds settings of one method. With --alone and
    --central (beside = ["alone", "central"]) one method is compared with each party alone and with all columns in one
    place, and a verdict says what joining is worth. An interrupted comparison goes on with the same command and its
    --out: finished runs are not repeated.

    Example: colonnade compare examples/compare.toml --seeds 0,1,2
    """
    from colonnade.compare import check_metrics, check_target, left_out, marked, plan, worth_question
    from colonnade.many import affordable_jobs, state_of
    from colonnade.report.html import require_extra

    require_extra()  # before hours of training, not after
    screen = Screen(as_json)
    asked = {
        "methods": [*(read_names(methods) if methods is not None else ()), *(method or ())] or None,
        "seeds": None if seeds is None else read_numbers(seeds),
        "target": target,
        "metrics": None if metric is None else read_names(metric),
        "beside": [name for name, wanted in (("alone", alone), ("central", central)) if wanted] or None,
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
    question = worth_question(entries, federation, tables.get("compare", {}).get("beside", []))
    entries = [entry.on(federation) for entry in (entries if question is None else question.entries)]
    check_target(terms, federation, entries[0].job.training.metric)
    check_metrics(terms, federation)
    for entry in entries:
        state_of(entry, folder / entry.folder)
        check(entry.job, entry.job.part_of(federation))
    fitting = affordable_jobs(jobs, len(entries), federation, entries[0].job.training.device)
    if fitting < min(jobs, len(entries)):
        screen.aside(f"--jobs {jobs}: memory is enough for {fitting} at a time")
    if left := ", ".join(left_out(tables)):
        screen.aside(f"left out, because not for all parties and columns: {left}; name it with --method to try it")
    marked(folder)
    again = f"colonnade compare {what[0]} --out {folder} (and the same options)"
    done = question.done if question is not None else lambda name, run: None
    records = train_all(screen, entries, federation, folder, fitting, again, done)
    worth = None if question is None else question.settle(federation, records, folder)
    show(screen, records, [folder / entry.folder for entry in entries], folder, terms, worth)


def train_all(
    screen: Screen,
    entries: Sequence[Entry],
    federation: Federation,
    folder: Path,
    jobs: int = 1,
    again: str = "",
    done: Done = lambda name, run: None,
) -> list[RunRecord]:
    """Train what is not finished yet, with bars on the screen; the records of all. `again` is how to go on."""
    from colonnade import many

    afterwards = f"; finished runs stay in {folder}: colonnade report {folder}"
    afterwards += f"; go on with all: {again}" if again else ""
    finished = sum(many.state_of(entry, folder / entry.folder) == "finished" for entry in entries)
    if finished:
        screen.aside(f"{finished} of {len(entries)} runs are finished already")
    with screen.progress() as bars:
        return many.train_all(
            entries, federation, folder, jobs, bars.watch, lambda place: _stoppable(place, afterwards), done
        )


@contextmanager
def _stoppable(place: Path | None, afterwards: str) -> Iterator[None]:
    """Around one training in this process, or around several in processes of their own."""
    if place is not None:
        with resumable(place, afterwards):
            yield
        return
    try:
        with terminable():
            yield
    except (KeyboardInterrupt, Terminated) as stop:
        told, status = told_of(stop)
        print(f"{told}{afterwards}", file=sys.stderr)
        raise typer.Exit(status) from None


def show(
    screen: Screen,
    records: list[RunRecord],
    places: Sequence[Path],
    folder: Path,
    terms: Terms | None = None,
    worth: Worth | None = None,
) -> None:
    """The verdict, the table, the page, the figure and the facts; status 1 if a run diverged."""
    from colonnade.compare import summary
    from colonnade.report.compared import costs_table
    from colonnade.report.html import write_figure, write_report
    from colonnade.report.metrics import compared
    from colonnade.report.privacy import notes, together_of
    from colonnade.report.record import Terms, grouped, with_files
    from colonnade.report.worth import joint_groups

    records = [with_files(record, place) for record, place in zip(records, places, strict=True)]
    page = write_report(records, folder, terms, worth=worth)
    groups = grouped(records)
    extra: dict[str, object] = {} if worth is None else _tell_worth(screen, worth)
    if worth is None or (terms is not None and terms.metrics):
        screen.table(compared(groups, terms or Terms()))
    if terms is not None and worth is None:
        screen.table(costs_table(groups, terms))
        extra |= {"figure": str(write_figure(groups, folder, terms)), "clock": terms.clock.model_dump()}
    leaving = groups if worth is None else joint_groups(groups, worth)
    for labels, text in notes(leaving):
        screen.notify(f"{labels}: {text}")
    runs = [facts(record, place) for record, place in zip(records, places, strict=True)]
    lines = [summary(group, terms or Terms()) for group in groups]
    together = together_of([record for group in leaving for record in group.records]) or None
    everything = {"summary": lines, "together": together, "runs": runs}
    screen.emit({"out": str(folder), "report": str(page), **extra, **everything})
    diverged = [run for run in runs if run["diverged"]]
    for run in diverged:
        screen.aside(f"{run['run']}: {run['stop']}")
    screen.notify(f"runs: {folder}")
    screen.notify(f"report: {page}")
    if "figure" in extra:
        screen.notify(f"figure: {extra['figure']}")
    if diverged:
        raise typer.Exit(1)


def _tell_worth(screen: Screen, worth: Worth) -> dict[str, object]:
    """Whether it is worth joining, on the screen; and for machines."""
    from colonnade.report.worth import verdict, worth_table

    told = verdict(worth)
    for sentence in (*told, *worth["notes"]):
        screen.notify(sentence)
    screen.table(worth_table(worth))
    return {"verdict": " ".join(told), "worth": worth}


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
    from colonnade.report.worth import read_worth
    from colonnade.run import read_record

    if {"methods", "seeds", "beside"} & set(chosen):
        raise ConfigError(
            "--methods, --seeds, --alone and --central choose what to train; these runs are trained already"
        )
    places = [place for folder in folders for place in run_folders(folder)]
    records = [check_record(read_record(place), str(place)) for place in places]
    changes = with_overrides({"compare": (records[0]["config"] or {}).get("compare", {})}, overrides or [])
    if set(changes) != {"compare"}:
        raise ConfigError(
            "--set changes only compare.clock, compare.target and compare.metrics of runs that are trained already"
        )
    terms = Terms.read({**changes["compare"], **chosen})
    worth = read_worth(folders[0], records) if len(folders) == 1 else None
    show(screen, records, places, out or (folders[0] if len(folders) == 1 else Path()), terms, worth)


def _terms(tables: Mapping[str, Any]) -> Terms:
    from colonnade.report.record import Terms

    return Terms.read(tables.get("compare", {}))


def _folder(out: Path | None) -> Path:
    """A free folder, or that of a comparison which goes on."""
    from colonnade.compare import MARKER

    return out if out is not None and (out / MARKER).is_file() else free_folder(out, "compare")


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
        raise ConfigError(f"--seeds {text!r}: needed whole numbers and commas, e.g. --seeds 0,1,2 or 0-2") from None
