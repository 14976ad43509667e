"""Options that several commands share, and the configuration they make together."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from colonnade.errors import ConfigError

if TYPE_CHECKING:
    from colonnade.data.ids import Ids
    from colonnade.data.table_file import TextFormat
    from colonnade.record import Section

Config = Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="What to train.", show_default=False)]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.", show_default=False)]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Change one setting; may be repeated.", show_default=False),
]
DataDir = Annotated[Path | None, typer.Option(help="Folder of the data files.", show_default=False)]
Device = Annotated[str | None, typer.Option(help="cpu, cuda or cuda:N.", show_default=False)]
Track = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KIND:WHERE",
        help="Also write figures to tensorboard:FOLDER, mlflow:ADDRESS or wandb:PROJECT; may be repeated.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on stdout instead of text.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no summary.")]
Written = Mapping[str, str | Mapping[str, str]]  # settings of [data] about text files: for all parties, or by party
Separator = Annotated[
    list[str] | None,
    typer.Option(metavar="[PARTY=]CHARACTER", help="Of text tables, where a file leaves it open.", show_default=False),
]
Decimal = Annotated[
    list[str] | None,
    typer.Option(metavar="[PARTY=].|,", help="Decimal mark of text tables, likewise.", show_default=False),
]
Encoding = Annotated[
    list[str] | None,
    typer.Option(metavar="[PARTY=]NAME", help="Of text tables that are not UTF-8, e.g. cp1252.", show_default=False),
]


def by_party(option: str, texts: Sequence[str], parties: Collection[str]) -> list[str] | dict[str, list[str]]:
    """VALUE for all tables, or PARTY=VALUE; several of one party stay in their order."""
    pairs = [text.partition("=") for text in texts]
    owned = [bool(equals) and party in parties for party, equals, _ in pairs]
    if not any(owned):
        return list(texts)
    if not all(owned) or not all(value for _, _, value in pairs):
        strange = next(
            text for text, (_, _, value), own in zip(texts, pairs, owned, strict=True) if not (own and value)
        )
        raise ConfigError(
            f"{option} {strange!r}: say it for all tables, or PARTY=VALUE for each of {', '.join(parties)}"
        )
    found: dict[str, list[str]] = {}
    for party, _, value in pairs:
        found.setdefault(party, []).append(value)
    return found


def id_option(texts: Sequence[str], parties: Collection[str]) -> Ids:
    """--id COLUMN, or PARTY=COLUMN for each; repeated, several columns are the id together."""
    return by_party("--id", texts, parties) or None


def text_options(
    separator: Sequence[str] | None, decimal: Sequence[str] | None, encoding: Sequence[str] | None
) -> dict[str, Sequence[str]]:
    """What was said of how text tables are written, by the name of the setting."""
    said = {"separator": separator, "decimal": decimal, "encoding": encoding}
    return {name: texts for name, texts in said.items() if texts}


def written_by(said: Mapping[str, Sequence[str]], parties: Collection[str]) -> Written:
    """The same as settings of [data]: a text for all parties, or a text for each of some."""
    settings: dict[str, str | Mapping[str, str]] = {}
    for name, texts in said.items():
        found = by_party(f"--{name}", texts, parties)
        by_name = found if isinstance(found, dict) else {"": found}
        if any(len(values) > 1 for values in by_name.values()):
            raise ConfigError(f"--{name} was said more than once for the same table; say it once")
        one = {party: values[0].replace("\\t", "\t") for party, values in by_name.items()}  # \t: no shell types a tab
        settings[name] = one if isinstance(found, dict) else one[""]
    return settings


def formats(said: Mapping[str, Sequence[str]], parties: Collection[str]) -> dict[str, TextFormat]:
    """How each party's text table is written."""
    from colonnade.data.table_file import text_formats

    return text_formats(written_by(said, parties), parties, "options")


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
