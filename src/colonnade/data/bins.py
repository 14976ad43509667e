"""Bins: what the values of one column are cut into. No label is read: by quantiles of the training rows, or by level.

numbers     so many bins with equally many training rows; fewer, where a value is too frequent
dates       the same, in days
levels      one bin for each level that is frequent enough, one for all others
empty       a bin of its own, always the last

A column that is cut becomes one number per row (`columns.bins` of a column plan). Bins with an order are numbered from
0 up, all others from -1 down, and -1 are empty values: so whoever reads the numbers knows which bins are neighbours.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from colonnade.data import dates
from colonnade.data.column_settings import PartyColumns
from colonnade.data.kinds import NUMBER, Levels, check_finite, check_text, is_categorical, kind_of
from colonnade.data.rare import Different
from colonnade.errors import ConfigError, DataError

Kind = Literal["number", "date", "level"]
Values = np.ndarray[Any, Any]
OTHER, EMPTY = "other", "empty"
DIGITS = 6  # of the range of a column's values, that cuts have
SMALLEST = 0.05  # of the training rows: levels with fewer are others
SAME = 1e-6  # how far cuts of the same rows may be apart on two machines, in parts of their range


@dataclass(frozen=True)
class Bins:
    """How one column is cut: inner cuts of numbers and dates (a value equal to a cut is below it), or levels."""

    column: str
    kind: Kind
    cuts: tuple[float, ...] = ()
    levels: tuple[str, ...] = ()
    holds: str = ""  # what the values of levels are: text, booleans, numbers
    refuses: bool = False  # empty values are an error

    part = ""  # a date is cut as a whole
    width = 1  # how many numbers of a row it becomes
    mean = None  # of the numbers of bins there is none that means anything

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

    @property
    def numbers(self) -> tuple[int, ...]:
        """What rows of each bin become."""
        last = len(self.names) - 1
        return (*((-2 - at) if self.kind == "level" else at for at in range(last)), -1)

    def encode(self, party: str, column: Any) -> Values:
        """(N,) the number of each row's bin."""
        numbers: Values = np.array(self.numbers)[self.codes(party, column)]
        return numbers

    def codes(self, party: str, column: Any) -> Values:
        """(N,) the place of each row's bin among the names.

        Raises:
            DataError: the column holds something else than the column that was cut.
        """
        empty = column.isna().to_numpy(dtype=bool)
        last = len(self.names) - 1
        if self.refuses and empty.any():
            raise DataError(
                f"party {party!r}, column {self.column!r}: {int(empty.sum())} of {len(column)} values are empty (NaN); "
                "fill them (fillna) or drop those rows first"
            )
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

    def check_new(self, party: str, column: Any) -> None:
        """Refuse new values of another kind; warn where none of several is a level that has a bin of its own."""
        self.codes(party, column)
        if self.kind == "number":
            check_finite(party, column.to_frame(self.column), [self.column])
        known = column[column.notna()]
        if self.kind != "level" or not self.levels or len(known) <= 1:
            return
        if not set(Levels.of(known, self.holds).texts) & set(self.levels):
            warnings.warn(
                f"party {party!r}, column {self.column!r}: none of {len(known)} values has a bin of its own, so all "
                f"count as {OTHER!r}; write them as in training",
                stacklevel=2,
            )

    def agrees(self, other: object) -> bool:
        """Whether other bins are these, up to the rounding of another machine."""
        if not isinstance(other, Bins) or len(self.cuts) != len(other.cuts):
            return False
        apart = np.abs(np.array(self.cuts) - np.array(other.cuts)).max(initial=0.0)
        return replace(self, cuts=()) == replace(other, cuts=()) and bool(
            apart <= SAME * (np.ptp([0, *self.cuts]) or 1)
        )

    def to_json(self) -> dict[str, object]:
        """Plain values."""
        return {"column": self.column, "kind": self.kind, "cuts": list(self.cuts), "levels": list(self.levels),
                "holds": self.holds, "refuses": self.refuses}  # fmt: skip

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> Bins:
        """The inverse of `to_json`; earlier versions never refused an empty value."""
        cuts, levels = tuple(map(float, facts["cuts"])), tuple(map(str, facts["levels"]))
        told = str(facts["holds"]), bool(facts.get("refuses", False))
        return cls(str(facts["column"]), facts["kind"], cuts, levels, *told)


def cut_columns(
    party: str, frame: Any, train: Values, settings: PartyColumns, kinds: tuple[list[str], Mapping[str, str], list[str]]
) -> tuple[tuple[Bins, ...], list[Different]]:
    """The bins of all columns of a party: numbers, dates, then levels; `kinds` says which are which (`kinds_of`).

    And those columns that have none, since their texts are nearly all different.

    Raises:
        ConfigError: only some columns are to be cut.
        DataError: a column is infinite, or has text among numbers, or is to hold categories that are nearly all
            different; or all training rows are in one bin of every column.
    """
    numbers, categories, when = kinds
    counts = {name: settings.of(name).bins for name in (*numbers, *when, *categories)}
    if not all(counts.values()):
        whole = next(name for name, count in counts.items() if not count)
        raise ConfigError(
            f"party {party!r}: bins = 0 for column {whole!r}, and others are cut; cut all columns, or leave it out "
            "(kind = 'ignore')"
        )
    check_finite(party, frame, numbers)
    found = []
    for name, kind in [*((n, "number") for n in numbers), *((n, "date") for n in when)]:
        found.append(Bins.of_numbers(name, kind, numbers_of(kind, frame[name])[train], counts[name]))  # type: ignore[arg-type]
    smallest, odd = max(1, round(SMALLEST * len(train))), []
    for name, holds in categories.items():
        levels = Levels.of(frame[name], holds)
        check_text(party, frame[name], levels.texts)
        codes = levels.codes[train]
        seen = (len(np.unique(codes[codes >= 0])), int((codes >= 0).sum()))
        different = Different.of(party, frame[name], holds, *seen)
        if different.left_out(settings.of(name)):
            odd.append(different)
            continue
        found.append(Bins.of_levels(name, holds, levels, train, smallest))
    if found and not any(len(np.unique(one.codes(party, frame[one.column])[train])) > 1 for one in found):
        raise DataError(f"party {party!r} has no column with two bins or more; leave its table out")
    return tuple(replace(one, refuses=settings.of(one.column).missing == "refuse") for one in found), odd


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
