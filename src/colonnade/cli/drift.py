"""`colonnade drift`: how far a party's columns, or the scores at the label holder, have moved since training."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from colonnade.cli.align import Config
from colonnade.cli.options import AsJson, Overrides
from colonnade.cli.screen import Screen
from colonnade.errors import ConfigError

if TYPE_CHECKING:
    from colonnade.deploy.drift import Drift


def drift(
    config: Config,
    run: Annotated[
        str | None, typer.Option(metavar="RUN", help="At a party: since which run; the last by default.")
    ] = None,
    all_rows: Annotated[
        bool, typer.Option("--all-rows", help="At a party: all rows of the table, not only the aligned ones.")
    ] = False,
    days: Annotated[float, typer.Option(min=0.0, help="At the label holder: predictions of so many last days.")] = 30.0,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """How far the columns of a party, or the scores at the label holder, have moved since training (PSI).

    A party's table as it is now is held against its training rows, at home: nothing is sent. At the label holder the
    scores of predictions are held against those of the test rows. Beside each value stands what chance alone gives.

    Example: colonnade drift party.toml
    """
    from colonnade.deploy.sections import role_of

    found = (
        _scores(config, overrides, days)
        if role_of(config) == "coordinator"
        else _columns(config, overrides, run, all_rows)
    )
    _show(Screen(as_json), found)


def _columns(config: Path, overrides: list[str] | None, run: str | None, all_rows: bool) -> Drift:
    from colonnade.deploy.drift import column_drift
    from colonnade.deploy.sections import read_party_file

    return column_drift(read_party_file(config, overrides), run, all_rows)


def _scores(config: Path, overrides: list[str] | None, days: float) -> Drift:
    from colonnade.deploy.drift import score_drift
    from colonnade.deploy.sections import read_coordinator_file
    from colonnade.service.versions import used_folder

    folder = used_folder(read_coordinator_file(config, overrides).coordinator.folder)
    if not folder.is_dir():
        raise ConfigError(f"there is no run in {str(folder)!r} yet; train one first")
    return score_drift(folder, days)


def _show(screen: Screen, found: Drift) -> None:
    from colonnade.psi import LARGE, SOME

    screen.emit(found.to_json())
    what = "column" if found.of == "columns" else "score"
    width = max([len(shift.name) for shift in found.shifts] + [len(what)])
    screen.notify(f"{what:<{width}}     PSI  by chance  rows then  rows now")
    for shift in found.shifts:
        value = "      -" if shift.psi is None else f"{shift.psi:7.3f}"
        chance = "        -" if shift.chance is None else f"{shift.chance:9.3f}"
        told = f"{shift.name:<{width}} {value}  {chance}  {shift.rows[0]:9,}  {shift.rows[1]:8,}  {shift.verdict}"
        screen.notify(told + (f": {shift.note}" if shift.note else ""))
    for doubt in found.doubts:
        screen.notify(f"rows aligned since: {doubt}")
    screen.notify(f"since run {found.run}: {found.summary()}")
    screen.notify(f"PSI below {SOME:g}: stable; from {LARGE:g} on: look at it, and train again")
