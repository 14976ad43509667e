"""How a table file is read, in the same words wherever one is named: run files, party.toml, coordinator.toml, options.

What a text file leaves open (separator, decimal mark, encoding) is said here; what is not said, the file must show.
Light to import: commands that do not train read their settings with it.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, field_validator, model_validator

from colonnade.config import Settings, build
from colonnade.errors import ConfigError

DECIMALS = (".", ",")


class TextFormat(Settings):
    """How a text table is written; what is unset, the file itself must show."""

    separator: str | None = Field(None, description="between the columns of a text table; unset: as the file shows")
    decimal: str | None = Field(None, description="decimal mark of a text table, . or ,; unset: as the file shows")
    encoding: str | None = Field(None, description="of a text table, e.g. cp1252; unset: as the file shows")

    @field_validator("separator")
    @classmethod
    def _one_character(cls, separator: str | None) -> str | None:
        if separator is not None and len(separator) != 1:
            raise ValueError("needed one character, such as ';'")
        return separator

    @field_validator("decimal")
    @classmethod
    def _point_or_comma(cls, decimal: str | None) -> str | None:
        if decimal is not None and decimal not in DECIMALS:
            raise ValueError("needed '.' or ','")
        return decimal

    @field_validator("encoding")
    @classmethod
    def _known_encoding(cls, encoding: str | None) -> str | None:
        try:
            codecs.lookup(encoding or "utf-8")
        except LookupError:
            raise ValueError("no such encoding; examples: utf-8, cp1252, utf-16") from None
        return encoding

    @model_validator(mode="after")
    def _marks_differ(self) -> TextFormat:
        if self.decimal is not None and self.decimal == self.separator:
            raise ValueError(f"separator and decimal are both {self.decimal!r}; they must differ")
        return self

    @property
    def text(self) -> TextFormat:
        """These three alone, of settings that have more."""
        return TextFormat(separator=self.separator, decimal=self.decimal, encoding=self.encoding)


WRITTEN = tuple(TextFormat.model_fields)


def _id_columns(columns: str | tuple[str, ...]) -> str | tuple[str, ...]:
    names = (columns,) if isinstance(columns, str) else columns
    if not names or not all(names):
        raise ValueError("needed a column name, or a list of columns that are the id together")
    if len(set(names)) < len(names):
        raise ValueError("a column is named twice")
    return names[0] if len(names) == 1 else names


IdColumns = Annotated[str | tuple[str, ...], AfterValidator(_id_columns)]


class TableSection(TextFormat):
    """A section of a file that names one table: where it is, which columns are its id, and how it is written."""

    table: Path = Field(description="the table: .csv, .tsv (.gz), .parquet, .arrow or .feather")
    id: IdColumns = Field(
        description='the id column of the table, or several that are the id together: ["branch", "account"]'
    )


def text_formats(said: Mapping[str, Any], parties: Iterable[str], section: str = "data") -> dict[str, TextFormat]:
    """How each party's text file is written, where each setting is for all or a table by party.

    Args:
        said: settings by name; names that are none of `WRITTEN` are left alone.
        parties: who has a table.
        section: where it was said, for messages.

    Raises:
        ConfigError: a party is unknown, or a value is not possible.
    """
    names = list(parties)
    found: dict[str, dict[str, object]] = {party: {} for party in names}
    for key in WRITTEN:
        value = said.get(key)
        by_party = value if isinstance(value, Mapping) else {} if value is None else dict.fromkeys(names, value)
        for party, one in by_party.items():
            if party not in found:
                raise ConfigError(f"[{section}] {key} names {party!r}, who has no table; parties: {', '.join(names)}")
            found[party][key] = one
    return {party: build(TextFormat, one, section) for party, one in found.items()}
