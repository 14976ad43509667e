"""What the columns of a data frame hold: numbers, text, booleans; what could be meant in two ways is refused."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from colonnade.errors import DataError
from colonnade.extras import need

NUMBER, TEXT, BOOLEAN = "numbers", "text", "booleans"  # what the values of a column are
DECIMAL_COMMA = r"\s*[+-]?\d{1,3}(?:\.?\d{3})*,\d+\s*|\s*[+-]?\d+,\d+\s*"


def kinds_of(party: str, frame: Any) -> tuple[list[str], dict[str, str], list[str]]:
    """Names of the columns of numbers, of levels with what they hold, and of dates; anything else is refused."""
    types = need("pandas", extra="tables", purpose="a table").api.types
    numbers: list[str] = []
    categories: dict[str, str] = {}
    dates: list[str] = []
    for name in frame.columns:
        if types.is_datetime64_any_dtype(frame[name].dtype):
            dates.append(name)
            continue
        kind, as_category = kind_of(frame[name]), is_categorical(frame[name])
        if kind is None:
            raise DataError(
                f"party {party!r}, column {name!r} has type {frame[name].dtype}; needed numbers, text, categories, "
                "booleans or dates; convert it (a duration, for example, to days) or drop it"
            )
        if kind == NUMBER and not as_category:
            numbers.append(name)
        else:
            categories[name] = kind
    return numbers, categories, dates


def is_categorical(column: Any) -> bool:
    """Whether somebody said that it holds categories."""
    types = need("pandas", extra="tables", purpose="a table").api.types
    return isinstance(column.dtype, types.CategoricalDtype)


def kind_of(column: Any) -> str | None:
    """What the values of a column are, whatever is empty; None: nothing that becomes numbers or levels."""
    types = need("pandas", extra="tables", purpose="a table").api.types
    if is_categorical(column):
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
    if found == "boolean":  # some of them empty
        return BOOLEAN
    lists = found == "mixed" and not column.map(lambda value: isinstance(value, Hashable)).all()
    return TEXT if not lists and found in ("string", "mixed", "mixed-integer", "empty") else None


def check_text(party: str, column: Any, texts: Iterable[str]) -> None:
    """Refuse text among numbers: one stray word would silently turn a number column into categories.

    Args:
        party: whose column, for messages.
        column: of levels; categories and booleans are what they are.
        texts: the different values of the column as text.
    """
    pd = need("pandas", extra="tables", purpose="a table")
    if is_categorical(column) or kind_of(column) != TEXT:
        return
    plain = isinstance(column.dtype, pd.StringDtype)
    distinct = pd.Series(list(texts) if plain else column.dropna().unique(), dtype=object)
    words = distinct.map(str).str.strip()
    distinct, words = distinct[words != ""], words[words != ""]
    comma = words.str.fullmatch(DECIMAL_COMMA)
    number = comma | pd.to_numeric(words, errors="coerce").notna()
    mixed = not plain and not distinct.map(lambda value: isinstance(value, str)).all()
    if not mixed and int(number.sum()) * 2 <= len(words):
        return
    name, column = column.name, column.dropna()
    stray = ~column.map(str).str.strip().isin(words[number])
    if comma.any():
        wrong = column.isin(distinct[comma])
        told = f"{int(wrong.sum())} of {len(column)} values are numbers with a comma{first_place(column, wrong)}"
    elif stray.any():
        wrong = int(stray.sum())
        verb = "is not a number" if wrong == 1 else "are not numbers"
        told = f"{wrong} of {len(column)} values {verb}{first_place(column, stray)}"
    else:
        told = f"all values are numbers written as text{first_place(column, ~stray)}"
    remedy = "write them with a decimal point (pandas.read_csv: decimal=',')" if comma.any() else "correct them"
    raise DataError(
        f"party {party!r}, column {name!r}: {told}; {remedy}, or say that the column holds categories: "
        f"astype('category') in Python, `categories = [{name!r}]` in a configuration file"
    )


def first_place(column: Any, where: Any) -> str:
    """The row of the first of some values; the value itself stays in the table."""
    at = int(where.to_numpy(dtype=bool).argmax())
    unnamed = type(column.index).__name__ == "RangeIndex"
    row = f"row {column.index[at]}, counted from 0" if unnamed else f"the row with id {str(column.index[at])!r}"
    return f" (first in {row})"


def first_text(column: Any) -> str:
    """The row of the first value of a column that is no number."""
    pd = need("pandas", extra="tables", purpose="a table")
    text = pd.to_numeric(column.astype(object).map(str), errors="coerce").isna()
    return first_place(column, text if text.any() else ~text)


def check_empty(party: str, frame: Any, name: str) -> None:
    """Refuse empty values."""
    empty = int(frame[name].isna().sum())
    if empty:
        raise DataError(
            f"party {party!r}, column {name!r}: {empty} of {len(frame)} values are empty (NaN); "
            "fill them (fillna) or drop those rows first"
        )


def check_finite(party: str, frame: Any, numbers: Sequence[str]) -> None:
    """Refuse infinite numbers."""
    for name in numbers:
        infinite = int(np.isinf(frame[name].to_numpy(dtype=np.float64, na_value=np.nan)).sum())
        if infinite:
            raise DataError(
                f"party {party!r}, column {name!r}: {infinite} of {len(frame)} values are infinite; "
                "replace them or drop those rows first"
            )


# -- categories ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Levels:
    """A column of categories: the texts that occur in it, and for each row which of them it has."""

    texts: tuple[str, ...]
    codes: np.ndarray[Any, Any] = field(repr=False)  # (N,) places in `texts`; -1: empty

    @classmethod
    def of(cls, column: Any, kind: str) -> Levels:
        """Categories as text; where they were numbers in training, 7, 7.0 and '7.0' are one category."""
        codes, distinct = _factorised(column)
        write = number_text if kind == NUMBER else str
        texts = [write(value) for value in distinct]
        place = {text: at for at, text in enumerate(dict.fromkeys(texts))}
        if len(place) < len(texts):
            codes = np.append([place[text] for text in texts], -1)[codes]
        return cls(tuple(place), codes)


def _factorised(column: Any) -> tuple[np.ndarray[Any, Any], Any]:
    """Which of the distinct values each row has, -1 for empty ones, and the distinct values."""
    pd = need("pandas", extra="tables", purpose="a table")
    if is_categorical(column):
        return column.cat.codes.to_numpy(), column.cat.categories
    if isinstance(column.dtype, pd.StringDtype):
        pa = need("pyarrow", extra="tables", purpose="a table")
        array = pa.array(column.array)  # of the column itself pyarrow asks first whether its index has such an entry
        found = (pa.chunked_array([array]) if isinstance(array, pa.Array) else array).dictionary_encode()
        found = found.unify_dictionaries().combine_chunks()
        found = found.chunk(0) if isinstance(found, pa.ChunkedArray) else found
        return np.asarray(found.indices.fill_null(-1)), found.dictionary.to_pylist()
    codes, distinct = pd.factorize(column)
    return codes, distinct


def number_text(value: Any) -> str:
    """A value as text, a whole number always in the same way: 7, 7.0 and '7.0' are '7'."""
    try:
        number = float(value)
    except ValueError:
        return str(value)
    return str(int(number)) if number.is_integer() and abs(number) < 2**53 else str(value)
