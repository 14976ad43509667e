"""How a party's columns were distributed over its training rows, in bins; and how far a table of today has moved.

Numbers and dates are cut at deciles of the training rows (fewer cuts where there are few rows), levels are counted as
they are: the frequent ones by themselves, all others together, those that training saw in too few rows or never, and
empty values. Texts of too few rows (`columns.rare`) may be names of people, and are not kept. Of a column with many
rare levels a new sample always has some more of these: where a level needs k rows to be kept, about as many rows as
training had in levels of just k (Good and Turing). Only what is beyond that counts as moved. These are counts of a
party's own table: they stay with its part of the model, and never leave it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np

from colonnade.data import dates
from colonnade.data.bins import numbers_of
from colonnade.data.columns import ColumnPlan
from colonnade.data.features import LevelFeature
from colonnade.data.kinds import NUMBER, Levels, is_categorical, kind_of
from colonnade.data.rare import least_rows
from colonnade.data.said import as_said
from colonnade.errors import DataError, RunError
from colonnade.psi import Shift

FORMAT = 1
SAMPLE = 100_000  # training rows that are counted; of more, so many in equal distances
BINS, PER_BIN = 10, 20  # cuts of numbers, and training rows that each bin has at least
LEVELS = 30  # levels that are counted by themselves
SEEN = 10_000  # levels that are remembered as seen; with more, new ones are not told from rare ones

Values = np.ndarray[Any, Any]
Kind = Literal["number", "date", "level"]


@dataclass(frozen=True)
class Counted:
    """One column: its bins, and how many training rows each has. The last bin is of empty values."""

    name: str
    kind: Kind
    counts: tuple[int, ...] = field(repr=False)
    cuts: tuple[float, ...] = field(default=(), repr=False)
    holds: str = ""  # what levels are
    levels: tuple[str, ...] = field(default=(), repr=False)  # the frequent ones
    rare: tuple[str, ...] = field(default=(), repr=False)  # others that occurred: one bin; then all others, empty
    single: int = 0  # rows of levels that just the least number of rows had
    least: int = 1  # rows that a level has whose text is kept

    @classmethod
    def numbers(cls, name: str, kind: Kind, values: Values) -> Counted:
        """Of numbers or days (N,), NaN where they are empty."""
        cuts = _cuts(values[~np.isnan(values)])
        return cls(name, kind, _cut(values, cuts), cuts)

    @classmethod
    def of_levels(cls, name: str, holds: str, found: Levels, least: int = 1) -> Counted:
        """Of levels; the texts of those with fewer than `least` rows are not kept."""
        count = np.bincount(found.codes.astype(np.int64) + 1, minlength=len(found.texts) + 1)
        order = sorted((-int(n), text) for text, n in zip(found.texts, count[1:], strict=True) if n)
        enough = min(PER_BIN, len(found.codes) // PER_BIN + 1)  # the largest of many small counts are so by chance
        kept = [(text, -n) for n, text in order if -n >= max(enough, least)][:LEVELS]
        rest = [(-n, text) for n, text in order[len(kept) :]]
        rare = tuple(text for n, text in rest[:SEEN] if n >= least)
        unkept = 0 if len(rare) >= SEEN else sum(n for n, _ in rest if n < least)
        counts = (*(n for _, n in kept), sum(n for n, _ in rest) - unkept, unkept, int(count[0]))
        single = sum(n for n, _ in rest if n == least)
        return cls(name, "level", counts, (), holds, tuple(text for text, _ in kept), rare, single, least)

    def of_numbers(self, values: Values) -> tuple[int, ...]:
        """How many of some numbers (N,) of today each bin has."""
        return _cut(values, self.cuts)

    def count(self, column: Any) -> tuple[Values, int] | str:
        """(k,) how many rows of a column of today each bin has, and how many a level that was not kept; or why not."""
        if column.isna().all():
            counts = np.zeros(len(self.counts), dtype=np.int64)
            counts[-1] = len(column)
            return counts, 0
        date, categorical = dates.is_date(column), is_categorical(column)
        number = not date and not categorical and kind_of(column) == NUMBER
        if not {"date": date, "number": number, "level": not date}[self.kind]:
            return f"it was a column of {self.kind}s, and holds {column.dtype} now"
        if self.kind != "level":
            return np.array(_cut(numbers_of(self.kind, column), self.cuts)), 0
        found = Levels.of(column, self.holds)
        place = {text: at for at, text in enumerate(self.levels)}
        other = len(self.levels)
        seen = {*self.rare}
        new = other if len(self.rare) >= SEEN else other + 1
        at = np.array([*(place.get(text, other if text in seen else new) for text in found.texts), other + 2])
        counts = np.bincount(at[found.codes], minlength=len(self.counts))
        return counts, int(counts[other + 1])

    def then(self, now: Values) -> Values:
        """(k,) what to hold counts of today against: with as many rows of unknown levels as are to be expected."""
        counts = np.array(self.counts)
        if self.kind == "level" and now.sum():
            expected = max(0, min(self.single, int(now[-2] * counts.sum() / now.sum()) - int(counts[-2])))
            counts[-2] += expected
            counts[-3] -= expected
        return counts


def _cuts(known: Values) -> tuple[float, ...]:
    """Between bins of about equally many rows; a value equal to a cut is below it.

    A value that is most rows has a bin of its own, also where it is the largest or the only one: else nobody would see
    that a constant has become another.
    """
    if not len(known):
        return ()
    low, high = float(known.min()), float(known.max())
    if low == high:
        return (float(np.nextafter(low, -np.inf)), high)
    count = max(2, min(BINS, len(known) // PER_BIN))
    cuts = {*np.quantile(known, np.arange(1, count) / count, method="lower").tolist()}
    if high in cuts:
        cuts = cuts - {high} | {float(known[known < high].max())}
    return tuple(sorted(cuts))


def _cut(values: Values, cuts: tuple[float, ...]) -> tuple[int, ...]:
    empty = np.isnan(values)
    inner = np.bincount(np.searchsorted(cuts, values[~empty], side="left"), minlength=len(cuts) + 1)
    return (*(int(n) for n in inner), int(empty.sum()))


@dataclass(frozen=True)
class Reference:
    """A party's training rows, counted."""

    party: str
    rows: int  # that were counted
    columns: tuple[Counted, ...] = field(repr=False)

    @classmethod
    def of(cls, plan: ColumnPlan, frame: Any, train: Values) -> Reference:
        """Of the training rows of a frame, as its columns were when the plan was made."""
        step = -(-len(train) // SAMPLE) or 1
        rows = np.sort(train)[::step]
        said = as_said(plan.party, frame, plan.said).iloc[rows]
        known = {one.column: one.least for one in plan.features if isinstance(one, LevelFeature) and not one.part}
        least = {name: known.get(name, least_rows(None, len(train))) for name in plan.categories}
        found = [
            *(Counted.numbers(name, "number", numbers_of("number", said[name])) for name in plan.numbers),
            *(Counted.numbers(name, "date", numbers_of("date", said[name])) for name in plan.dates),
            *(
                Counted.of_levels(name, kind, Levels.of(said[name], kind), least[name])
                for name, kind in plan.categories.items()
            ),
        ]
        return cls(plan.party, len(rows), tuple(found))

    def shifts(self, plan: ColumnPlan, frame: Any) -> list[Shift]:
        """How far each column has moved in a frame of today, the furthest first."""
        try:
            said = as_said(plan.party, frame, plan.said)
        except DataError as error:
            raise DataError(f"{error}; drift cannot be told before that") from None
        found = [self._shift(one, said) for one in self.columns]
        return sorted(found, key=lambda shift: (shift.psi is not None, -(shift.psi or 0.0), shift.name))

    def _shift(self, one: Counted, frame: Any) -> Shift:
        then = np.array(one.counts)
        if one.name not in frame.columns:
            return Shift.missing(one.name, then, "it is not in the table any more")
        counted = one.count(frame[one.name])
        if isinstance(counted, str):
            return Shift.missing(one.name, then, counted)
        now, new = counted
        share = new / max(len(frame), 1)
        what = "never seen in training" if one.least == 1 else f"that fewer than {one.least} training rows had"
        return Shift.of(one.name, one.then(now), now, f"{share:.1%} of the rows have a level {what}" * bool(new))

    def to_json(self) -> dict[str, object]:
        """Plain values."""
        return {"format": FORMAT, "party": self.party, "rows": self.rows, "columns": [asdict(c) for c in self.columns]}

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> Reference:
        """The inverse of `to_json`."""
        try:
            if said["format"] != FORMAT:
                raise ValueError(f"its format is {said['format']!r}, known is {FORMAT}")
            columns = tuple(
                Counted(
                    str(c["name"]), c["kind"], tuple(map(int, c["counts"])), tuple(map(float, c["cuts"])),
                    str(c["holds"]), tuple(map(str, c["levels"])), tuple(map(str, c["rare"])), int(c["single"]),
                    int(c.get("least", 1)),
                )
                for c in said["columns"]
            )  # fmt: skip
            return cls(str(said["party"]), int(said["rows"]), columns)
        except (ValueError, KeyError, TypeError) as error:
            raise RunError(f"the counts of the training rows cannot be read ({error}); train again") from None
