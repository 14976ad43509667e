"""`colonnade`: the commands, and what happens when something is wrong.

What Colonnade refuses is one sentence on stderr and exit status 2; a run that diverged is status 1, an
interruption 130. Everything else is a bug and shows its traceback. Commands import what they need when they
are called, so that `--help` does not load what it does not show.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Annotated, Any

import typer

from colonnade.cli.align import align
from colonnade.cli.audit import audit
from colonnade.cli.certificates import certificates
from colonnade.cli.check import check
from colonnade.cli.columns import columns
from colonnade.cli.compare import compare
from colonnade.cli.coordinator import coordinator
from colonnade.cli.demo import demo
from colonnade.cli.doctor import doctor
from colonnade.cli.drift import drift
from colonnade.cli.estimate import estimate
from colonnade.cli.explain import explain
from colonnade.cli.extend import extend
from colonnade.cli.forget import forget
from colonnade.cli.init import app as init
from colonnade.cli.keys import app as keys
from colonnade.cli.leave import leave
from colonnade.cli.ledger import app as ledger
from colonnade.cli.models import models
from colonnade.cli.nats_config import nats_config
from colonnade.cli.party import party
from colonnade.cli.predict import predict
from colonnade.cli.privacy import app as privacy
from colonnade.cli.report import report
from colonnade.cli.resume import resume
from colonnade.cli.runs import approve, refuse, runs
from colonnade.cli.scorecard import scorecard
from colonnade.cli.serve import serve
from colonnade.cli.status import status, watch
from colonnade.cli.train import train
from colonnade.cli.tune import tune
from colonnade.cli.worth import worth
from colonnade.errors import ColonnadeError, DoubtfulScore

app = typer.Typer(
    name="colonnade",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",  # in the default mode [compare] would be a colour
    pretty_exceptions_enable=False,  # a bug shows a plain traceback
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start with colonnade demo: real data, half a minute, no network.",
)
COMMANDS = (
    demo, check, train, compare, tune, resume, extend, leave, predict, report, explain, columns, scorecard, estimate,
    worth, audit, doctor, status, watch,
)  # fmt: skip
for command in COMMANDS:
    app.command()(command)
DEPLOYED = (certificates, nats_config, align, party, coordinator, serve, runs, approve, refuse, models, forget, drift)
for deployed in DEPLOYED:
    app.command(rich_help_panel="Separate organisations")(deployed)
app.add_typer(init, name="init")
app.add_typer(privacy, name="privacy")
app.add_typer(ledger, name="ledger")
app.add_typer(keys, name="keys", rich_help_panel="Separate organisations")
if find_spec("colonnade.cli.bench") is not None:  # a wheel without benchmarks has no such command
    app.command()(import_module("colonnade.cli.bench").bench)


def _version(wanted: bool) -> None:
    if wanted:
        from colonnade import __version__

        print(f"colonnade {__version__}")
        raise typer.Exit


@app.callback()
def colonnade(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and stop.")
    ] = False,
) -> None:
    """Train one model over columns that never leave their owners."""


@contextmanager
def _warnings_in_one_line() -> Iterator[None]:
    """Inside, a warning is one sentence on stderr, told once; --json and --quiet do not hide it."""
    told: set[str] = set()

    def show(message: Warning | str, *where: object, **more: object) -> None:
        text = " ".join(str(message).split())
        if text not in told:
            print(f"warning: {text}", file=sys.stderr)
            told.add(text)

    with warnings.catch_warnings():
        warnings.showwarning = show
        warnings.simplefilter("ignore", DoubtfulScore)  # the summary of a run says it, where the score stands
        yield


@cache
def command_line() -> Callable[..., Any]:
    """What `app` calls, built once in a process: it reads the signatures of all commands."""
    return typer.main.get_command(app)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; `arguments` replace those of the process."""
    try:
        with _warnings_in_one_line():
            command_line()(arguments)
    except ColonnadeError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
