"""`colonnade extend`: a party joins a finished model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from colonnade.cli.options import AsJson, DataDir, Overrides, Quiet, RunFolder
from colonnade.cli.resume import data_of
from colonnade.cli.screen import Screen
from colonnade.cli.training import finish, free_folder, resumable
from colonnade.errors import ConfigError


def extend(
    run: RunFolder,
    party: Annotated[str, typer.Option(metavar="NAME=FILE", help="Who joins, with which table.", show_default=False)],
    overrides: Overrides = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the new run; default: a new one in runs/.", show_default=False)
    ] = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Add a party to a model of one_message: it alone trains, and the label holder weighs the scores of all again.

    The old run stays as it is. The new one is written beside it; its record says who joined and what was released.
    --set says what is different about the newcomer, e.g. data.id.shop=customer or model.shop.encoder=trees.

    Example: colonnade extend runs/first --party shop=shop.csv --out runs/with-shop
    """
    from colonnade.config import with_overrides
    from colonnade.extend import check_joinable
    from colonnade.extend import extend as join
    from colonnade.job import load_data
    from colonnade.run import Run

    screen, former = Screen(as_json, quiet), Run.load(run)
    check_joinable(former)  # before its data are looked for
    name, equals, file = party.partition("=")
    if not (name and equals and file):
        raise ConfigError(f"--party {party!r}: needed the newcomer's name and its table, e.g. --party shop=shop.csv")
    data = dict(data_of(run, former.config, data_dir))
    if "tables" not in data:
        raise ConfigError(f"{run} was not trained from tables; let a party join it in Python: run.extend(federation)")
    there = list(former.model.parts)
    if name in there:
        raise ConfigError(f"{name!r} is in the run already; parties: {', '.join(there)}")
    data["tables"] = {**data["tables"], name: file}
    if "only" in data:  # somebody left, whose table goes on saying which rows there are
        data["only"] = [*there, name]
    tables = with_overrides({**(former.config or {}), "data": data}, overrides or [])
    folder = free_folder(out, former.method.name)
    federation = load_data(tables["data"], former.about)
    own = tables.get("model", {}).get(name)
    with screen.progress() as bars, resumable(folder):
        watch = bars.watch(former.method.name, former.training.rounds)
        joined = join(former, federation, model=own, out=folder, watch=watch, config=tables)
    finish(screen, joined, folder)
