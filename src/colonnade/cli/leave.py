"""`colonnade leave`: a party leaves a finished model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from colonnade.cli.options import AsJson, DataDir, Quiet, RunFolder
from colonnade.cli.resume import data_of
from colonnade.cli.screen import Screen
from colonnade.cli.training import finish, free_folder


def leave(
    run: RunFolder,
    party: Annotated[str, typer.Option(metavar="NAME", help="Who leaves.", show_default=False)],
    out: Annotated[
        Path | None, typer.Option(help="Folder of the new run; default: a new one in runs/.", show_default=False)
    ] = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Take a party out of a model of one_message: nobody trains, the label holder weighs the others' scores again.

    The old run stays as it is. The new one is written beside it, without the party's part and scores; its record says
    who left.

    Example: colonnade leave runs/with-shop --party shop --out runs/without-shop
    """
    from colonnade.job import load_data
    from colonnade.leave import check_leaving
    from colonnade.leave import leave as take_out
    from colonnade.run import Run

    screen, former = Screen(as_json, quiet), Run.load(run)
    check_leaving(former, party)  # before its data are looked for
    data = data_of(run, former.config, data_dir)
    folder = free_folder(out, former.method.name)
    finish(screen, take_out(former, party, load_data(data, former.about), out=folder), folder)
