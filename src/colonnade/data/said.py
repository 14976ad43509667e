"""Columns as their owner says they are: numbers written as text, categories that look like numbers, dates, codes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from colonnade.data.column_settings import OneColumn
from colonnade.data.dates import is_date, zone_of
from colonnade.data.kinds import first_place, first_text, is_categorical, number_text
from colonnade.errors import DataError
from colonnade.extras import need


def as_said(party: str, frame: Any, said: Mapping[str, OneColumn]) -> Any:
    """A frame whose columns hold what their owner says.

    Args:
        party: whose columns, for messages.
        frame: pandas.DataFrame; it is not changed.
        said: what is said of some of its columns.

    Raises:
        DataError: a value is not of the kind that was said.
    """
    frame = frame.infer_objects()  # object columns that hold only numbers are numbers
    changed = {name: _dated(frame[name]) for name in frame.columns if frame[name].dtype == object}
    for name, one in said.items():
        if name not in frame.columns or one.kind == "ignore":
            continue
        column = changed.get(name, frame[name])
        if one.empty:
            column = _emptied(column, one.empty)
        changed[name] = AS.get(one.kind, _unchanged)(party, column)
    ignored = [name for name, one in said.items() if one.kind == "ignore" and name in frame.columns]
    return with_columns(frame, changed).drop(columns=ignored)


def with_columns(frame: Any, columns: Mapping[str, Any]) -> Any:
    """A frame of its own with other values in some columns."""
    frame = frame.copy(deep=False)
    for name, values in columns.items():
        frame[name] = values
    return frame


def _dated(column: Any) -> Any:
    """Dates as Python objects, as some databases give them, become dates of pandas."""
    pd = need("pandas", extra="tables", purpose="a table")
    return pd.to_datetime(column) if pd.api.types.infer_dtype(column) == "date" else column


def _emptied(column: Any, empty: tuple[Any, ...]) -> Any:
    """A column without the values that mean an empty one, whether it or they are written as numbers or as text."""
    if is_date(column):
        pd = need("pandas", extra="tables", purpose="a table")
        local = column if zone_of(column) is None else column.dt.tz_localize(None)
        days = pd.to_datetime(pd.Series([str(value) for value in empty]), format="ISO8601", errors="coerce")
        return column.mask(local.isin(days.dropna()))
    meant = {number_text(value) for value in empty}
    if is_categorical(column):
        return column.cat.remove_categories([one for one in column.cat.categories if number_text(one) in meant])
    return column.mask(column.isin([one for one in column.dropna().unique() if number_text(one) in meant]))


def _as_numbers(party: str, column: Any) -> Any:
    pd = need("pandas", extra="tables", purpose="a table")
    if is_categorical(column):
        column = column.astype(column.cat.categories.dtype)
    if is_date(column):
        raise DataError(f"party {party!r}, column {column.name!r}: kind = 'number', and it holds dates; say 'date'")
    try:
        return pd.to_numeric(column)
    except (ValueError, TypeError):
        known = column[column.notna()]
        raise DataError(
            f"party {party!r}, column {column.name!r}: kind = 'number', and not all values are numbers"
            f"{first_text(known)}; correct them, or name those that mean a missing one in `empty`"
        ) from None


def _as_categories(party: str, column: Any) -> Any:
    return column if is_categorical(column) else column.astype("category")


def _as_dates(party: str, column: Any) -> Any:
    pd = need("pandas", extra="tables", purpose="a table")
    types = pd.api.types
    if is_date(column):
        return column
    if column.notna().any() and types.is_numeric_dtype(column.dtype):
        raise DataError(
            f"party {party!r}, column {column.name!r}: kind = 'date', and it holds numbers, which may count seconds or "
            "days since any day; write dates as YYYY-MM-DD"
        )
    texts = column.astype(object)
    try:
        dates = pd.to_datetime(texts, format="ISO8601", errors="coerce")
    except ValueError:  # pandas does not mix them
        raise DataError(
            f"party {party!r}, column {column.name!r}: kind = 'date', and its values have different time zones; write "
            "them in one"
        ) from None
    wrong = dates.isna() & column.notna()
    if wrong.any():
        raise DataError(
            f"party {party!r}, column {column.name!r}: kind = 'date', and {int(wrong.sum())} of {len(column)} values "
            f"are not written as YYYY-MM-DD{first_place(column, wrong)}; write them so"
        )
    return dates


def _unchanged(party: str, column: Any) -> Any:
    return column


AS = {"number": _as_numbers, "category": _as_categories, "date": _as_dates}
