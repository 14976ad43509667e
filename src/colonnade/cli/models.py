"""`colonnade models`: the versions of a label holder's model, and which of them is in use."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from colonnade.cli.options import AsJson, Overrides
from colonnade.cli.screen import Screen
from colonnade.errors import ConfigError
from colonnade.numerals import short
from colonnade.withdrawn import Mark

if TYPE_CHECKING:
    from colonnade.service.versions import Version


def models(
    config: Annotated[Path, typer.Argument(metavar="COORDINATOR.toml", help="Whose models.")] = Path(
        "coordinator.toml"
    ),
    promote: Annotated[
        int | None, typer.Option(min=1, metavar="VERSION", help="Put a finished version to use.", show_default=False)
    ] = None,
    back: Annotated[bool, typer.Option("--back", help="Put the version to use that was in use before.")] = False,
    train: Annotated[bool, typer.Option("--train", help="Ask the process that serves for a new version.")] = False,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """List the versions of the model that `colonnade serve COORDINATOR.toml` trains; or change which one is in use.

    Example: colonnade models coordinator.toml --back
    """
    from colonnade.deploy.sections import read_coordinator_file
    from colonnade.service import versions

    if (promote is not None) + back + train > 1:
        raise ConfigError("say one of --promote, --back and --train")
    folder, screen = read_coordinator_file(config, overrides).coordinator.folder, Screen(as_json)
    if promote is not None:
        versions.promote(folder, promote)
    elif back:
        versions.go_back(folder)
    elif train:
        versions.ask_for_training(folder)
    known, found = versions.read_models(folder), versions.list_versions(folder)
    screen.emit({"in_use": known.used or None, "waiting": known.waiting, "versions": [_plain(v) for v in found]})
    for version in found:
        screen.notify(line_of_version(version))
    waits = f"; {known.waiting} more to be trained" if known.waiting else ""
    screen.notify(f"in use: {f'version {known.used}' if known.used else 'none'}{waits}")


def _plain(version: Version) -> dict[str, object]:
    return {**vars(version), "folder": str(version.folder)}


def line_of_version(version: Version) -> str:
    """A version in one line."""
    scores = (("validation", version.validation), ("test", version.test))
    told = [f"{name} {short(value)}" for name, value in scores if value is not None]
    metric = f" ({version.metric})" if version.metric and told else ""
    marked = (str(Mark(version.withdrawn, "")),) if version.withdrawn else ()
    facts = [*((", ".join(told) + metric,) if told else ()), *((version.why,) if version.why else ()), *marked]
    return f"version {version.version}: {version.state}" + "".join(f"; {fact}" for fact in facts)
