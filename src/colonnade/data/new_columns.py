"""Whether the columns of a new table are those of the training: refused or warned of by name."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import numpy as np

from colonnade.data.bins import Bins
from colonnade.data.dates import is_date
from colonnade.data.features import LevelFeature, NumberFeature
from colonnade.data.frames import listed, names_of
from colonnade.data.kinds import BOOLEAN, NUMBER, TEXT, check_finite, first_text, is_categorical, kind_of
from colonnade.data.said import with_columns
from colonnade.errors import DataError

if TYPE_CHECKING:
    from colonnade.data.columns import ColumnPlan

DATES = "dates"
# What a column of levels may hold later, by what it held in training; a number column only ever holds numbers.
FITTING = {NUMBER: (NUMBER, TEXT), TEXT: (TEXT,), BOOLEAN: (BOOLEAN,)}
_KEPT: ContextVar[list[str] | None] = ContextVar("kept", default=None)
_READ: ContextVar[frozenset[str]] = ContextVar("read", default=frozenset())
SEVERAL = 20  # rows; of fewer, all may have a category that training did not see
BY_CHANCE = 1e-9  # when rows have only rare categories less often than that, they are written in another way
MANY_FAR = 0.05  # share of numbers far outside those of the training that is worth a word


def check_columns(plan: ColumnPlan, frame: Any) -> Any:
    """The columns of the plan, in its order.

    Raises:
        DataError: one is missing.
    """
    ignored = {name for name, one in plan.said.items() if one.kind == "ignore"}
    beside = {*names_of(plan.id), plan.label, *plan.aside, *_READ.get()} | ignored
    given = [name for name in frame.columns if name not in beside - {*plan.columns}]
    for name in plan.columns:
        if name not in given:
            raise DataError(
                f"party {plan.party!r}: the new table lacks the column {name!r} that the model was trained with; "
                f"it has {listed(frame)}"
            )
    extra = [name for name in given if name not in plan.columns]
    if extra:
        more = f" and {len(extra) - 3} more" if len(extra) > 3 else ""
        _warn(
            f"party {plan.party!r}: the new table has columns that the model was not trained with, which are not read: "
            f"{', '.join(map(repr, extra[:3]))}{more}"
        )
    return frame[list(plan.columns)]


def check_new(plan: ColumnPlan, frame: Any) -> Any:
    """A new frame whose values are of the kinds of the training; what is doubtful is warned of.

    Raises:
        DataError: a column is of another kind, infinite, or holds nothing that training knew.
    """
    for feature in plan.features:
        if isinstance(feature, Bins):
            feature.check_new(plan.party, frame[feature.column])
            continue
        if feature.part and feature.part != "days":
            continue
        frame = _check_kind(plan, frame, feature)
        _check_empty(plan, frame, feature)
        if isinstance(feature, LevelFeature):
            _check_strangers(plan, frame, feature)
        elif not feature.part:
            check_finite(plan.party, frame, [feature.column])
            _check_far(plan, frame, feature)
    return frame


def _check_kind(plan: ColumnPlan, frame: Any, feature: NumberFeature | LevelFeature) -> Any:
    """The frame; a column without any value becomes one of the kind of the training."""
    name = feature.column
    column = frame[name]
    if feature.blank or column.isna().all():
        nothing = np.datetime64("NaT", "s") if feature.part else np.nan
        return with_columns(frame, {name: np.full(len(frame), nothing)})
    now, as_category = DATES if is_date(column) else kind_of(column), is_categorical(column)
    if feature.part:
        before, fits = DATES, now == DATES
    elif isinstance(feature, LevelFeature):
        before, fits = feature.kind, now in FITTING[feature.kind]
    else:
        before, fits = NUMBER, now == NUMBER and not as_category
    if not fits:
        found = f"{now or column.dtype}{' as categories' if as_category else ''}"
        first = first_text(column[column.notna()]) if before == NUMBER and now == TEXT else ""
        dated = before == DATES and now == TEXT
        how = " (pandas.to_datetime, with the format that they are written in)" if dated else ""
        raise DataError(
            f"party {plan.party!r}, column {name!r} had {before} in training and has {found} now{first}; give it as in "
            f"training{how}"
        )
    return frame


def _check_empty(plan: ColumnPlan, frame: Any, feature: NumberFeature | LevelFeature) -> None:
    empty, rows = int(frame[feature.column].isna().sum()), len(frame)
    told = f"party {plan.party!r}, column {feature.column!r}: {empty} of {rows} values are empty (NaN)"
    if feature.holes and not feature.refuses:
        if empty == rows >= SEVERAL and not feature.blank:
            _check_nothing(told, feature.share_of_empty, rows)
        return
    if not empty:
        return
    if feature.refuses:
        raise DataError(f"{told}; fill them (fillna) or drop those rows first")
    if empty == rows > 1:
        raise DataError(f"{told}, and training had no empty value; give it as in training")
    by = "none of the known levels" if isinstance(feature, LevelFeature) else "the median of the training"
    _warn(f"{told}, and training had no empty value; they count as {by}")


def _check_nothing(told: str, share: float | None, rows: int) -> None:
    """Refuse a column without any value where so many empty ones of the training do not explain it."""
    if share is None:
        _warn(f"{told}, and training had some values; check where the column comes from")
    elif share**rows < BY_CHANCE:
        raise DataError(f"{told}, and training had {100 * share:.2g} % empty ones; give it as in training")


def _check_strangers(plan: ColumnPlan, frame: Any, feature: LevelFeature) -> None:
    strange, rows = plan.strangers(frame, feature), len(frame)
    if not strange or feature.blank:
        return
    told = f"party {plan.party!r}, column {feature.column!r}"
    if strange == rows >= SEVERAL and feature.share_of_others**rows < BY_CHANCE:
        raise DataError(
            f"{told}: none of {rows} values is a category of the training{seldom(feature)}; write them as in training, "
            "or train again with such rows"
        )
    _warn(f"{told}: {strange} of {rows} values are categories that training {unseen(feature)}")


def seldom(feature: LevelFeature) -> str:
    """Beside a category of the training: how many rows it had, where that says something."""
    return "" if feature.other is None else f" that at least {feature.least} rows had"


def unseen(feature: LevelFeature) -> str:
    """What training did with categories that have no place of their own, and what they count as."""
    if feature.other is None:
        return "did not see; they count as 'other', none of the known ones"
    few = f"saw in fewer than {feature.least} rows or not at all" if feature.least > 1 else "saw seldom or not at all"
    return f"{few}; they count as 'other'"


def _check_far(plan: ColumnPlan, frame: Any, feature: NumberFeature) -> None:
    if feature.constant or (feature.low is None and feature.high is None):
        return
    values = frame[feature.column].to_numpy(dtype=np.float64, na_value=np.nan)
    far = feature.outside(values)
    if far.mean() > MANY_FAR:
        _warn(
            f"party {plan.party!r}, column {feature.column!r}: {int(far.sum())} of {len(values)} values are far "
            f"outside those of the training (first: {values[far][0]:g}) and count as {feature.low:g} or "
            f"{feature.high:g}; check the unit"
        )


@contextmanager
def unwarned() -> Iterator[list[str]]:
    """Inside, in this thread, nothing is warned of: the log of a process is no place for columns and their values.

    The list has what would have been said, for whoever may tell how many there are, or may name columns.
    """
    kept: list[str] = []
    before = _KEPT.set(kept)
    try:
        yield kept
    finally:
        _KEPT.reset(before)


@contextmanager
def also_read(*given: object) -> Iterator[None]:
    """Columns whose names are among what is given are read by somebody else: no word about them."""
    token = _READ.set(frozenset(one for one in given if isinstance(one, str)))
    try:
        yield
    finally:
        _READ.reset(token)


def _warn(text: str) -> None:
    if (kept := _KEPT.get()) is not None:
        kept.append(text)
    else:
        warnings.warn(text, stacklevel=2)
