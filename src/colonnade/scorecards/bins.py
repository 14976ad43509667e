"""Bins: what the values of one column are cut into. No label is read: by quantiles of the training rows, or by level.

numbers     so many bins with equally many training rows; fewer, where a value is too frequent
dates       the same, in days
levels      one bin for each level that is frequent enough, one for all others
empty       a bin of its own, always the last
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from colonnade.data import dates
from colonnade.data.kinds import NUMBER, Levels, is_categorical, kind_of
from colonnade.errors import DataError

Kind = Literal["number", "date", "level"]
Values = np.ndarray[Any, Any]
OTHER, EMPTY = "other", "empty"
DIGITS = 6  # of the range of a column's values, that cuts have


@dataclass(frozen=True)
class Bins:
    """How one column is cut: inner cuts of numbers and dates (a value equal to a cut is below it), or levels."""

    column: str
    kind: Kind
    cuts: tuple[float, ...] = ()
    levels: tuple[str, ...] = ()
    holds: str = ""  # what the values of levels are: text, booleans, numbers

    @classmethod
    def of_numbers(cls, column: str, kind: Kind, values: Values, count: int) -> Bins:
        """From the training rows (N,) float64, NaN where they are empty."""
        known = values[~np.isnan(values)]
        if not len(known) or known.min() == known.max():
            return cls(column, kind)
        found = np.quantile(known, np.arange(1, count) / count, method="lower")
        digits = DIGITS - 1 - math.floor(math.log10(known.max() - known.min()))
        cuts = np.unique([_rounded_up(float(cut), digits) for cut in found])  # what is printed is what decides
        kept = [cut for cut in cuts.tolist() if known.min() <= cut < known.max()]
        return cls(column, kind, tuple(kept))

    @classmethod
    def of_levels(cls, column: str, holds: str, levels: Levels, rows: Values, smallest: int) -> Bins:
        """From the levels of the training rows; those of fewer than `smallest` rows are others."""
        counts = np.bincount(levels.codes[rows].astype(np.int64) + 1, minlength=len(levels.texts) + 1)[1:]
        kept = [text for text, n in zip(levels.texts, counts, strict=True) if n >= smallest]
        return cls(column, "level", (), tuple(sorted(kept)), holds)

    @property
    def names(self) -> tuple[str, ...]:
        """What the bins are called, the empty one last."""
        if self.kind == "level":
            return (*self.levels, OTHER, EMPTY)
        cuts = [_written(self.kind, cut) for cut in self.cuts]
        inner = [f"{low} < x <= {high}" for low, high in pairwise(cuts)]
        ends = [f"x <= {cuts[0]}", *inner, f"x > {cuts[-1]}"] if cuts else ["any"]
        return (*ends, EMPTY)

    def codes(self, party: str, column: Any) -> Values:
        """(N,) the bin of each row.

        Raises:
            DataError: the column holds something else than the column that was cut.
        """
        empty = column.isna().to_numpy(dtype=bool)
        last = len(self.names) - 1
        if empty.all():
            return np.full(len(column), last)
        self._check(party, column)
        if self.kind == "level":
            found, place = Levels.of(column, self.holds), {text: at for at, text in enumerate(self.levels)}
            places = np.array([place.get(text, len(self.levels)) for text in found.texts] + [last], dtype=np.int64)
            codes: Values = places[found.codes]
            return codes
        values = numbers_of(self.kind, column)
        return np.where(empty, last, np.searchsorted(self.cuts, values, side="left"))

    def _check(self, party: str, column: Any) -> None:
        date, number = dates.is_date(column), not dates.is_date(column) and kind_of(column) == NUMBER
        right = {"date": date, "number": number and not is_categorical(column), "level": not date}[self.kind]
        if not right:
            raise DataError(
                f"party {party!r}, column {self.column!r}: the scorecard has bins of {self.kind}s for it, and these "
                f"values are {column.dtype}; give it as in the tables that the scorecard was made from"
            )

    def to_json(self) -> dict[str, object]:
        """Plain values."""
        return {"column": self.column, "kind": self.kind, "cuts": list(self.cuts), "levels": list(self.levels),
                "holds": self.holds}  # fmt: skip

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> Bins:
        """The inverse of `to_json`."""
        cuts, levels = tuple(map(float, facts["cuts"])), tuple(map(str, facts["levels"]))
        return cls(str(facts["column"]), facts["kind"], cuts, levels, str(facts["holds"]))


def numbers_of(kind: Kind, column: Any) -> Values:
    """(N,) float64 of numbers or dates, NaN where they are empty."""
    if kind == "date":
        return dates.number_part(column, "days")
    values: Values = column.to_numpy(dtype=np.float64, na_value=np.nan)
    return values


def _rounded_up(cut: float, digits: int) -> float:
    """So many digits behind the point, and not below."""
    near = round(cut, digits)
    return near if near >= cut else round(near + 10.0**-digits, digits)


def _written(kind: Kind, cut: float) -> str:
    if kind == "date":
        return str(np.datetime64("1970-01-01T00:00", "m") + np.timedelta64(round(cut * 1440), "m")).replace(
            "T00:00", ""
        )
    return np.format_float_positional(cut, trim="-")
