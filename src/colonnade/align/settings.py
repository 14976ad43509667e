"""What each side of an alignment may choose."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from colonnade.config import Settings

Keep = Literal["all", "partial"]
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,31}$")]
PartyName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,31}$")]
MOST_IDS = 50_000_000  # of one side; row numbers travel in four bytes


class JoinSettings(Settings):
    """A party's part in an alignment; the rest is what the label holder proposes."""

    name: Name = Field(description="the alignment's name, the same on all sides: small letters, digits and -")
    more: bool = Field(False, description="extend the alignment that is there by ids that have no row yet")
    patience: float = Field(600.0, gt=0, description="seconds without any progress after which this side gives up")
    most_ids: int = Field(
        5_000_000, ge=1, le=MOST_IDS, description="largest number of ids another side may bring: each one is a question"
    )


class AlignSettings(JoinSettings):
    """The label holder's alignment: with whom, and which rows are kept."""

    parties: tuple[PartyName, ...] = Field(min_length=1, description="the parties to align with, each with its own ids")
    own: tuple[PartyName, ...] = Field(
        (), description="parties of the label holder's own organisation, which hold all of its ids"
    )
    keep: Keep = Field(
        "all", description="rows that all parties hold, or also those only some hold, with a table of who does"
    )

    @model_validator(mode="after")
    def _each_once(self) -> AlignSettings:
        names = [*self.parties, *self.own]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"party {twice!r} is named twice among parties and own")
        if "coordinator" in names:
            raise ValueError("'coordinator' is the label holder itself; name the other parties")
        return self
