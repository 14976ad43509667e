"""`colonnade coordinator`: the label holder of a run between separate organisations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from colonnade.cli.operating import Journal, LogKind, operated
from colonnade.cli.options import AsJson, Overrides, Quiet, Track
from colonnade.cli.screen import Screen
from colonnade.cli.training import finish

if TYPE_CHECKING:
    from colonnade.progress import Progress


def coordinator(
    config: Annotated[Path, typer.Argument(metavar="COORDINATOR.toml", help="The run, its parties and the labels.")],
    overrides: Overrides = None,
    track: Track = None,
    log: LogKind = "text",
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Propose a run to the parties and train it, in the foreground, until it is done. Exit status 1: it diverged.

    Waits for parties that are not there yet. It may be stopped or killed at any moment and started again with the
    same command. Afterwards the run folder can be reported and predicted like any other.

    Example: colonnade coordinator coordinator.toml
    """
    screen, journal = Screen(as_json, quiet), Journal(log, quiet)
    with operated(journal) as notify:
        from colonnade.deploy.sections import read_coordinator_file

        read = read_coordinator_file(config, overrides)
        journal.of(run=read.coordinator.run, process="coordinator")
        read.credentials()  # what is wrong is said at once, before torch is loaded
        from colonnade.deploy.start import run_coordinator
        from colonnade.trackers import tracker

        trackers, tell = [tracker(text) for text in track or ()], rounds_told(journal, log)

        def watch(now: Progress) -> None:
            tell(now)
            for one in trackers:
                one.on_round(now)

        run, folder = run_coordinator(config, overrides, notify, watch)
        for one in trackers:
            one.on_end(run)
    finish(screen, run, folder)


def rounds_told(journal: Journal, log: str, **facts: str) -> Callable[[Progress], None]:
    """A watcher that tells every round, with facts that are the same in all of them."""
    last = 0

    def watch(now: Progress) -> None:
        nonlocal last
        again, last = now.round == last, now.round
        if again and log == "text":
            return  # the round after the last round only evaluates the validation rows
        score = None if now.score is None else round(now.score, 4)
        best = None if now.best is None else round(now.best, 4)
        journal("round", number=now.round, rounds=now.rounds, validation=score, best=best, bytes=now.bytes, **facts)

    return watch
