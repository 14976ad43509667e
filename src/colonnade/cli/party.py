"""`colonnade party`: one party of a run between separate organisations."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from colonnade.cli.operating import Journal, LogKind, operated
from colonnade.cli.options import Overrides, Quiet


def party(
    config: Annotated[Path, typer.Argument(metavar="PARTY.toml", help="Who this is, and what it holds.")],
    overrides: Overrides = None,
    once: Annotated[bool, typer.Option("--once", help="Exit when training is over; answer no predictions.")] = False,
    log: LogKind = "text",
    quiet: Quiet = False,
) -> None:
    """Take part in a run with this organisation's columns, in the foreground, until stopped.

    The party waits for the coordinator, checks its signed proposal against the policy file, trains, and then answers
    predictions. It may be stopped or killed at any moment and started again with the same command.

    Example: colonnade party party.toml --log json
    """
    from colonnade.deploy.start import run_party

    with operated(Journal(log, quiet)) as say:
        _check(config, overrides)
        run_party(config, overrides, once, say)


def _check(config: Path, overrides: list[str] | None) -> None:
    """What is wrong with the table or the device is said now, and here; not to the label holder, once it proposes."""
    import torch

    from colonnade.align.files import read_alignment
    from colonnade.deploy.settings import read_party
    from colonnade.deploy.start import party_duty
    from colonnade.fit import find_device

    read = read_party(config, overrides)
    read.credentials()
    duty, rows = party_duty(read), read_alignment(read.party.alignment).complete
    find_device(duty.device)
    duty.columns(torch.arange(rows), rows)
