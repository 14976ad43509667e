"""`colonnade align`: find the rows that the organisations share, without showing each other the rest."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from colonnade.cli.operating import Journal, LogKind, operated
from colonnade.cli.options import AsJson, Overrides, Quiet
from colonnade.cli.screen import Screen

if TYPE_CHECKING:
    from colonnade.align.files import Alignment
    from colonnade.deploy.aligning import How
    from colonnade.engines.message import Notify

Config = Annotated[
    Path, typer.Argument(metavar="SIDE.toml", help="party.toml, or coordinator.toml at the label holder.")
]
Patience = Annotated[float, typer.Option(min=1, help="Seconds without any progress before giving up.")]
More = Annotated[bool, typer.Option("--more", help="Extend the alignment by new ids; rows keep their numbers.")]
Workers = Annotated[int, typer.Option(min=0, help="Threads that blind ids; 0: one per core.")]


def align(  # one parameter per option of the command line
    config: Config,
    overrides: Overrides = None,
    more: More = False,
    patience: Patience = 600,
    workers: Workers = 0,
    log: LogKind = "text",
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Find the rows all sides share. Run it at the label holder and at every party; the order does not matter.

    A party that serves (colonnade serve) takes part by itself, if its policy says alignments_per_day.

    Whichever side is killed: start it again with the same command, and all begin anew. With --more, on all sides, ids
    that have no row get one after the rows there are; runs over those predict the new ones, too, without a training.

    Example: colonnade align party.toml
    """
    from colonnade.deploy.sections import role_of

    screen = Screen(as_json, quiet)
    perform = _label_holder if role_of(config) == "coordinator" else _party
    journal = Journal(log, quiet)
    journal.of(**_named(config))
    with operated(journal) as notify:
        from colonnade.deploy.aligning import How

        found, folder = perform(config, overrides, How(more, patience, workers), _in_tenths(notify))
    _show(screen, found, folder)


def _named(config: Path) -> dict[str, object]:
    """Run and process, as the file says: the log names them also where the rest of the file is wrong."""
    from colonnade.config import read_toml

    tables: Any = read_toml(config)
    party, coordinator = tables.get("party"), tables.get("coordinator")
    if isinstance(party, dict):
        return {"run": party.get("run"), "process": party.get("name")}
    return {"run": coordinator.get("run") if isinstance(coordinator, dict) else None, "process": "coordinator"}


def _label_holder(config: Path, overrides: list[str] | None, how: How, notify: Notify) -> tuple[Alignment, Path]:
    from colonnade.deploy.aligning import align_label_holder
    from colonnade.deploy.sections import read_coordinator_file

    return align_label_holder(read_coordinator_file(config, overrides), how, notify)


def _party(config: Path, overrides: list[str] | None, how: How, notify: Notify) -> tuple[Alignment, Path]:
    from colonnade.deploy.aligning import align_party
    from colonnade.deploy.sections import read_party_file

    read = read_party_file(config, overrides)
    return align_party(read, read.party.one_run, how, notify)


def _in_tenths(notify: Notify) -> Notify:
    """Progress is told ten times, not with every part."""
    told = -1

    def tell(event: str, **facts: Any) -> None:
        nonlocal told
        tenths = 10 * facts["done"] // facts["total"] if event == "progress" else -1
        if event != "progress" or tenths != told:
            notify(event, **facts)
        told = tenths

    return tell


def _show(screen: Screen, found: Alignment, folder: Path) -> None:
    agreed, report = found.agreed, found.report.to_json()
    facts = {"name": found.name, "folder": str(folder), "digest": found.digest, "rows": len(found.ids)}
    extends = {"extends": list(found.extends)} if found.former else {}
    screen.emit({**facts, "complete": agreed.complete, "partial": agreed.partial, **extends, "report": report})
    if found.former:
        before = found.former[-1].agreed.rows
        screen.notify(f"{agreed.rows - before:,} rows are added to {before:,}; of ids that had no row:")
    for line in found.report.lines():
        screen.notify(line)
    screen.notify(f"alignment {found.name} is in {folder}; digest {found.digest[:16]}, the same on all sides")
