"""From a data frame to numbers, with statistics of the training rows only.

Each party encodes its own columns, so nothing about them is shared: numeric columns are standardised,
text, categories and booleans are one-hot encoded. What is constant on the training rows carries no
information there and becomes zero everywhere, so that a surprising value in a test row cannot explode.

A `ColumnPlan` is how: fitted once, kept with the party's part of the model, and used again for new tables, whose
columns are found by name.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from colonnade.data.frames import Key, listed, names_of
from colonnade.data.kinds import (
    BOOLEAN,
    NUMBER,
    TEXT,
    Levels,
    check_empty,
    check_finite,
    first_text,
    is_categorical,
    kind_of,
    kinds_of,
)
from colonnade.errors import DataError
from colonnade.extras import need

# One-hot columns beyond this are almost always an identifier or free text, and fill the memory.
MOST_CATEGORIES = 1000
# What a column of categories may hold later, by what it held in training; a number column only ever holds numbers.
FITTING = {NUMBER: (NUMBER, TEXT), TEXT: (TEXT,), BOOLEAN: (BOOLEAN,)}
BLOCK = 1 << 14  # rows that are written at once
AT_ONCE = 1 << 22  # numbers that a thread gathers at once
FIT = 1 << 14  # rows whose statistics are taken at once
SAME = 1e-6  # how far statistics of the same rows may be apart on two machines, in deviations


Values = np.ndarray[Any, Any]


@dataclass(frozen=True)
class ColumnPlan:
    """How one party's columns become numbers (N, F): number columns first, then one per category."""

    party: str
    numbers: tuple[str, ...]
    categories: Mapping[str, str]  # column -> what its values are
    constant: np.ndarray[Any, Any] = field(repr=False)  # (F,) constant on the training rows: zero everywhere
    transformer: Any = field(repr=False)  # the fitted scikit-learn ColumnTransformer
    id: Key | None = None  # the id of the rows at training, which is no column of the model
    label: str | None = None  # the label column, if it was in this table
    aside: tuple[str, ...] = ()  # columns of weights, times and groups to split by, if they were in this table

    @classmethod
    def fit(
        cls,
        party: str,
        frame: Any,
        train: Tensor,
        *,
        id: Key | None = None,
        label: str | None = None,
        aside: tuple[str, ...] = (),
    ) -> ColumnPlan:
        """Decide how to encode a party's columns.

        Args:
            party: whose columns, for messages.
            frame: pandas.DataFrame with text column names; one row per agreed row.
            train: the training rows, from which means, deviations and categories are taken.
            id: the id of the party's table, for new tables.
            label: the label column, if it was in the party's table, for new tables.
            aside: other columns of the party's table that are no columns of the model, for new tables.

        Raises:
            DataError: a column has empty or infinite values, too many categories, an unusable type, or text among
                numbers.
        """
        frame = frame.infer_objects()  # object columns that hold only numbers are numbers
        numbers, categories = kinds_of(party, frame)
        check_finite(party, frame, numbers)
        rows = train.numpy()
        levels = {name: Levels.of(frame[name], kind).among(rows) for name, kind in categories.items()}
        _check_categories(party, levels, len(rows))
        transformer = _transformer(numbers, levels)
        constant = _fit_numbers(transformer, [_numbers(frame, name) for name in numbers], rows)
        for known in _known(transformer, categories).values():
            constant += [len(known) == 1] * len(known)
        return cls(party, tuple(numbers), categories, np.array(constant, dtype=bool), transformer, id, label, aside)

    @property
    def width(self) -> int:
        """F, the numbers per row."""
        return len(self.constant)

    def levels(self) -> dict[str, Any]:
        """The categories that the training rows had, by column."""
        return _known(self.transformer, self.categories)

    def encode(self, frame: Any, rows: Values | None = None) -> Tensor:
        """(N, F) float32 of a frame that has these columns with values of these kinds.

        Args:
            frame: pandas.DataFrame.
            rows: (N,) which of its rows, in this order, -1 for rows of zeros; None: all, in the frame's order.
        """
        frame = frame.infer_objects()
        at = np.arange(len(frame)) if rows is None else rows
        out = np.zeros((len(at), self.width), dtype=np.float32)
        size = max(1, AT_ONCE // max(1, len(at)))
        groups = [range(first, min(first + size, len(self.numbers))) for first in range(0, len(self.numbers), size)]
        starts = dict(zip(self.categories, self._starts(), strict=True))
        with ThreadPoolExecutor(torch.get_num_threads()) as pool:
            list(pool.map(lambda group: self._write_numbers(out, at, frame, group), groups))
            list(pool.map(lambda name: self._write_levels(out, at, frame[name], starts[name]), self.categories))
        return torch.from_numpy(out)

    def _starts(self) -> list[int]:
        """The first column of each column of categories among the encoded ones."""
        widths = [len(known) for known in self.levels().values()]
        return [len(self.numbers) + sum(widths[:place]) for place in range(len(widths))]

    def _write_numbers(self, out: Values, at: Values, frame: Any, group: range) -> None:
        """Neighbouring number columns; each is gathered while it is in the processor's cache."""
        scaler = self.transformer.named_transformers_["numbers"]
        part, away = np.zeros((len(group), len(at)), dtype=np.float32), at < 0
        for place, number in enumerate(group):
            if not self.constant[number]:
                values = _numbers(frame, self.numbers[number])
                scaled = ((values - scaler.mean_[number]) / scaler.scale_[number]).astype(np.float32)
                np.take(scaled, at, out=part[place], mode="wrap")  # -1 is the last row, and away
                part[place, away] = 0
        for first in range(0, len(at), BLOCK):
            out[first : first + BLOCK, group.start : group.stop] = part[:, first : first + BLOCK].T

    def _write_levels(self, out: Values, at: Values, column: Any, start: int) -> None:
        """A column of categories: one in the place of its level, if training had it."""
        if not self.constant[start]:
            codes = Levels.of(column, self.categories[column.name]).numbered(self.levels()[column.name])
            found = codes[at]
            rows = ((at >= 0) & (found >= 0)).nonzero()[0]
            out[rows, start + found[rows].astype(np.int64)] = 1

    def transform(self, frame: Any) -> Tensor:
        """(N, F) float32 of a new table; its columns are found by name, in any order.

        The columns of ids, labels, weights, times and groups of the training may be there and are not read. Categories
        that training did not see are all zero, with a warning that names them.

        Raises:
            DataError: a column is missing, unknown, of another type than in training, has empty or infinite values,
                or in several rows no category that training saw.
        """
        frame = self._matched(frame).infer_objects()
        for name in frame.columns:
            check_empty(self.party, frame, name)
            self._check_kind(frame, name)
        check_finite(self.party, frame, self.numbers)
        self._check_strangers(frame)
        return self.encode(frame)

    def agrees(self, other: ColumnPlan | None) -> bool:
        """Whether another plan makes the same numbers of the same table, up to the rounding of another machine."""
        if other is None or self.numbers != other.numbers or [*self.categories.items()] != [*other.categories.items()]:
            return False
        known, theirs = _known(self.transformer, self.categories), _known(other.transformer, other.categories)
        if not all(np.array_equal(known[name], theirs[name]) for name in known):
            return False
        if not self.numbers:
            return True
        one, two = (plan.transformer.named_transformers_["numbers"] for plan in (self, other))
        apart = np.abs(one.mean_ - two.mean_) / one.scale_, np.abs(one.scale_ / two.scale_ - 1)
        return bool(np.max(apart) < SAME)

    def _matched(self, frame: Any) -> Any:
        wanted = [*self.numbers, *self.categories]
        beside = {*names_of(self.id), self.label, *self.aside} - set(wanted)
        given = [name for name in frame.columns if name not in beside]
        for name in wanted:
            if name not in given:
                raise DataError(
                    f"party {self.party!r}: the new table lacks the column {name!r} that the model was trained with; "
                    f"it has {listed(frame)}"
                )
        for name in given:
            if name not in wanted:
                raise DataError(
                    f"party {self.party!r}: the new table has a column {name!r} that the model was not trained with; "
                    "drop it, or train again with it"
                )
        return frame[wanted]

    def _check_kind(self, frame: Any, name: str) -> None:
        now, as_category = kind_of(frame[name]), is_categorical(frame[name])
        if name in self.categories:
            before, fits = self.categories[name], now in FITTING[self.categories[name]]
        else:
            before, fits = NUMBER, now == NUMBER and not as_category
        if not fits:
            found = f"{now or frame[name].dtype}{' as categories' if as_category else ''}"
            raise DataError(
                f"party {self.party!r}, column {name!r} had {before} in training and has {found} now"
                f"{first_text(frame[name]) if before == NUMBER and now != NUMBER else ''}; give it as in training"
            )

    def _check_strangers(self, frame: Any) -> None:
        for name, known in _known(self.transformer, self.categories).items():
            levels = Levels.of(frame[name], self.categories[name])
            strange = levels.codes[levels.numbered(known) < 0]
            if not len(strange):
                continue
            first = levels.texts[strange[0]]
            if len(strange) == len(frame) > 1:
                raise DataError(
                    f"party {self.party!r}, column {name!r}: none of {len(frame)} values is a category of the training "
                    f"(first: {first!r}; training had {', '.join(repr(str(one)) for one in known[:3])}"
                    f"{', ...' if len(known) > 3 else ''}); write them as in training"
                )
            warnings.warn(
                f"party {self.party!r}, column {name!r}: {len(strange)} of {len(frame)} values are categories that "
                f"training did not see (first: {first!r}); they count as none of the known ones",
                stacklevel=2,
            )


def _numbers(frame: Any, name: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """(N,) float64, without a copy where the column is that already."""
    values: np.ndarray[Any, np.dtype[np.float64]] = frame[name].to_numpy(dtype=np.float64, na_value=np.nan)
    return values


def _transformer(numbers: Sequence[str], levels: Mapping[str, Sequence[str]]) -> Any:
    """A fitted scikit-learn ColumnTransformer that knows these levels; its numbers are still to be fitted.

    It is fitted on a small frame that has every level once: the rows themselves would be a matrix of Python objects.
    """
    from sklearn.compose import ColumnTransformer  # slow to import, and only tables need it
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    pd = need("pandas", extra="tables", purpose="a table")
    longest = max([1, *(len(texts) for texts in levels.values())])
    padded = {name: [*texts, *[texts[0]] * (longest - len(texts))] for name, texts in levels.items()}
    small = pd.DataFrame({**{name: np.zeros(longest) for name in numbers}, **padded}, columns=[*numbers, *levels])
    parts = [
        ("numbers", StandardScaler(), list(numbers)),
        ("categories", OneHotEncoder(handle_unknown="ignore", sparse_output=False), list(levels)),
    ]
    return ColumnTransformer(parts).fit(small)


def _fit_numbers(transformer: Any, columns: Sequence[Any], rows: np.ndarray[Any, Any]) -> list[bool]:
    """Fit means and deviations of some rows, block by block; whether each column is constant there."""
    if not columns:
        return []
    pd = need("pandas", extra="tables", purpose="a table")
    scaler = transformer.named_transformers_["numbers"]
    names = scaler.feature_names_in_
    least, most = np.full(len(columns), np.inf), np.full(len(columns), -np.inf)
    for first in range(0, len(rows), FIT):
        part = rows[first : first + FIT]
        values = np.array([column[part] for column in columns]).T
        learn = scaler.fit if first == 0 else scaler.partial_fit  # `fit` forgets the small frame
        learn(pd.DataFrame(values, columns=names))
        least, most = np.minimum(least, values.min(axis=0)), np.maximum(most, values.max(axis=0))
    return [bool(one) for one in least == most]


def _known(transformer: Any, categories: Mapping[str, str]) -> dict[str, Any]:
    """The categories that the training rows had, by column."""
    if not categories:
        return {}
    return dict(zip(categories, transformer.named_transformers_["categories"].categories_, strict=True))


def _check_categories(party: str, levels: Mapping[str, Sequence[str]], rows: int) -> None:
    for name, texts in levels.items():
        if len(texts) > MOST_CATEGORIES:
            raise DataError(
                f"party {party!r}, column {name!r} has {len(texts)} different values in {rows} training rows; "
                f"at most {MOST_CATEGORIES} are one-hot encoded: drop it, or group its values first"
            )
