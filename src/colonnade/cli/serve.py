"""`colonnade serve`: one long-lived process of an organisation, for any number of runs."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from colonnade.cli.operating import Journal, LogKind, operated
from colonnade.cli.options import Overrides, Quiet
from colonnade.errors import ConfigError


def serve(
    config: Annotated[Path, typer.Argument(metavar="PARTY.toml", help="Who this is, and what it holds.")],
    overrides: Overrides = None,
    log: LogKind = "text",
    quiet: Quiet = False,
) -> None:
    """Take part in every run that the label holder invites this organisation to, until stopped.

    Each run has a folder of its own. After a restart all of them go on, and finished ones answer predictions. SIGHUP
    reads the policy file again, without a pause. It may be stopped or killed at any moment and started again.

    Example: colonnade serve party.toml --log json
    """
    daemon, reload = None, threading.Event()
    try:
        with _on_hangup(reload), operated(Journal(log, quiet)) as notify:
            from colonnade.deploy.sections import read_party_file, role_of

            if role_of(config) == "coordinator":
                raise ConfigError(
                    f"{config} is a label holder's; `colonnade serve` is for parties, and a label holder trains with "
                    "`colonnade coordinator`"
                )
            read_party_file(config, overrides).credentials()  # what is wrong is said at once, before torch is loaded
            from colonnade.service.party import open_daemon

            daemon = open_daemon(config, overrides, notify, reload)
            daemon.serve()
    except typer.Exit as stop:
        if daemon is not None and daemon.busy:
            sys.stderr.flush()
            os._exit(stop.exit_code)  # a thread that computes must not meet the end of the interpreter
        raise


@contextmanager
def _on_hangup(reload: threading.Event) -> Iterator[None]:
    """Inside, SIGHUP sets the event; where there is no such signal, nothing does."""
    if not hasattr(signal, "SIGHUP") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def on_hangup(number: int, frame: FrameType | None) -> None:
        reload.set()

    before = signal.signal(signal.SIGHUP, on_hangup)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)
