"""`colonnade demo`: is it worth joining? Each party alone, all together, all columns in one place; offline."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from colonnade.cli.options import AsJson
from colonnade.cli.screen import Screen
from colonnade.cli.stopping import Terminated, terminable, told_of
from colonnade.cli.training import facts
from colonnade.errors import RunError

if TYPE_CHECKING:
    from colonnade.beside import Trial
    from colonnade.federation import Federation
    from colonnade.record import Section, Worth

MARKER, CONFIG = ".colonnade-demo", "demo.toml"
PARTIES, ROUNDS = 4, 40
TOGETHER, ONE_PLACE = "together", "one_place"
FORMER = ("vimadmm", "vimadmm_j", "local_only", "centralized")  # folders that older demos wrote
ABOUT_CONFIG = """\
# The joint training of the demo:  colonnade train {file}
# For tables of your own replace [data], e.g.:
#   [data]
#   tables = {{ bank = "bank.csv", telco = "telco.csv" }}
#   labels = "churn"
#   id = "customer"

"""


def demo(
    out: Annotated[Path, typer.Option(help="Folder; an older demo in it is replaced.")] = Path("demo-run"),
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of each training.")] = ROUNDS,
    as_json: AsJson = False,
) -> None:
    """Four parties hold a strip of each picture of a digit: is it worth joining?

    Trains VIMADMM with each party alone, with all together, and with all columns in one place, and says what joining
    is worth and who contributed what. Needs no files and no network. Writes a run folder per training and
    report.html, with report.md, report.json and pictures/ beside it.

    Example: colonnade demo --out demo-run
    """
    screen = Screen(as_json)
    _check_free(out)
    screen.aside("loading the data and PyTorch")
    from colonnade.data.sets import digits
    from colonnade.report.html import require_extra
    from colonnade.report.worth import verdict, worth_table

    require_extra()
    federation = digits(PARTIES)
    trials = _trials(federation, rounds)
    _clear(out, [trial.folder for trial in trials])
    _begin(out, rounds)
    screen.notify(
        f"{federation.rows:,} handwritten digits; {PARTIES} parties hold one strip of each picture "
        f"({federation.only(federation.names[:1]).width} of {federation.width} pixels)"
    )
    with _one_thread():
        found = _train(screen, trials, federation, out)
        screen.table(worth_table(found))
        screen.aside("asking the parties what each of them contributed")
        more = _explain(out / TOGETHER, federation)
    for line in (*verdict(found), more):
        screen.notify(line)
    screen.aside("writing the report")
    _finish(screen, trials, out, found, more)


def _trials(federation: Federation, rounds: int) -> list[Trial]:
    """Each party alone, with the labels but only its own columns; all together; all columns in one place."""
    from colonnade.beside import BESIDE, trials
    from colonnade.job import read_job

    joint, *alone, central = trials(read_job(_configuration(rounds)), federation, BESIDE)
    return [*alone, replace(joint, folder=TOGETHER), replace(central, folder=ONE_PLACE)]


def _configuration(rounds: int) -> dict[str, Section]:
    return {
        "data": {"set": "digits", "parties": PARTIES},
        "method": {"name": "vimadmm"},
        "training": {"rounds": rounds, "seed": 0},
    }


def _begin(out: Path, rounds: int) -> None:
    """The folder, the mark that lets a later demo replace it, and the configuration to go on with."""
    from colonnade.report.repeat import to_toml

    out.mkdir(parents=True, exist_ok=True)
    (out / MARKER).write_text("Written by `colonnade demo`, which may replace this folder.\n", encoding="utf-8")
    text = ABOUT_CONFIG.format(file=out / CONFIG) + to_toml(_configuration(rounds))
    (out / CONFIG).write_text(text, encoding="utf-8")


def _train(screen: Screen, trials: Sequence[Trial], federation: Federation, out: Path) -> Worth:
    """Train all, each into its own folder; what joining is worth."""
    from colonnade.beside import Trained, weigh, write_worth

    found = []
    try:
        with terminable(), screen.progress() as bars:
            for trial in trials:
                part = trial.job.part_of(federation)
                run = trial.job.fit(part, out / trial.folder, bars.watch(trial.who, trial.job.training.rounds))
                found.append(Trained(trial, part.width, [run.record()], [run.tested]))
    except (KeyboardInterrupt, Terminated) as stop:
        told, status = told_of(stop)
        print(f"{told}; start again with: colonnade demo --out {out}", file=sys.stderr)
        raise typer.Exit(status) from None
    return write_worth(weigh(found), out)


def _explain(folder: Path, federation: Federation) -> str:
    """Ask the parties of a run what the report shows of them; the most important ones in a sentence."""
    from colonnade.run import Run

    found = Run.load(folder).explain(federation, rank_by="shapley")
    found.save(folder)
    first, *_, last = found.ranked()
    return f"To the joint score {first} contributed most and {last} least (Shapley values)."


def _finish(screen: Screen, trials: Sequence[Trial], out: Path, found: Worth, more: str) -> None:
    """The page, the facts, and what to type next; status 1 if a run diverged."""
    from colonnade.report.html import write_report
    from colonnade.report.record import read_records
    from colonnade.report.worth import verdict

    records = read_records([out / trial.folder for trial in trials])
    page = write_report(records, out, worth=found, more=[more])
    runs = [facts(record, out / trial.folder) for trial, record in zip(trials, records, strict=True)]
    following = f"colonnade train {out / CONFIG} --out runs/first"
    places = {"out": str(out), "report": str(page), "next": following}
    told = " ".join((*verdict(found), more))
    screen.emit({**places, "scores": _scores(found), "verdict": told, "worth": found, "runs": runs})
    screen.notify(f"report: {page}")
    screen.notify(f"next: {following}    (for tables of your own: colonnade init tables)")
    if any(run["diverged"] for run in runs):
        raise typer.Exit(1)


def _scores(found: Worth) -> dict[str, object]:
    """Test scores: of each party alone, together, and in one place."""
    of = {role: [one for one in found["trials"] if one["role"] == role] for role in ("alone", "joint", "central")}
    alone = {one["who"].removesuffix(" alone"): one["score"] for one in of["alone"]}
    return {"alone": alone, TOGETHER: of["joint"][0]["score"], ONE_PLACE: of["central"][0]["score"]}


@contextmanager
def _one_thread() -> Iterator[None]:
    """Sum in the same order on every machine; and on a busy one, threads that wait for each other take minutes."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _check_free(out: Path) -> None:
    """Refuse a folder that holds something else than an older demo."""
    empty = not out.exists() or (out.is_dir() and not any(out.iterdir()))
    if not empty and not (out / MARKER).is_file():
        raise RunError(f"{out} already exists and is not a demo folder; choose another place with --out, or remove it")


def _clear(out: Path, folders: Sequence[str]) -> None:
    """Remove an older demo, and only what a demo writes."""
    from colonnade.report.html import clear_report
    from colonnade.report.worth import FILE

    if not out.exists():
        return
    (out / FILE).unlink(missing_ok=True)
    for folder in (*folders, *FORMER):
        if (out / folder).is_dir():
            shutil.rmtree(out / folder)
    clear_report(out)
