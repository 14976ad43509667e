"""From a data frame to numbers, with statistics of the training rows only.

Each party encodes its own columns, so nothing about them is shared. A `ColumnPlan` is how: fitted once, kept with the
party's part of the model, and used again for new tables, whose columns are found by name. What one column becomes is in
`features`, what may be said about it in `column_settings`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from colonnade.data import dates, placed
from colonnade.data.bins import Bins, cut_columns
from colonnade.data.column_settings import OneColumn, PartyColumns
from colonnade.data.features import Feature, LevelFeature, NumberFeature
from colonnade.data.frames import Key, listed
from colonnade.data.kinds import TEXT, Levels, check_empty, check_finite, check_text, kinds_of
from colonnade.data.new_columns import check_columns, check_new
from colonnade.data.rare import Different, leave_out
from colonnade.data.said import as_said, with_columns
from colonnade.errors import DataError
from colonnade.mapped import large, zeros

ROWS = 1 << 16  # rows that a thread reads at once, at most
NUMBERS = 1 << 22  # numbers that a thread makes of them, about

Values = np.ndarray[Any, Any]
T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class ColumnPlan:
    """How one party's columns become numbers (N, F): number columns and numbers of dates first, then levels."""

    party: str
    features: tuple[Feature, ...] = field(repr=False)
    dates: Mapping[str, str | None] = field(default_factory=dict)  # columns of dates -> their time zone
    said: Mapping[str, OneColumn] = field(default_factory=dict, repr=False)  # what their owner said some columns hold
    id: Key | None = None  # the id of the rows at training, which is no column of the model
    label: str | None = None  # the label column, if it was in this table
    aside: tuple[str, ...] = ()  # columns of weights, times and groups to split by, if they were in this table

    @classmethod
    def fit(
        cls,
        party: str,
        frame: Any,
        train: Tensor,
        settings: PartyColumns | None = None,
        *,
        id: Key | None = None,
        label: str | None = None,
        aside: tuple[str, ...] = (),
    ) -> ColumnPlan:
        """Decide how to encode a party's columns; texts that are nearly all different are left out with a warning.

        Args:
            party: whose columns, for messages.
            frame: pandas.DataFrame with text column names; one row per agreed row.
            train: the training rows, from which means, deviations and categories are taken.
            settings: what is said about the columns; None: nothing.
            id: the id of the party's table, for new tables.
            label: the label column, if it was in the party's table, for new tables.
            aside: other columns of the party's table that are no columns of the model, for new tables.

        Raises:
            DataError: a column has infinite values, an unusable type, or text among numbers; or something is said
                about a column that is not there; or nearly all values of what is to be a category are different; or
                all columns are ignored or left out.
        """
        settings = settings or PartyColumns()
        _check_names(party, settings, frame)
        said = {
            name: OneColumn(kind=one.kind, empty=one.empty)
            for name, one in settings.by_name.items()
            if one.kind != "auto" or one.empty
        }
        frame = as_said(party, frame, said)
        if not len(frame.columns):
            raise DataError(f"party {party!r}: all columns are ignored; needed at least one")
        numbers, categories, when = kinds_of(party, frame)
        for name in frame.columns:
            if settings.of(name).missing == "refuse":
                check_empty(party, frame, name)
        zones = {name: dates.zone_of(frame[name]) for name in when}
        if any(settings.of(name).bins for name in frame.columns):
            bins, odd = cut_columns(party, frame, train.numpy(), settings, (numbers, categories, when))
            return cls(party, bins, zones, leave_out(odd, len(bins), said), id, label, aside)
        parts = [*((name, "") for name in numbers), *((name, part) for name in when for part in dates.NUMBERS)]
        places = [*((name, "") for name in categories), *((name, part) for name in when for part in dates.LEVELS)]
        rows = train.numpy()

        training = np.zeros(len(frame), dtype=bool)
        training[rows] = True

        def number(source: tuple[str, str]) -> Feature:
            name, part = source
            if not part:
                check_finite(party, frame, [name])  # here, while the column is being read anyway
            values = _numbers(frame, name, part)[rows]
            return NumberFeature.fit(name, part, values, _settings_of_part(settings.of(name), part))

        def level(source: tuple[str, str]) -> Feature | Different:
            name, part = source
            kind = categories.get(name, TEXT)
            said = _settings_of_part(settings.of(name), part)
            count, empty = _counted(frame, name, part, kind, training)
            if not part:
                check_text(party, frame[name], count)
            seen = {text: n for text, n in count.items() if n}
            different = None if part else Different.of(party, frame[name], kind, len(seen), sum(seen.values()))
            if different is not None and different.left_out(said):
                return different
            return LevelFeature.fit(name, part, kind, seen, empty, said)

        found = (*_each(number, parts), *_each(level, places))
        features = tuple(one for one in found if not isinstance(one, Different))
        odd = [one for one in found if isinstance(one, Different)]
        return cls(party, features, zones, leave_out(odd, len(features), said), id, label, aside)

    @property
    def numbers(self) -> tuple[str, ...]:
        """The columns of numbers."""
        return tuple(one.column for one in self.features if _holds_numbers(one))

    @property
    def categories(self) -> dict[str, str]:
        """The columns of text, categories and booleans, and what their values are."""
        levels = {one.column: one.kind for one in self.features if isinstance(one, LevelFeature) and not one.part}
        return levels | {
            one.column: one.holds for one in self.features if isinstance(one, Bins) and one.kind == "level"
        }

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns that the plan reads."""
        return (*self.numbers, *self.categories, *self.dates)

    @property
    def cut(self) -> bool:
        """Whether columns become the numbers of their bins, all of them."""
        return bool(self.features) and all(isinstance(one, Bins) for one in self.features)

    @property
    def width(self) -> int:
        """F, the numbers per row."""
        return sum(feature.width for feature in self.features)

    @property
    def places(self) -> dict[str, tuple[int, ...]]:
        """Where each column of the table stands among the F numbers of a row; a date in several places."""
        found: dict[str, tuple[int, ...]] = dict.fromkeys(self.columns, ())
        start = 0
        for one in self.features:
            found[one.column] += tuple(range(start, start + one.width))
            start += one.width
        return found

    @property
    def mean(self) -> Tensor | None:
        """(F,) the mean of the encoded training rows in float64; None: an earlier version did not keep it."""
        means = [one.mean for one in self.features]
        known = [number for mean in means if mean is not None for number in mean]
        return None if None in means else torch.tensor(known, dtype=torch.float64)

    def strangers(self, frame: Any, feature: LevelFeature) -> int:
        """How many rows of a frame have a level without a place of its own: training saw it seldom or never."""
        levels = _levels(frame, feature.column, feature.part, feature.kind)
        return int(np.append(feature.strange(levels.texts), False)[levels.codes].sum())

    def encode(self, frame: Any, rows: Values | None = None, *, on_disk: bool = False) -> Tensor:
        """(N, F) float32 of a frame that has these columns with values of these kinds.

        Args:
            frame: pandas.DataFrame.
            rows: (N,) which of its rows, in this order, -1 for rows of zeros; None: all, in the frame's order.
            on_disk: the numbers lie in a file that is mapped (`mapped.zeros`).
        """
        return self._encoded(as_said(self.party, frame, self.said), rows, on_disk)

    def _encoded(self, frame: Any, rows: Values | None, on_disk: bool) -> Tensor:
        """The frame is read from its first row to its last, once; each row goes where it belongs."""
        count, size = len(frame), max(1, min(ROWS, NUMBERS // max(1, self.width)))
        region = max(1, placed.REGION // (4 * self.width)) if on_disk else 0
        placement = None if rows is None else placed.place(rows, count, region)
        out = zeros((count if rows is None else len(rows), self.width), on_disk=on_disk)

        def write(first: int) -> None:
            block = frame.iloc[first : first + size]
            if placement is None:
                placed.write(out, self._columns(block), None, np.arange(first, first + len(block)))
                return
            chosen, slots = placement.of(first, size)
            if len(chosen):
                placed.write(out, self._columns(block), chosen, slots)

        _each(write, range(0, count, size))
        if placement is not None:
            placement.settle(out)
        return out

    def _columns(self, block: Any) -> Values:
        """(F, B) float32 of some rows."""
        out, start = np.zeros((self.width, len(block)), dtype=np.float32), 0
        for feature in self.features:
            mine = out[start : start + feature.width]
            if isinstance(feature, Bins):
                mine[0] = feature.encode(self.party, block[feature.column])
            elif isinstance(feature, NumberFeature):
                feature.encode(_numbers(block, feature.column, feature.part), mine)
            elif not feature.constant:
                feature.encode(_levels(block, feature.column, feature.part, feature.kind), mine)
            start += feature.width
        return out

    def transform(self, frame: Any, rows: Values | None = None) -> Tensor:
        """(N, F) float32 of a new table, of these of its rows; its columns are found by name, in any order.

        The columns of ids, labels, weights, times and groups of the training may be there and are not read. Warned of
        by name: columns that the model was not trained with, levels that training did not see, empty values in a column
        that had none, numbers far outside those of the training.

        Raises:
            DataError: a column is missing or of another type than in training, has infinite values, or in several rows
                no level that training saw, or nothing where training had no empty value.
        """
        frame = as_said(self.party, check_columns(self, frame), self.said)
        for name, zone in self.dates.items():
            if dates.is_date(frame[name]):
                frame = with_columns(frame, {name: dates.in_zone(self.party, frame[name], zone)})
        frame = check_new(self, frame)
        return self._encoded(frame, rows, on_disk=large(len(frame) * self.width))

    def agrees(self, other: ColumnPlan | None) -> bool:
        """Whether another plan makes the same numbers of the same table, up to the rounding of another machine."""
        if other is None or (self.dates, self.said) != (other.dates, other.said):
            return False
        pairs = zip(self.features, other.features, strict=False)
        return len(self.features) == len(other.features) and all(one.agrees(two) for one, two in pairs)


def _each(work: Callable[[T], R], things: Iterable[T]) -> list[R]:
    """Several at a time where torch has several threads; else here, since handing over takes longer than a column."""
    threads = torch.get_num_threads()
    if threads == 1:
        return [work(thing) for thing in things]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, things))


def _holds_numbers(feature: Feature) -> bool:
    return not feature.part and (
        isinstance(feature, NumberFeature) or (isinstance(feature, Bins) and feature.kind == "number")
    )


def _numbers(frame: Any, name: str, part: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """(N,) float64, NaN where empty; without a copy where the column is that already."""
    if part:
        return dates.number_part(frame[name], part)
    values: np.ndarray[Any, np.dtype[np.float64]] = frame[name].to_numpy(dtype=np.float64, na_value=np.nan)
    return values


def _levels(frame: Any, name: str, part: str, kind: str) -> Levels:
    return dates.level_part(frame[name], part) if part else Levels.of(frame[name], kind)


def _settings_of_part(settings: OneColumn, part: str) -> OneColumn:
    """Of a date only the days say where it was empty, and its few levels are neither grouped nor hashed."""
    if not part:
        return settings
    missing = "fill" if settings.missing == "indicate" and part != dates.NUMBERS[0] else settings.missing
    levels = "ordinal" if settings.levels == "ordinal" else "auto"
    common = {"scaling": settings.scaling, "pieces": settings.pieces, "clip": settings.clip}
    return OneColumn(missing=missing, levels=levels, rare=1, **common)


def _counted(frame: Any, name: str, part: str, kind: str, training: Values) -> tuple[dict[str, int], int]:
    """How many training rows have each level of a column, 0 for those of other rows only; and how many have none."""
    count: dict[str, int] = {}
    empty, column = 0, frame[[name]]
    for first in range(0, len(frame), ROWS):
        levels = _levels(column.iloc[first : first + ROWS], name, part, kind)
        codes = levels.codes[training[first : first + ROWS]].astype(np.int64)
        found = np.bincount(codes + 1, minlength=len(levels.texts) + 1).tolist()
        empty += found[0]
        for text, n in zip(levels.texts, found[1:], strict=True):
            count[text] = count.get(text, 0) + n
    return count, empty


def _check_names(party: str, settings: PartyColumns, frame: Any) -> None:
    names = [str(name) for name in frame.columns]
    strange = next((name for name in settings.by_name if name not in names), None)
    if strange is not None:
        close = difflib.get_close_matches(strange, names, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"columns: {listed(frame)}"
        raise DataError(f"party {party!r}: by_name names {strange!r}, which is no column of its table; {hint}")
