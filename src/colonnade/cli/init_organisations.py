"""`colonnade init organisations`: keys, certificates and configuration for a first run between organisations."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from colonnade.cli.options import AsJson, by_party
from colonnade.cli.screen import Screen
from colonnade.errors import ConfigError


def organisations(  # noqa: PLR0913, PLR0917 - one parameter per option of the command line
    folder: Annotated[Path, typer.Argument(help="Where to; must not be there yet.")] = Path("organisations"),
    party: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A party's name; once per party.", show_default=False)
    ] = None,
    label_holder: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Who has the labels; default: the first party.", show_default=False),
    ] = None,
    label: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="What is to be predicted.", show_default=False)
    ] = None,
    id: Annotated[
        list[str] | None,
        typer.Option(metavar="[NAME=]COLUMN", help="The id column of the tables.", show_default=False),
    ] = None,
    table: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=FILE", help="A party's table; default: NAME.csv.", show_default=False),
    ] = None,
    labels: Annotated[str, typer.Option(metavar="FILE", help="The label holder's table of labels.")] = "labels.csv",
    server: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="Where all reach the server; default: localhost:4222.", show_default=False
        ),
    ] = None,
    run: Annotated[str, typer.Option(metavar="NAME", help="The run's name: small letters, digits and -.")] = "first",
    method: Annotated[str, typer.Option(help="What to train.")] = "vimadmm",
    rounds: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="For how many rounds; default: 100, of methods that have a usual length that one.",
            show_default=False,
        ),
    ] = None,
    days: Annotated[int, typer.Option(help="How long the certificates are valid.")] = 30,
    as_json: AsJson = False,
) -> None:
    """Write a folder for each organisation, one for the server, and README.txt with the commands in order.

    What is not said is asked for, where somebody is there to answer. For trials: one place makes everybody's keys; in
    production each organisation makes its own and has it certified.

    Example: colonnade init organisations --party bank --party telco --id customer --label churned
    """
    screen = Screen(as_json)
    parties = tuple(party or _ask("Names of the parties", "--party").replace(",", " ").split())
    if not parties:
        raise ConfigError("there are no parties; name each with --party NAME")
    holder = label_holder or (parties[0] if party else _ask("Who has the labels", "--label-holder", parties[0]))
    column = label or _ask("The column to predict", "--label")
    key = id or [_ask("The id column of the tables", "--id")]
    address = server or (
        "localhost:4222" if party else _ask("Where all reach the server", "--server", "localhost:4222")
    )
    try:
        from colonnade.deploy.folders import Outline, write_organisations
    except ImportError:
        raise ConfigError(
            "keys need cryptography, which is not installed; run: pip install 'colonnade[deploy]'"
        ) from None

    host, port = _address(address)
    ids = _ids(key, tuple(dict.fromkeys((holder, *parties))))
    outline = Outline(
        run,
        parties,
        holder,
        column,
        ids,
        dict(_pair(text) for text in table or []),
        labels,
        host,
        port,
        method,
        rounds,
        days,
    )
    written = write_organisations(folder, outline)
    screen.emit({"folder": str(folder), "written": written, "readme": str(folder / "README.txt")})
    screen.notify(f"written to {folder}: {', '.join(written)}")
    screen.notify(f"valid for {days} days; for trials: in production every organisation makes its own key")
    screen.notify(f"next: read {folder / 'README.txt'}; it has the commands in order")


def _ask(what: str, option: str, default: str | None = None) -> str:
    """From somebody at a terminal; where nobody is, the option is needed."""
    if not sys.stdin.isatty():
        raise ConfigError(f"{what.lower()}: nobody is there to answer; say it with {option}")
    answer: str = typer.prompt(what, default=default)
    return answer.strip()


def _address(server: str) -> tuple[str, int]:
    host, _, port = server.removeprefix("tls://").rpartition(":")
    if not host or not port.isdecimal():
        raise ConfigError(f"--server {server!r}: needed HOST:PORT, e.g. --server nats.example:4222")
    return host, int(port)


def _ids(texts: list[str], names: tuple[str, ...]) -> dict[str, str]:
    found = by_party("--id", texts, names)
    if isinstance(found, list):
        found = dict.fromkeys(names, found)
    for name in names:
        if len(found.get(name, ())) != 1:
            raise ConfigError(f"--id: needed one column for {name}; edit the files where an id has several")
    return {name: columns[0] for name, columns in found.items()}


def _pair(text: str) -> tuple[str, str]:
    name, equals, file = text.partition("=")
    if not (name and equals and file):
        raise ConfigError(f"--table {text!r}: needed NAME=FILE, e.g. --table bank=customers.csv")
    return name, file
