"""After a private simulation: what its uploads contributed, measured unless it is left out."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from colonnade.cli.screen import Screen
from colonnade.cli.stopping import Terminated, terminable, told_of
from colonnade.errors import ColonnadeError

if TYPE_CHECKING:
    from colonnade.federation import Federation
    from colonnade.run import Run

Compare = Annotated[
    bool,
    typer.Option(
        "--compare/--no-compare",
        help="After a private training: train twice more, to say what the uploads contributed.",
    ),
]


def measure(screen: Screen, run: Run, federation: Federation, folder: Path) -> None:
    """What the uploads of a run contributed, into its record; what stands in the way is told, and the run is whole."""
    from colonnade.report import words
    from colonnade.upload_gain import check_can_compare, upload_gain

    if not words.noised(run.record()) or run.result["diverged"] or not len(federation.split.test):
        return
    later = f"colonnade privacy compare {folder}"
    try:
        check_can_compare(run)
    except ColonnadeError:
        return  # nothing was uploaded, or there is no simulation to repeat
    screen.aside("training again without the signal of the uploads, and as local_only (--no-compare leaves it out)")
    try:
        with terminable(), screen.progress() as bars:
            upload_gain(run, federation, watch=bars.watch)
    except (KeyboardInterrupt, Terminated) as stop:
        told, status = told_of(stop)
        print(f"{told}; the run is complete in {folder}; what its uploads contributed: {later}", file=sys.stderr)
        raise typer.Exit(status) from None
    except ColonnadeError as error:
        screen.aside(f"what the uploads contributed was not measured: {error}")
