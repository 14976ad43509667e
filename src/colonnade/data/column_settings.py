"""What may be said about how columns become numbers: for all parties, for one, and for one of its columns.

    [data.columns]                     columns={"scaling": "quantile",
    scaling = "quantile"                        "telco": {"rare": 5, "by_name": {"zip": {"kind": "category"}}}}
    [data.columns.telco]
    rare = 5
    by_name = { zip = { kind = "category" } }

Between organisations each party says it in its own party.toml, as [columns], and nobody else reads it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from pydantic import Field, field_validator

from colonnade.config import Settings, build
from colonnade.errors import ConfigError

Kind = Literal["auto", "number", "category", "date", "ignore"]


class ColumnSettings(Settings):
    """How a party's columns become numbers."""

    missing: Literal["indicate", "fill", "refuse"] = Field(
        "indicate",
        description="empty values: the median of a number and a column that says where, a level of its own for text; "
        "`fill`: the median or no level; `refuse`: an error",
    )
    scaling: Literal["standard", "quantile", "plain"] = Field(
        "standard",
        description="numbers: mean 0 and deviation 1, the normal distribution by their quantiles, or as they are",
    )
    pieces: int = Field(
        0,
        ge=0,
        le=256,
        description="numbers: besides, how far each lies in so many pieces between quantiles (16 are usual), so that a "
        "linear model of it may bend; 0: none",
    )
    bins: int = Field(
        0,
        ge=0,
        le=100,
        description="for a scorecard: columns are cut into bins, and a row becomes the number of its bin; numbers and "
        "dates into so many with equally many training rows (5 are usual), levels by frequency; 0: they are not",
    )
    clip: str | tuple[float, float] = Field(
        "extremes",
        description="numbers further outside the middle 98 % than these are wide are drawn in to there (`extremes`), "
        "numbers outside two quantiles (`[0.01, 0.99]`), or none (`never`)",
    )
    levels: Literal["auto", "one_hot", "hash", "ordinal"] = Field(
        "auto",
        description="text and categories: a column for each level, hashed, or hashed where there are too many; "
        "`ordinal`: one column with the level's number, for trees",
    )
    rare: int | None = Field(
        None,
        ge=1,
        description="levels that fewer training rows have become one level, `other`, which unknown ones join; their "
        "texts are not kept. Unset: 5, but none that a twentieth of the rows have, and a column is hashed where most "
        "rows were among them; 1: none",
    )
    most: int = Field(
        1000,
        ge=1,
        description="levels that are told apart; with `one_hot` and `ordinal` the less frequent join the rare",
    )
    buckets: int = Field(256, ge=2, description="columns of a hashed column")

    @field_validator("bins")
    @classmethod
    def _two_bins(cls, bins: int) -> int:
        if bins == 1:
            raise ValueError("needed a whole number from 2 to 100, or 0")
        return bins

    @field_validator("clip")
    @classmethod
    def _two_quantiles(cls, clip: str | tuple[float, float]) -> str | tuple[float, float]:
        if isinstance(clip, str) and clip not in ("extremes", "never"):
            raise ValueError("needed 'extremes', 'never' or two quantiles, e.g. [0.01, 0.99]")
        if isinstance(clip, tuple) and not 0 <= clip[0] < clip[1] <= 1:
            raise ValueError("two quantiles go from 0 to 1, the lower one first")
        return clip


class OneColumn(ColumnSettings):
    """What is said about one column by its name; what is not said is as for the party's other columns."""

    kind: Kind = Field("auto", description="what the column holds; `ignore`: no column of the model")
    empty: tuple[str | int | float, ...] = Field(
        (), description="values that mean an empty one, e.g. [-999, 'unknown']"
    )


class PartyColumns(ColumnSettings):
    """[columns] of a party: settings of all its columns, and by name of those that differ."""

    by_name: dict[str, OneColumn] = Field({}, description="settings of one column, by its name")

    def of(self, name: str) -> OneColumn:
        """The settings of one column."""
        common = {key: getattr(self, key) for key in ColumnSettings.model_fields}
        own = self.by_name.get(name)
        return OneColumn(**common | ({} if own is None else {key: getattr(own, key) for key in own.model_fields_set}))


def columns_of(given: Any, parties: Iterable[str]) -> dict[str, PartyColumns]:
    """The settings of each party: those for all, and over them its own.

    Args:
        given: settings, and tables of settings by party; None: nothing is said.
        parties: who has a table.

    Raises:
        ConfigError: a setting or a party is unknown, or a value not possible.
    """
    names = list(parties)
    if given is not None and not isinstance(given, Mapping):
        raise ConfigError(f"[data.columns] needs settings by name, e.g. scaling = 'quantile'; got {given!r}")
    own = {key: value for key, value in (given or {}).items() if isinstance(value, Mapping)}
    common = {key: value for key, value in (given or {}).items() if key not in own}
    for party in own:
        if party == "by_name":
            raise ConfigError(f"[data.columns] by_name: say whose column it is, e.g. [data.columns.{names[0]}.by_name]")
        if party not in names:
            close = difflib.get_close_matches(party, names, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"parties: {', '.join(names)}"
            raise ConfigError(f"[data.columns.{party}]: {party!r} is no party with a table; {hint}")
    build(ColumnSettings, common, "data.columns")
    return {name: build(PartyColumns, {**common, **own.get(name, {})}, f"data.columns.{name}") for name in names}
