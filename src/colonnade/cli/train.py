"""`colonnade train`: one run from a configuration file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from colonnade.cli.options import AsJson, Config, DataDir, Device, Overrides, Quiet, read_config
from colonnade.cli.screen import Screen
from colonnade.cli.training import finish, free_folder, resumable
from colonnade.cli.upload_gain import Compare, measure


def train(
    config: Config,
    overrides: Overrides = None,
    out: Annotated[
        Path | None, typer.Option(help="Run folder; default: a new one in runs/.", show_default=False)
    ] = None,
    data_dir: DataDir = None,
    device: Device = None,
    compare: Compare = True,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Train one method and keep its best round. Exit status 1: the run diverged.

    What `colonnade check` finds wrong about the tables stops it, what is doubtful is told. A training with noise is
    followed by two more, which say what its uploads contributed (`colonnade privacy compare`).

    Example: colonnade train examples/digits.toml --set training.rounds=20 --out runs/first
    """
    tables = read_config(config, overrides, data_dir, device)  # before the imports, which take seconds
    from colonnade.check import check_job
    from colonnade.job import read_job

    screen = Screen(as_json, quiet)
    job = read_job(tables)
    folder = free_folder(out, job.method.name)
    federation = check_job(job, rounds=False).data(f"colonnade check {config}")  # `fit` tells of the rounds
    job = job.on(federation)
    with screen.progress() as bars, resumable(folder):
        run = job.fit(federation, folder, bars.watch(job.method.name, job.training.rounds))
    if compare:
        measure(screen, run, federation, folder)
    finish(screen, run, folder)
