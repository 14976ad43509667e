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
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from colonnade.data.frames import listed
from colonnade.errors import DataError
from colonnade.extras import need

# One-hot columns beyond this are almost always an identifier or free text, and fill the memory.
MOST_CATEGORIES = 1000
NUMBER, TEXT, BOOLEAN = "numbers", "text", "booleans"  # what the values of a column are
# What a column of categories may hold later, by what it held in training; a number column only ever holds numbers.
FITTING = {NUMBER: (NUMBER, TEXT), TEXT: (TEXT,), BOOLEAN: (BOOLEAN,)}
SAME = 1e-6  # how far statistics of the same rows may be apart on two machines, in deviations
DECIMAL_COMMA = r"\s*[+-]?\d{1,3}(?:\.?\d{3})*,\d+\s*|\s*[+-]?\d+,\d+\s*"


@dataclass(frozen=True)
class ColumnPlan:
    """How one party's columns become numbers (N, F): number columns first, then one per category."""

    party: str
    numbers: tuple[str, ...]
    categories: Mapping[str, str]  # column -> what its values are
    constant: np.ndarray[Any, Any] = field(repr=False)  # (F,) constant on the training rows: zero everywhere
    transformer: Any = field(repr=False)  # the fitted scikit-learn ColumnTransformer
    id: str | None = None  # the id column at training, which is no column of the model
    label: str | None = None  # the label column, if it was in this table
    weights: str | None = None  # the column of row weights, if it was in this table

    @classmethod
    def fit(
        cls,
        party: str,
        frame: Any,
        train: Tensor,
        *,
        id: str | None = None,
        label: str | None = None,
        weights: str | None = None,
    ) -> ColumnPlan:
        """Decide how to encode a party's columns.

        Args:
            party: whose columns, for messages.
            frame: pandas.DataFrame with text column names; one row per agreed row.
            train: the training rows, from which means, deviations and categories are taken.
            id: the id column of the party's table, for new tables.
            label: the label column, if it was in the party's table, for new tables.
            weights: the column of row weights, if it was in the party's table, for new tables.

        Raises:
            DataError: a column has empty or infinite values, too many categories, an unusable type, or text among
                numbers.
        """
        from sklearn.compose import ColumnTransformer  # slow to import, and only tables need it
        from sklearn.preprocessing import OneHotEncoder, StandardScaler

        frame = frame.infer_objects()  # object columns that hold only numbers are numbers
        numbers, categories = _kinds(party, frame)
        _check_finite(party, frame, numbers)
        part = _typed(frame.iloc[train.numpy()], numbers, categories)
        _check_categories(party, part, list(categories))
        transformer = ColumnTransformer(
            [
                ("numbers", StandardScaler(), numbers),
                ("categories", OneHotEncoder(handle_unknown="ignore", sparse_output=False), list(categories)),
            ]
        ).fit(part)
        constant = [float(np.ptp(part[name].to_numpy())) == 0 for name in numbers]
        for known in _known(transformer, categories).values():
            constant += [len(known) == 1] * len(known)
        return cls(party, tuple(numbers), categories, np.array(constant, dtype=bool), transformer, id, label, weights)

    def encode(self, frame: Any) -> Tensor:
        """(N, F) float32 of a frame that has these columns with values of these kinds."""
        typed = _typed(frame.infer_objects(), self.numbers, self.categories)
        values = np.asarray(self.transformer.transform(typed), dtype=np.float64)  # (N, F)
        values[:, self.constant] = 0
        return torch.from_numpy(values.astype(np.float32))

    def transform(self, frame: Any) -> Tensor:
        """(N, F) float32 of a new table; its columns are found by name, in any order.

        The columns of ids, labels and weights of the training may be there and are not read. Categories that training
        did not see are all zero, with a warning that names them.

        Raises:
            DataError: a column is missing, unknown, of another type than in training, has empty or infinite values,
                or in several rows no category that training saw.
        """
        frame = self._matched(frame).infer_objects()
        for name in frame.columns:
            _check_empty(self.party, frame, name)
            self._check_kind(frame, name)
        _check_finite(self.party, frame, self.numbers)
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
        given = [name for name in frame.columns if name not in {self.id, self.label, self.weights} - set(wanted)]
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
        now, as_category = _kind(frame[name]), _is_categorical(frame[name])
        if name in self.categories:
            before, fits = self.categories[name], now in FITTING[self.categories[name]]
        else:
            before, fits = NUMBER, now == NUMBER and not as_category
        if not fits:
            found = f"{now or frame[name].dtype}{' as categories' if as_category else ''}"
            raise DataError(
                f"party {self.party!r}, column {name!r} had {before} in training and has {found} now"
                f"{_first_text(frame[name]) if before == NUMBER and now != NUMBER else ''}; give it as in training"
            )

    def _check_strangers(self, frame: Any) -> None:
        for name, known in _known(self.transformer, self.categories).items():
            text = _texts(frame[name], self.categories[name])
            strange = text[~text.isin(known)]
            if len(strange) == len(text) > 1:
                raise DataError(
                    f"party {self.party!r}, column {name!r}: none of {len(text)} values is a category of the training "
                    f"(first: {strange.iloc[0]!r}; training had {', '.join(repr(str(one)) for one in known[:3])}"
                    f"{', ...' if len(known) > 3 else ''}); write them as in training"
                )
            if len(strange):
                warnings.warn(
                    f"party {self.party!r}, column {name!r}: {len(strange)} of {len(text)} values are categories that "
                    f"training did not see (first: {strange.iloc[0]!r}); they count as none of the known ones",
                    stacklevel=2,
                )


