"""`colonnade party`: one party of a run between separate organisations."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from colonnade.cli.operating import Journal, LogKind, operated
from colonnade.cli.options import AsJson, Overrides, Quiet
from colonnade.cli.screen import Screen


def party(
    config: Annotated[Path, typer.Argument(metavar="PARTY.toml", help="Who this is, and what it holds.")],
    overrides: Overrides = None,
    once: Annotated[bool, typer.Option("--once", help="Exit when training is over; answer no predictions.")] = False,
    log: LogKind = "text",
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Take part in a run with this organisation's columns, in the foreground, until stopped.

    The party waits for the coordinator, checks its signed proposal against the policy file, trains, and then answers
    predictions. It may be stopped or killed at any moment and started again with the same command.

    Example: colonnade party party.toml --log json
    """
    journal = Journal(log, quiet)
    with operated(journal) as notify:
        from colonnade.deploy.sections import read_party_file

        read = read_party_file(config, overrides)
        journal.of(run=read.party.run, process=read.party.name)
        read.credentials()  # what is wrong is said at once, before torch is loaded
        from colonnade.deploy.start import run_party

        done = run_party(config, overrides, once, notify)
    Screen(as_json, quiet).emit(done)  # only with --once does it come to this
