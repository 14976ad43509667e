"""`colonnade demo`: is it worth joining? Each party alone, all together, all columns in one place; offline."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from colonnade.cli.options import AsJson
from colonnade.cli.screen import Screen
from colonnade.cli.stopping import Terminated, terminable, told_of
from colonnade.cli.training import facts
from colonnade.cli.verdict import Standing, verdict
from colonnade.errors import RunError

if TYPE_CHECKING:
    from colonnade.federation import Federation
    from colonnade.record import RunRecord, Section
    from colonnade.report.tables import Table

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


@dataclass(frozen=True)
class Trial:
    """One training of the demo. All use the same method, network and settings: only the columns differ."""

    folder: str
    who: str
    federation: Federation

    @property
    def columns(self) -> int:
        """How many numbers of each row it reads."""
        return sum(party.columns[0].numel() for party in self.federation.parties)


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

    require_extra()
    federation = digits(PARTIES)
    trials = _trials(federation)
    _clear(out, [trial.folder for trial in trials])
    _begin(out, rounds)
    screen.notify(
        f"{federation.rows:,} handwritten digits; {PARTIES} parties hold one strip of each picture "
        f"({trials[0].columns} of {trials[-1].columns} pixels)"
    )
    with _one_thread():
        records = _train(screen, trials, out, rounds)
        screen.table(_table(trials, records))
        found = _standing(trials, records)
        told = verdict(found)
        screen.aside("asking the parties what each of them contributed")
        told.append(_explain(out / TOGETHER, federation))
    for line in told:
        screen.notify(line)
    screen.aside("writing the report")
    _finish(screen, trials, out, told, found)


def _trials(federation: Federation) -> list[Trial]:
    """Each party alone, with the labels but only its own columns; all together; all columns in one place."""
    alone = [
        Trial(f"alone-{name}", f"{name} alone", replace(federation.only([name]), name=f"{name} alone"))
        for name in federation.names
    ]
    together = Trial(TOGETHER, "all together", federation)
    pooled = replace(federation.pooled(), name="all columns in one place")
    return [*alone, together, Trial(ONE_PLACE, pooled.name, pooled)]


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


def _train(screen: Screen, trials: Sequence[Trial], out: Path, rounds: int) -> list[RunRecord]:
    """Train all, each into its own folder; their records."""
    from colonnade.fit import fit
    from colonnade.job import read_job

    job = read_job(_configuration(rounds))
    records = []
    try:
        with terminable(), screen.progress() as bars:
            for trial in trials:
                run = fit(
                    trial.federation, job.method, training=job.training, model=job.model, out=out / trial.folder,
                    watch=bars.watch(trial.who, rounds), config=job.tables if trial.folder == TOGETHER else None,
                )  # fmt: skip
                records.append(run.record())
    except (KeyboardInterrupt, Terminated) as stop:
        told, status = told_of(stop)
        print(f"{told}; start again with: colonnade demo --out {out}", file=sys.stderr)
        raise typer.Exit(status) from None
    return records


def _table(trials: Sequence[Trial], records: Sequence[RunRecord]) -> Table:
    from colonnade.report.tables import Table
    from colonnade.report.words import score, size

    rows = []
    for trial, record in zip(trials, records, strict=True):
        result, traffic = record["result"], record["traffic"]
        moved = {TOGETHER: size(traffic["up"] + traffic["down"]), ONE_PLACE: "every column"}
        scores = (score(record, result[key]) for key in ("validation_score", "test_score"))
        rows.append((trial.who, str(trial.columns), *scores, moved.get(trial.folder, "nothing")))
    columns = ("who trains", "columns", "validation accuracy", "test accuracy", "leaves home")
    return Table("The same method, network and settings; only the columns differ", columns, tuple(rows))


def _standing(trials: Sequence[Trial], records: Sequence[RunRecord]) -> Standing:
    results = {trial.folder: record["result"] for trial, record in zip(trials, records, strict=True)}
    federation = next(trial.federation for trial in trials if trial.folder == TOGETHER)
    alone = {name: results[f"alone-{name}"] for name in federation.names}
    return Standing(
        rows=len(federation.split.test),
        alone={name: _measured(result["test_score"]) for name, result in alone.items()},
        best=max(alone, key=lambda name: _measured(alone[name]["validation_score"])),
        together=_measured(results[TOGETHER]["test_score"]),
        one_place=_measured(results[ONE_PLACE]["test_score"]),
    )


def _measured(score: float | None) -> float:
    """A score of a training that evaluated: one that diverged before has none, and the demo ends there."""
    if score is None:
        raise RunError("a training of the demo has no score: it diverged; start it again with fewer rounds")
    return score


def _explain(folder: Path, federation: Federation) -> str:
    """Ask the parties of a run what the report shows of them; the most important ones in a sentence."""
    from colonnade.run import Run

    found = Run.load(folder).explain(federation, rank_by="shapley")
    found.save(folder)
    first, *_, last = found.ranked()
    return f"To the joint score {first} contributed most and {last} least (Shapley values)."


def _finish(screen: Screen, trials: Sequence[Trial], out: Path, told: Sequence[str], found: Standing) -> None:
    """The page, the facts, and what to type next; status 1 if a run diverged."""
    from colonnade.report.content import Headline
    from colonnade.report.html import write_report
    from colonnade.report.record import read_records

    records = read_records([out / trial.folder for trial in trials])
    page = write_report(records, out, headline=Headline(f"Is it worth joining? {PARTIES} parties and digits", told))
    runs = [facts(record, out / trial.folder) for trial, record in zip(trials, records, strict=True)]
    following = f"colonnade train {out / CONFIG} --out runs/first"
    scores = {"alone": dict(found.alone), TOGETHER: found.together, ONE_PLACE: found.one_place}
    places = {"out": str(out), "report": str(page), "next": following}
    screen.emit({**places, "scores": scores, "verdict": " ".join(told), "runs": runs})
    screen.notify(f"report: {page}")
    screen.notify(f"next: {following}    (for tables of your own: colonnade init tables)")
    if any(run["diverged"] for run in runs):
        raise typer.Exit(1)


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

    if not out.exists():
        return
    for folder in (*folders, *FORMER):
        if (out / folder).is_dir():
            shutil.rmtree(out / folder)
    clear_report(out)