def _typed(frame: Any, numbers: Sequence[str], categories: Mapping[str, str]) -> Any:
    typed = frame[[*numbers, *categories]].astype(dict.fromkeys(numbers, np.float64))
    for name, kind in categories.items():
        typed[name] = _texts(typed[name], kind)
    return typed


def _texts(column: Any, kind: str) -> Any:
    """Categories as text; where they were numbers in training, 7, 7.0 and '7.0' are one category."""
    if kind != NUMBER:
        return column.astype(str)
    distinct = {value: _number_text(value) for value in column.unique()}
    return column.astype(object).map(distinct).astype(str)


def _number_text(value: Any) -> str:
    try:
        number = float(value)
    except ValueError:
        return str(value)
    return str(int(number)) if number.is_integer() and abs(number) < 2**53 else str(value)


def _known(transformer: Any, categories: Mapping[str, str]) -> dict[str, Any]:
    """The categories that the training rows had, by column."""
    if not categories:
        return {}
    return dict(zip(categories, transformer.named_transformers_["categories"].categories_, strict=True))


# -- what a column is ---------------------------------------------------------------------------


def _kinds(party: str, frame: Any) -> tuple[list[str], dict[str, str]]:
    """Names of the numeric columns, and those to one-hot encode with what they hold; anything else is refused."""
    numbers: list[str] = []
    categories: dict[str, str] = {}
    for name in frame.columns:
        _check_empty(party, frame, name)
        kind, as_category = _kind(frame[name]), _is_categorical(frame[name])
        if kind is None:
            raise DataError(
                f"party {party!r}, column {name!r} has type {frame[name].dtype}; needed numbers, text, categories or "
                "booleans; convert it (a date, for example, to days since a fixed day) or drop it"
            )
        if kind == TEXT and not as_category:
            _check_text(party, frame[name])
        if kind == NUMBER and not as_category:
            numbers.append(name)
        else:
            categories[name] = kind
    return numbers, categories


def _is_categorical(column: Any) -> bool:
    types = need("pandas", extra="tables", purpose="a table").api.types
    return isinstance(column.dtype, types.CategoricalDtype)


