"""What all commands that train do before and after: a free folder, interruptions, the facts, the last words."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from colonnade.cli.screen import Screen
from colonnade.cli.stopping import Terminated, terminable, told_of
from colonnade.errors import RunError

if TYPE_CHECKING:
    from colonnade.federation import Federation
    from colonnade.job import Job
    from colonnade.record import RunRecord
    from colonnade.run import Run


BESIDE = (  # what a result says of its test score, where it was measured
    "test_interval", "test_accuracy", "baseline_score", "baseline_accuracy", "validation_metric", "warnings", "metrics",
    "validation_metrics", "decision", "by_group", "uploads",
)  # fmt: skip


def free_folder(out: Path | None, kind: str) -> Path:
    """The folder to write to: the wanted one if nothing is there, else a new one named for time and method."""
    from colonnade.job import new_run_folder
    from colonnade.run import STORE

    if out is not None:
        if out.exists() and not (out.is_dir() and not any(out.iterdir())):
            goes_on = f"; to go on with the run in it: colonnade resume {out}" if (out / STORE).exists() else ""
            raise RunError(f"{out} already exists; choose another place with --out, or remove it{goes_on}")
        return out
    first = new_run_folder(kind)
    later = (first.with_name(f"{first.name}-{n}") for n in range(2, 1000))
    return next((folder for folder in (first, *later) if not folder.exists()), first)


def check(job: Job, federation: Federation) -> None:
    """Open the job without training it, so that whatever it refuses is refused before anything is written."""
    from colonnade.fit import Trainer

    training = job.training.model_copy(update={"engine": "loop"})  # opens faster, refuses the same
    Trainer.open(federation, job.method, training, job.model, None, None, privacy=job.privacy)


@contextmanager
def resumable(folder: Path, afterwards: str = "") -> Iterator[None]:
    """Exit with status 130 at Ctrl-C and 143 at SIGTERM, and say how to go on."""
    from colonnade.run import STORE

    try:
        with terminable():
            yield
    except (KeyboardInterrupt, Terminated) as stop:
        told, status = told_of(stop)
        begun = (folder / STORE).exists()
        hint = f"continue with: colonnade resume {folder}" if begun else "nothing of this run was written"
        print(f"{told}; {hint}{afterwards if begun else ''}", file=sys.stderr)
        raise typer.Exit(status) from None


def facts(record: RunRecord, folder: Path) -> dict[str, object]:
    """A run for machines: what every command that trains or continues prints with --json."""
    from colonnade.report.decided import never_predicted
    from colonnade.report.words import score_name

    result, traffic = record["result"], record["traffic"]
    keys = ("rounds", "stop", "diverged", "best_round", "validation_score", "test_score", "seconds")
    return {
        "run": str(folder),
        "method": record["method"]["name"],
        "federation": record["about"]["federation"],
        "seed": record["training"]["seed"],
        "score": score_name(record),
        **{key: result.get(key) for key in keys},
        **{key: result.get(key) for key in BESIDE if key in result},
        "never_predicted": never_predicted(record),
        "bytes": {key: traffic[key] for key in ("up", "down", "multicast", "evaluation")},
        "label_exposure": record["label_exposure"],
        "fingerprint": record["fingerprint"],
    }


def finish(screen: Screen, run: Run, folder: Path) -> None:
    """The last words of a training; status 1 if it diverged, with its folder complete all the same."""
    record = run.record()
    screen.emit(facts(record, folder))
    tell(screen, record, folder)
    if screen.quiet and not screen.as_json:
        print(folder)
    if record["result"]["diverged"]:
        print(record["result"]["stop"], file=sys.stderr)
        raise typer.Exit(1)


def tell(screen: Screen, record: RunRecord, folder: Path) -> None:
    """A run in words, and what to do with it."""
    from colonnade.report import words
    from colonnade.report.privacy import privacy_page

    for sentence in (*words.summary(record), words.exposure(record), words.noise(record)):
        screen.notify(sentence.replace("colonnade predict RUN", f"colonnade predict {folder}"))
    if words.noised(record):
        page = privacy_page(record)
        for sentence in filter(None, (page.verdict, page.uploads.replace("RUN", str(folder)))):
            screen.notify(sentence)
    screen.notify(f"run folder: {folder}")
    screen.notify(f"next: colonnade report {folder}")
