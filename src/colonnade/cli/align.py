"""`colonnade align`: find the rows that the organisations share, without showing each other the rest."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from colonnade.cli.operating import Journal, LogKind, operated
from colonnade.cli.options import AsJson, Overrides, Quiet
from colonnade.cli.screen import Screen
from colonnade.errors import ConfigError

if TYPE_CHECKING:
    from colonnade.align.files import Alignment
    from colonnade.engines.message import Notify

Config = Annotated[
    Path, typer.Argument(metavar="SIDE.toml", help="party.toml, or coordinator.toml at the label holder.")
]
Patience = Annotated[float, typer.Option(min=1, help="Seconds without any progress before giving up.")]
Workers = Annotated[int, typer.Option(min=0, help="Threads that blind ids; 0: one per core.")]


def align(  # one parameter per option of the command line
    config: Config,
    overrides: Overrides = None,
    patience: Patience = 600,
    workers: Workers = 0,
    log: LogKind = "text",
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Find the rows all sides share. Run it at the label holder and at every party; the order does not matter.

    Whichever side is killed: start it again with the same command, and all begin anew.

    Example: colonnade align party.toml
    """
    from colonnade.deploy.sections import role_of

    screen = Screen(as_json, quiet)
    perform = _label_holder if role_of(config) == "coordinator" else _party
    journal = Journal(log, quiet)
    journal.of(**_named(config))
    with operated(journal) as notify:
        found, folder = perform(config, overrides, patience, workers, _in_tenths(notify))
    _show(screen, found, folder)


def _named(config: Path) -> dict[str, object]:
    """Run and process, as the file says: the log names them also where the rest of the file is wrong."""
    from colonnade.config import read_toml

    tables: Any = read_toml(config)
    party, coordinator = tables.get("party"), tables.get("coordinator")
    if isinstance(party, dict):
        return {"run": party.get("run"), "process": party.get("name")}
    return {"run": coordinator.get("run") if isinstance(coordinator, dict) else None, "process": "coordinator"}


def _label_holder(
    config: Path, overrides: list[str] | None, patience: float, workers: int, notify: Notify
) -> tuple[Alignment, Path]:
    from colonnade.align.ids import read_ids
    from colonnade.align.label_holder import align_as_label_holder
    from colonnade.align.settings import AlignSettings
    from colonnade.config import build
    from colonnade.deploy.line import open_line
    from colonnade.deploy.sections import read_coordinator_file
    from colonnade.folder import claimed

    read = read_coordinator_file(config, overrides)
    c, credentials = read.coordinator, read.credentials()
    asked = tuple(name for name in c.parties if name not in c.own)
    if not asked:
        raise ConfigError("[coordinator] own names every party; there is nobody to align with")
    chosen = {"name": c.run, "parties": asked, "own": c.own, "keep": c.keep, "most_ids": c.most_ids}
    settings = build(AlignSettings, {**chosen, "patience": patience}, "coordinator")
    ids = read_ids(c.table, c.id, text=c.text)
    with claimed(c.alignment), open_line(credentials, c.run, notify, asked) as line:
        notify("aligning", run=c.run, parties=list(asked))
        return align_as_label_holder(line, credentials, settings, ids, c.alignment, workers, notify), c.alignment


def _party(
    config: Path, overrides: list[str] | None, patience: float, workers: int, notify: Notify
) -> tuple[Alignment, Path]:
    from colonnade.align.ids import read_ids
    from colonnade.align.party import align_as_party
    from colonnade.align.settings import JoinSettings
    from colonnade.deploy.line import open_line
    from colonnade.deploy.sections import read_party_file
    from colonnade.folder import claimed

    read = read_party_file(config, overrides)
    p, credentials = read.party, read.credentials()
    settings = JoinSettings(name=p.run, patience=patience, most_ids=p.most_ids)
    ids = read_ids(p.table, p.id, text=p.text)
    with claimed(p.alignment), open_line(credentials, p.run, notify) as line:
        return align_as_party(line, credentials, settings, ids, p.alignment, workers, notify), p.alignment


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
    screen.emit({**facts, "complete": agreed.complete, "partial": agreed.partial, "report": report})
    for line in found.report.lines():
        screen.notify(line)
    screen.notify(f"alignment {found.name} is in {folder}; digest {found.digest[:16]}, the same on all sides")
