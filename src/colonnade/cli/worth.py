"""`colonnade worth`: would another organisation's columns help? An estimate before any training."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from colonnade.cli.operating import Journal, LogKind, operated
from colonnade.cli.options import AsJson, DataDir, Overrides, Quiet, read_config
from colonnade.cli.screen import Screen
from colonnade.errors import ConfigError

if TYPE_CHECKING:
    from colonnade.joining.prospect import Prospects

Source = Annotated[
    Path,
    typer.Argument(
        metavar="CONFIG.toml|SIDE.toml",
        help="Tables in one place; or coordinator.toml at the label holder, party.toml at a candidate.",
        show_default=False,
    ),
]


def worth(  # noqa: PLR0913, PLR0917 - one parameter per option of the command line
    source: Source,
    epsilon: Annotated[float, typer.Option(help="Label privacy of what is sent (unit LABEL, delta 0).")] = 1.0,
    rows: Annotated[int, typer.Option(help="Rows whose noisy labels are sent; as many others judge.")] = 4000,
    interactions: Annotated[
        int, typer.Option(min=0, help="Also ask what so many of its columns and the candidate's say only together.")
    ] = 0,
    holder: Annotated[
        str | None, typer.Option(help="Tables in one place: who has the labels, if no table has.", show_default=False)
    ] = None,
    candidate: Annotated[
        list[str] | None, typer.Option(help="At the label holder: ask only this party; may be repeated.")
    ] = None,
    own: Annotated[
        Path | None, typer.Option(metavar="PARTY.toml", help="At the label holder: its own columns.")
    ] = None,
    without_own: Annotated[
        bool, typer.Option("--without-own", help="At the label holder: compare with no columns at all.")
    ] = False,
    patience: Annotated[float, typer.Option(min=1, help="Seconds without any answer before giving up.")] = 600,
    overrides: Overrides = None,
    data_dir: DataDir = None,
    log: LogKind = "text",
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Estimate what each candidate would add to the label holder's model, before any training.

    The label holder sends noisy labels of some rows, a candidate answers with one score for each of as many others, and
    the gain on these is told with its interval, what it cost in bytes and what in label privacy. Between organisations:
    after `colonnade align`, run it at the label holder and at every candidate, in any order.

    Example: colonnade worth coordinator.toml --own party.toml
    """
    screen, config = Screen(as_json, quiet), read_config(source, overrides, data_dir)
    deployed = "coordinator" in config or "party" in config
    asks = {"--holder": holder is not None}
    between = {"--candidate": bool(candidate), "--own": own is not None, "--without-own": without_own}
    asked = {"--epsilon": epsilon != 1.0, "--rows": rows != 4000, "--interactions": interactions != 0}
    _only(asks if deployed else between, f"not for {source.name}")
    if "party" in config:
        _only(between | asked, "for the label holder to say")
        return _answer(screen, source, overrides, patience, Journal(log, quiet))
    if not deployed:
        return _show(screen, _in_one_place(config, holder, epsilon, rows, interactions))
    from colonnade.deploy.worth.start import Wanted, ask_from

    wanted = Wanted(tuple(candidate or ()), own, without_own, epsilon, rows, interactions, patience)
    with operated(Journal(log, quiet)) as notify:
        found = ask_from(source, overrides, wanted, notify)
    return _show(screen, found)


def _only(said: Mapping[str, bool], why: str) -> None:
    wrong = next((option for option, given in said.items() if given), None)
    if wrong is not None:
        raise ConfigError(f"{wrong} is {why}; leave it out")


def _in_one_place(
    config: Mapping[str, Any], holder: str | None, epsilon: float, rows: int, interactions: int
) -> Prospects:
    from colonnade.job import load_data, read_job, read_table_data
    from colonnade.worth import worth as estimate

    job = read_job(config)
    asked = {"epsilon": epsilon, "rows": rows, "interactions": interactions}
    said: Mapping[str, Any] = {"holder": holder, **asked, "seed": job.training.seed}
    if "tables" not in job.data:
        return estimate(load_data(job.data), **said)
    frames, options = read_table_data(job.data)
    return estimate(frames, **options, **said)


def _answer(screen: Screen, source: Path, overrides: list[str] | None, patience: float, journal: Journal) -> None:
    from colonnade.deploy.worth.start import answer_from

    with operated(journal) as notify:
        told = answer_from(source, overrides, patience, notify)
    p = told.proposal
    screen.emit({"judged": p.judged, "told": p.told, "bytes_down": told.down, "bytes_up": told.up})
    screen.notify(
        f"answered: one score for each of {p.judged:,} rows left ({told.up:,} bytes, without noise, in the ledger of "
        f"this party); noisy labels of {p.told:,} rows came (the label holder says: epsilon {p.epsilon:g}, unit LABEL, "
        "delta 0; its promise, which this side cannot check)"
    )


def _show(screen: Screen, found: Prospects) -> None:
    screen.emit(dict(found.to_json()))
    for line in found.lines():
        screen.notify(line)
