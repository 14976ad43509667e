"""Options that several commands share, and the configuration they make together."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from colonnade.record import Section

Config = Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="What to train.", show_default=False)]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.", show_default=False)]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Change one setting; may be repeated.", show_default=False),
]
DataDir = Annotated[Path | None, typer.Option(help="Folder of the data files.", show_default=False)]
Device = Annotated[str | None, typer.Option(help="cpu, cuda or cuda:N.", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on stdout instead of text.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no summary.")]


def read_config(
    path: Path, overrides: list[str] | None = None, data_dir: Path | None = None, device: str | None = None
) -> dict[str, Section]:
    """The tables of a configuration file with what the command line changes about them."""
    from colonnade.config import read_toml, with_overrides

    changes = [*(overrides or ()), *((f"training.device={device}",) if device else ())]
    tables = with_overrides(read_toml(path), changes)
    return {**tables, "data": with_data_dir(tables.get("data", {"set": "digits"}), data_dir)}


def with_data_dir(data: Any, data_dir: Path | None) -> Any:
    """A [data] section whose files are looked for in `data_dir`; sets that need no files are left as they are."""
    from colonnade.data.sets import SETS

    if data_dir is None or not isinstance(data, Mapping):
        return data
    if isinstance(data.get("tables"), Mapping):
        return {**data, "tables": {party: str(data_dir / str(file)) for party, file in data["tables"].items()}}
    loader = SETS.get(str(data.get("set")))
    if loader is not None and "data_dir" not in loader.__annotations__:
        return data
    return {**data, "data_dir": str(data_dir)}
