"""`colonnade train`: one run from a configuration file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from colonnade.cli.options import AsJson, Config, DataDir, Device, Overrides, Quiet, Track, read_config
from colonnade.cli.screen import Screen
from colonnade.cli.training import finish, free_folder, resumable
from colonnade.cli.upload_gain import Compare, measure
from colonnade.errors import ConfigError


@contextmanager
def live_page(wanted: bool, folder: Path, listen: str) -> Iterator[None]:
    """Inside, a page shows the training in a folder, if it is wanted."""
    if not wanted:
        yield
        return
    from colonnade.watching.serving import page_of_training

    with page_of_training(folder, "Training", listen) as url:
        print(f"live page, until the training ends: {url}", file=sys.stderr, flush=True)
        yield
    print("the training has ended, and its live page with it", file=sys.stderr, flush=True)


def train(  # noqa: PLR0913, PLR0917 - one parameter per option of the command line
    config: Config,
    overrides: Overrides = None,
    out: Annotated[
        Path | None, typer.Option(help="Run folder; default: a new one in runs/.", show_default=False)
    ] = None,
    data_dir: DataDir = None,
    device: Device = None,
    compare: Compare = True,
    live: Annotated[bool, typer.Option("--live", help="Serve a page that shows the training, until it ends.")] = False,
    listen: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Where --live listens, an address of this machine; unset: a free port."),
    ] = None,
    track: Track = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Train one method and keep its best round. Exit status 1: the run diverged.

    What `colonnade check` finds wrong about the tables stops it, what is doubtful is told. A training with noise is
    followed by two more, which say what its uploads contributed (`colonnade privacy compare`).

    Example: colonnade train examples/digits.toml --set training.rounds=20 --out runs/first
    """
    if listen is not None and not live:
        raise ConfigError(f"--listen {listen} is where the page of --live listens, and --live was not given; add it")
    tables = read_config(config, overrides, data_dir, device)  # before the imports, which take seconds
    from colonnade.check import check_job
    from colonnade.job import read_job
    from colonnade.trackers import tracker

    trackers = [tracker(text) for text in track or ()]
    screen = Screen(as_json, quiet)
    job = read_job(tables)
    folder = free_folder(out, job.method.name)
    federation = check_job(job, rounds=False).data(f"colonnade check {config}")  # `fit` tells of the rounds
    job = job.on(federation)
    with live_page(live, folder, listen or "127.0.0.1:0"), screen.progress() as bars, resumable(folder):
        run = job.fit(federation, folder, bars.watch(job.method.name, job.training.rounds), trackers)
    if compare:
        measure(screen, run, federation, folder)
    finish(screen, run, folder)
