"""Which table files there are, whose they are, and what is in them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from colonnade.data.frames import ENDINGS, read_table
from colonnade.data.table_file import TextFormat
from colonnade.errors import ConfigError, DataError, MissingData

MOST_TABLES = 50  # a folder with more is not one of parties' tables
KINDS = ", ".join(ENDINGS)
UNWRITABLE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")  # no configuration file has them in a line


@dataclass(frozen=True)
class PartyFile:
    """A party's table."""

    path: Path
    frame: Any = field(repr=False)  # pandas.DataFrame


def find_files(places: Sequence[Path], named: Mapping[str, Path]) -> dict[str, Path]:
    """The table files by party.

    Args:
        places: files and folders; of a folder, the table files that are directly in it. None at all: the current
            folder, unless some are `named`.
        named: files whose party was said; whether or not they are also in `places`.

    Raises:
        MissingData: a file or folder is not there, or none of them is a table.
        ConfigError: two files would be one party's, or a single one was found.
    """
    _check_named(named)
    places = places or ([] if named else [Path()])
    taken = {path.resolve() for path in named.values()}
    found = dict(named)
    for path in (file for place in places for file in _in(place)):
        if path.resolve() in taken:
            continue
        party = party_of(path)
        if party in found:
            raise ConfigError(
                f"{found[party]} and {path} would both be the table of party {party!r}; name one: --party NAME={path}"
            )
        taken.add(path.resolve())
        found[party] = path
    _check_found(found, places, bool(named))
    return found


def _check_named(named: Mapping[str, Path]) -> None:
    for party, path in named.items():
        if UNWRITABLE.search(party):
            raise ConfigError(f"--party {party!r}: a party's name has no line breaks or other control characters")
        if not path.is_file():
            raise MissingData(f"the table of party {party!r}, {str(path)!r}, does not exist; check the path")


def _check_found(found: Mapping[str, Path], places: Sequence[Path], named: bool) -> None:
    if not found:
        where = ", ".join(str(place) for place in places)
        raise MissingData(f"there is no table in {where} (needed files that end in {KINDS}); name the files or folder")
    strange = next((path for path in found.values() if UNWRITABLE.search(str(path))), None)
    if strange is not None:
        raise ConfigError(f"{str(strange)!r} has line breaks or other control characters in its name; rename it")
    if len(found) == 1 and not named:
        raise ConfigError(
            f"one table was found, {next(iter(found.values()))}, and parties need one each: name the files of the "
            'others, or if one table has all columns, give each an owner in Python (documentation, page "scikit-learn")'
        )
    if len(found) > MOST_TABLES:
        raise ConfigError(f"{len(found)} tables were found; name those of the parties, at most {MOST_TABLES}")


def _in(place: Path) -> list[Path]:
    if place.is_dir():
        files = sorted(path for path in place.iterdir() if path.is_file() and not path.name.startswith("."))
        return [path for path in files if path.name.lower().endswith(ENDINGS)]
    if not place.exists():
        raise MissingData(f"{str(place)!r} does not exist; needed table files or a folder of them")
    if not place.name.lower().endswith(ENDINGS):
        raise ConfigError(f"{str(place)!r} is no table: the name must end in one of {KINDS}")
    return [place]


def party_of(path: Path) -> str:
    """A party's name from its file's: telco for data/telco.csv.gz."""
    ending = next(e for e in sorted(ENDINGS, key=len, reverse=True) if path.name.lower().endswith(e))
    name = re.sub(r"\W+", "_", path.name[: -len(ending)], flags=re.ASCII).strip("_")
    if not name:
        raise ConfigError(f"{path} gives its party no name; say it: --party NAME={path}")
    return name if name[0].isalpha() else f"party_{name}"


def read_files(files: Mapping[str, Path], written: Mapping[str, TextFormat]) -> dict[str, PartyFile]:
    """The tables by party; one that cannot be read stops everything, since it may be needed."""
    tables = {}
    for party, path in files.items():
        try:
            tables[party] = PartyFile(path, read_table(path, text=written[party]))
        except DataError as error:
            told = (
                "leave the file out by naming the others, or say how it is written (--separator, --decimal, --encoding)"
            )
            raise type(error)(f"{error} (party {party!r}; {told})") from None
    return tables