def _kind(column: Any) -> str | None:
    """What the values of a column without empty values are; None: nothing that can be encoded."""
    types = need("pandas", extra="tables", purpose="a table").api.types
    if _is_categorical(column):
        column = column.cat.categories.to_series()
    if types.is_bool_dtype(column.dtype):
        return BOOLEAN
    if types.is_numeric_dtype(column.dtype):
        return None if types.is_complex_dtype(column.dtype) else NUMBER
    if not types.is_object_dtype(column.dtype):
        return TEXT if types.is_string_dtype(column.dtype) else None
    found = types.infer_dtype(column)
    if found == "decimal":  # how a file of decimals arrives
        return NUMBER
    return TEXT if found in ("string", "mixed", "mixed-integer", "empty") else None


def _check_text(party: str, column: Any) -> None:
    """Refuse text among numbers: one stray word would silently turn a number column into categories."""
    pd = need("pandas", extra="tables", purpose="a table")
    name, distinct = column.name, pd.Series(column.unique(), dtype=object)
    words = distinct.map(str).str.strip()
    distinct, words = distinct[words != ""], words[words != ""]
    comma = words.str.fullmatch(DECIMAL_COMMA)
    number = comma | pd.to_numeric(words, errors="coerce").notna()
    mixed = not distinct.map(lambda value: isinstance(value, str)).all()
    if not mixed and int(number.sum()) * 2 <= len(words):
        return
    stray = ~column.map(str).str.strip().isin(words[number])
    if comma.any():
        wrong = column.isin(distinct[comma])
        told = f"{int(wrong.sum())} of {len(column)} values are numbers with a comma{_place(column, wrong)}"
    elif stray.any():
        told = f"{int(stray.sum())} of {len(column)} values are text among numbers{_place(column, stray)}"
    else:
        told = f"all values are numbers written as text{_place(column, ~stray)}"
    remedy = "write them with a decimal point (pandas.read_csv: decimal=',')" if comma.any() else "correct them"
    raise DataError(
        f"party {party!r}, column {name!r}: {told}; {remedy}, or say that the column holds categories: "
        f"astype('category') in Python, `categories = [{name!r}]` in a configuration file"
    )


def _place(column: Any, where: Any) -> str:
    """The first of some values, with its row."""
    at = int(where.to_numpy(dtype=bool).argmax())
    unnamed = type(column.index).__name__ == "RangeIndex"
    row = f"row {column.index[at]}, counted from 0" if unnamed else f"the row with id {column.index[at]!r}"
    return f" (first: {column.iloc[at]!r} in {row})"


def _first_text(column: Any) -> str:
    pd = need("pandas", extra="tables", purpose="a table")
    text = pd.to_numeric(column.astype(object).map(str), errors="coerce").isna()
    return _place(column, text if text.any() else ~text)


def _check_empty(party: str, frame: Any, name: str) -> None:
    empty = int(frame[name].isna().sum())
    if empty:
        raise DataError(
            f"party {party!r}, column {name!r}: {empty} of {len(frame)} values are empty (NaN); "
            "fill them (fillna) or drop those rows first"
        )


def _check_finite(party: str, frame: Any, numbers: Sequence[str]) -> None:
    for name in numbers:
        infinite = int(np.isinf(frame[name].to_numpy(dtype=np.float64)).sum())
        if infinite:
            raise DataError(
                f"party {party!r}, column {name!r}: {infinite} of {len(frame)} values are infinite; "
                "replace them or drop those rows first"
            )


def _check_categories(party: str, frame: Any, categories: Sequence[str]) -> None:
    for name in categories:
        distinct = int(frame[name].nunique())
        if distinct > MOST_CATEGORIES:
            raise DataError(
                f"party {party!r}, column {name!r} has {distinct} different values in {len(frame)} training rows; "
                f"at most {MOST_CATEGORIES} are one-hot encoded: drop it, or group its values first"
            )
