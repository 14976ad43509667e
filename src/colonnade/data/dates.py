"""Dates as parts: days since 1970 and the year are numbers, the month and the day of the week are levels.

A date is that of its own time zone: 23:30 in Berlin is not yet the next day, whatever it is in UTC.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from colonnade.data.kinds import Levels
from colonnade.errors import DataError
from colonnade.extras import need

NUMBERS = ("days", "year")
LEVELS = ("month", "weekday")
TEXTS = {
    "month": ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"),
    "weekday": ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"),
}
THURSDAY = 3  # the weekday of 1970-01-01

Values = np.ndarray[Any, Any]


def is_date(column: Any) -> bool:
    """Whether a column holds dates, with or without a time zone."""
    return bool(need("pandas", extra="tables", purpose="a table").api.types.is_datetime64_any_dtype(column.dtype))


def zone_of(column: Any) -> str | None:
    """The time zone of a column of dates; None: it has none."""
    zone = getattr(column.dtype, "tz", None)
    return None if zone is None else str(zone)


def in_zone(party: str, column: Any, zone: str | None) -> Any:
    """Dates in the time zone of the training.

    Raises:
        DataError: only one of both has a time zone, so that nobody knows which day was meant.
    """
    now = zone_of(column)
    if now == zone:
        return column
    if now is None or zone is None:
        had, has = (f"time zone {one}" if one else "no time zone" for one in (zone, now))
        raise DataError(
            f"party {party!r}, column {column.name!r} had dates with {had} in training and has {has} now; "
            "give it as in training (tz_localize, tz_convert)"
        )
    return column.dt.tz_convert(zone)


def number_part(column: Any, part: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """(N,) days since 1970-01-01, with the time of day as a fraction, or the year; NaN where the date is empty."""
    local = _local(column)
    if part == "year":
        values = local.astype("datetime64[Y]").astype(np.int64) + 1970.0
    else:
        whole = local.astype("datetime64[D]")
        values = whole.astype(np.int64) + (local - whole) / np.timedelta64(1, "D")
    return np.where(np.isnat(local), np.nan, values)


def level_part(column: Any, part: str) -> Levels:
    """The month or the day of the week of each row."""
    local = _local(column)
    if part == "month":
        codes = local.astype("datetime64[M]").astype(np.int64) % 12
    else:
        codes = (local.astype("datetime64[D]").astype(np.int64) + THURSDAY) % 7
    return Levels(TEXTS[part], np.where(np.isnat(local), -1, codes).astype(np.int16))


def _local(column: Any) -> Values:
    """(N,) datetime64 as a clock on the wall shows them."""
    if zone_of(column) is not None:
        column = column.dt.tz_localize(None)
    values: Values = column.to_numpy()
    return values
