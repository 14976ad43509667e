"""Levels that few rows have, and columns in which nearly every row has its own: names, addresses, comments.

A level of few rows teaches a model little, and may be the name of a person. So such levels become one, "other", and no
text of theirs is kept. A column of texts that are nearly all different is left out, and its owner is told; where its
owner asked for it, it is refused.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from colonnade.data.column_settings import OneColumn
from colonnade.data.kinds import BOOLEAN, TEXT, is_categorical
from colonnade.errors import DataError, DoubtfulData

LEAST = 5  # training rows that a level has at least, unless it is said otherwise
FREQUENT = 20  # a level of one row in so many is not rare, however few rows there are
FEW_ROWS = 20  # below, texts may all differ by chance
COUNTS = re.compile(r" \([\d,]+ different values in [\d,]+ rows\)")


class NothingLeft(DataError):
    """All columns of a party are left out."""

    def __init__(self, told: Sequence[str]) -> None:
        """With what is told about each of them."""
        super().__init__(f"{told[0]}; no other column of its table is left to train with")
        self.told = tuple(told)


def least_rows(said: int | None, rows: int) -> int:
    """How many training rows a level with a place of its own has at least."""
    return said if said is not None else max(1, min(LEAST, rows // FREQUENT))


def without_counts(text: str) -> str:
    """What is told about a column without its counts: whoever looks at other rows says the same."""
    return COUNTS.sub("", text)


@dataclass(frozen=True)
class Different:
    """How many different values a column of levels has, and in how many rows that are not empty."""

    party: str
    column: str
    kind: str  # what the values are
    declared: bool  # its type says that it holds categories
    values: int
    rows: int

    @classmethod
    def of(cls, party: str, column: Any, kind: str, values: int, rows: int) -> Different:
        """Of a column of a pandas.DataFrame."""
        return cls(party, str(column.name), kind, is_categorical(column), values, rows)

    def left_out(self, settings: OneColumn) -> bool:
        """Whether the column is left out, since most of its rows have a text of their own.

        Hashed levels keep no text, so whoever says `hash` has the column as it is.

        Raises:
            DataError: it would be, and its owner said that it holds categories.
        """
        if self.rows < FEW_ROWS or 2 * self.values <= self.rows or self.kind == BOOLEAN or settings.levels == "hash":
            return False
        if self.declared or settings.kind == "category":
            raise DataError(
                f"{self._told('is refused')} it is to hold categories, and nearly all of its values are different, as "
                "ids, names and addresses are; leave it out (kind = 'ignore'), group its values, or hash them "
                "(levels = 'hash')"
            )
        return self.kind == TEXT

    def _told(self, what: str) -> str:
        counts = f"({self.values:,} different values in {self.rows:,} rows)"
        return f"party {self.party!r}, column {self.column!r} {what} {counts}:"

    def __str__(self) -> str:
        """What the owner of a column that is left out is told."""
        return (
            f"{self._told('is left out')} nearly all of its texts are different, as names, addresses and comments "
            "are; say that it is (kind = 'ignore'), group its values, or hash them (levels = 'hash')"
        )


def leave_out(odd: Sequence[Different], left: int, said: Mapping[str, OneColumn]) -> dict[str, OneColumn]:
    """What is said about a party's columns, with those that are left out; their owner is warned.

    Args:
        odd: those that are left out.
        left: how many others there are.
        said: what is said of some columns.

    Raises:
        NothingLeft: no column is left.
    """
    if odd and not left:
        raise NothingLeft([str(one) for one in odd])
    for one in odd:
        warnings.warn(str(one), DoubtfulData, stacklevel=4)
    return {**said, **{one.column: OneColumn(kind="ignore") for one in odd}}
