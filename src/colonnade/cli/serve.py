"""`colonnade serve`: one long-lived process of an organisation, for any number of runs."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import typer

from colonnade.cli.align import Config
from colonnade.cli.coordinator import rounds_told
from colonnade.cli.operating import Journal, LogKind, operated
from colonnade.cli.options import Overrides, Quiet

# Seconds that a thread may compute while others wait. A prediction hands over some twenty times between threads of a
# process; with Python's 5 ms each time, one beside a training would take a tenth of a second longer.
SWITCH = 0.0005


def serve(
    config: Config,
    overrides: Overrides = None,
    log: LogKind = "text",
    quiet: Quiet = False,
) -> None:
    """Serve until stopped: as a party all runs that it is invited to, as the label holder all versions of its model.

    A party has a folder for each run. After a restart all of them go on, and finished ones answer predictions. SIGHUP
    reads its policy file again. The label holder trains a version, and others when asked for or by [schedule]; one that
    is not worse is put to use. Both may be stopped or killed at any moment and started again.

    Example: colonnade serve party.toml --log json
    """
    from colonnade.deploy.sections import role_of

    sys.setswitchinterval(SWITCH)
    if role_of(config) == "coordinator":
        return _label_holder(config, overrides, Journal(log, quiet), log)
    return _party(config, overrides, Journal(log, quiet))


def _label_holder(config: Path, overrides: list[str] | None, journal: Journal, log: str) -> None:
    with operated(journal) as notify:
        from colonnade.deploy.sections import read_coordinator_file

        read = read_coordinator_file(config, overrides)
        read.credentials()  # what is wrong is said at once, before torch is loaded
        from colonnade.service.label_holder import LabelHolderDaemon
        from colonnade.watching.serving import label_holder_page

        daemon = LabelHolderDaemon(config, overrides, notify)
        if daemon.online is not None:
            daemon.online.page = label_holder_page(config, overrides or (), read)
        gc.freeze()  # what was loaded so far stays: looking for garbage in it would only make somebody wait
        daemon.serve(lambda run: rounds_told(journal, log, run=run))


def _party(config: Path, overrides: list[str] | None, journal: Journal) -> None:
    daemon, reload = None, threading.Event()
    try:
        with _on_hangup(reload), operated(journal) as notify:
            from colonnade.deploy.sections import read_party_file

            read = read_party_file(config, overrides)
            read.credentials()
            from colonnade.service.party import open_daemon
            from colonnade.watching.serving import party_page, served

            daemon = open_daemon(config, overrides, notify, reload)
            gc.freeze()
            with served(party_page(config, overrides or (), read, notify), read.http, notify):
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
