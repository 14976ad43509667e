"""`colonnade keys`: who may call a process that serves over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from colonnade.cli.options import AsJson, Overrides
from colonnade.cli.screen import Screen
from colonnade.errors import ConfigError

if TYPE_CHECKING:
    from colonnade.web.settings import HttpSection

app = typer.Typer(no_args_is_help=True, help="Keys of those who may call over HTTP a process that serves.")
Name = Annotated[str, typer.Argument(metavar="NAME", help="What the caller is called in records.", show_default=False)]
Side = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="SIDE.toml",
        help="Whose process; default: coordinator.toml, or party.toml if there is no such file.",
        show_default=False,
    ),
]


@app.command()
def add(
    name: Name,
    may: Annotated[
        list[str] | None,
        typer.Option(metavar="RIGHT", help="predict, watch or decide; may be repeated.", show_default=False),
    ] = None,
    config: Side = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Make a key for a caller. It is printed once and kept nowhere; the file of callers has a salted hash of it.

    Example: colonnade keys add shop --may predict
    """
    from colonnade.web.callers import add_caller

    http, screen = _http(config, overrides), Screen(as_json)
    key = add_caller(http.callers, name, may or [])
    screen.emit({"name": name, "may": may, "key": key})
    screen.notify(key)


@app.command("list")
def list_(config: Side = None, overrides: Overrides = None, as_json: AsJson = False) -> None:
    """Who may call, and what.

    Example: colonnade keys list
    """
    from colonnade.web.callers import read_callers

    http, screen = _http(config, overrides), Screen(as_json)
    found = read_callers(http.callers)
    screen.emit({"callers": [{"name": c.name, "may": list(c.may), "made": c.made} for c in found]})
    for caller in found:
        screen.notify(f"{caller.name}: may {', '.join(caller.may)}; since {caller.made}")
    if not found:
        screen.notify("nobody may call: colonnade keys add NAME --may predict")


@app.command()
def remove(name: Name, config: Side = None, overrides: Overrides = None, as_json: AsJson = False) -> None:
    """Take a caller's key away; a process that serves refuses it from then on.

    Example: colonnade keys remove shop
    """
    from colonnade.web.callers import remove_caller

    http, screen = _http(config, overrides), Screen(as_json)
    remove_caller(http.callers, name)
    screen.emit({"removed": name})
    screen.notify(f"{name} may call no more")


def _http(config: Path | None, overrides: list[str] | None) -> HttpSection:
    from colonnade.deploy.sections import read_coordinator_file, read_party_file, role_of

    if config is None:
        config = next((p for p in (Path("coordinator.toml"), Path("party.toml")) if p.exists()), None)
    if config is None:
        raise ConfigError("there is neither coordinator.toml nor party.toml here; name one with --config")
    read = read_coordinator_file if role_of(config) == "coordinator" else read_party_file
    http = read(config, overrides).http
    if http is None:
        shown = 'documentation, page "One process per organisation"'
        raise ConfigError(f"{config.name} has no [http] section, so nobody can call; one is shown in the {shown}")
    return http
