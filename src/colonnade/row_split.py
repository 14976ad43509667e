"""Which rows train, which choose the model, and which test it once.

A split depends on shares and a seed, and on what the label holder knows of its rows: their class (stratification), a
time (train on the past, test on the future), or a group (a household is on one side only).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor

from colonnade.config import Settings, build
from colonnade.errors import ConfigError, DataError
from colonnade.randomness import permutation

Array = np.ndarray[Any, Any]
ColumnsFrom = Literal["training", "others"]  # rows whose statistics say how columns become numbers
TRAIN, VALIDATION, TEST = 0, 1, 2
PARTS = ("train", "validation", "test")


def rows_of(columns_from: ColumnsFrom, train: Tensor, rows: int) -> Tensor:
    """The training rows, or those of all `rows` that do not train.

    Raises:
        ConfigError: it is neither, or there are fewer than two other rows.
    """
    if columns_from not in get_args(ColumnsFrom):
        raise ConfigError(f"columns_from = {columns_from!r} is not valid: needed 'training' or 'others'")
    if columns_from == "training":
        return train
    others = torch.ones(rows, dtype=torch.bool)
    others[train.cpu()] = False
    found = others.nonzero().flatten()
    if len(found) < 2:
        raise ConfigError(
            f"the scale of columns is to come from rows that do not train (privacy.unit = 'row' needs that), and there "
            f"are {len(found)}; needed at least 2 validation or test rows, or columns that are on a scale and "
            "model.scale_columns = 'never'"
        )
    return found


class SplitSettings(Settings):
    """How rows become training, validation and test rows."""

    validation: float = Field(0.1, ge=0, lt=1, description="share of the rows that choose the kept round")
    test: float = Field(0.15, ge=0, lt=1, description="share of the rows that are evaluated once, at the end")
    stratify: bool | None = Field(
        None, description="each part has every class in the same proportion; unset: where a row has one class"
    )
    time: str | None = Field(
        None, description="column beside the labels: the latest rows test, those before them validate, the past trains"
    )
    groups: str | None = Field(None, description="column beside the labels: rows of one group are all in one part")
    seed: int = Field(0, ge=0, description="of the random choice")
    folds: int | None = Field(None, ge=2, description="instead of `test`: cut the rows into so many folds,")
    fold: int | None = Field(None, ge=1, description="of which this one tests: 1, 2, ...")

    @model_validator(mode="after")
    def _possible(self) -> SplitSettings:
        if self.validation + self.test >= 1:
            raise ValueError(f"validation = {self.validation:g} and test = {self.test:g} leave no rows to train on")
        if (self.folds is None) != (self.fold is None) or (self.fold or 0) > (self.folds or 0):
            raise ValueError(
                f"folds = {self.folds} and fold = {self.fold}: needed both, e.g. folds = 5 and fold = 1 to 5"
            )
        if self.folds is not None and "test" in self.model_fields_set:
            raise ValueError(f"folds = {self.folds} says which rows test; leave test = {self.test:g} out")
        if self.time is not None and self.groups is not None:
            raise ValueError("time and groups ask for different splits; say one of them")
        if self.time is not None and self.stratify:
            raise ValueError("a split by time takes rows in their order, so stratify = true is impossible beside it")
        return self


def as_settings(given: SplitSettings | Mapping[str, Any] | None) -> SplitSettings:
    """Settings from settings by name; None: the usual ones."""
    return given if isinstance(given, SplitSettings) else build(SplitSettings, given or {}, "split")


@dataclass(frozen=True)
class Marks:
    """What a split may depend on, one value per row; None: not known, or not to be used."""

    classes: Array | None = None  # (N,) class numbers, where a row has one class
    time: Array | None = None  # (N,) numbers that rise with time
    groups: Array | None = None  # (N,) group numbers 0..G-1

    def of(self, rows: Array) -> Marks:
        """Those of some rows."""
        return Marks(*(None if one is None else one[rows] for one in (self.classes, self.time, self.groups)))


@dataclass(frozen=True)
class RowSplit:
    """Which agreed rows train, choose the model, and are touched once at the end."""

    train: Tensor = field(repr=False)
    validation: Tensor = field(repr=False)
    test: Tensor = field(repr=False)
    stratified: bool = False  # labels were counted to make it, which label privacy does not cover

    @staticmethod
    def random(rows: int, *, validation: float = 0.1, test: float = 0.15, seed: int = 0) -> RowSplit:
        """A shuffled split by fractions."""
        order = permutation(torch.arange(rows), seed, "split")
        n_test, n_val = round(test * rows), round(validation * rows)
        return RowSplit(order[n_test + n_val :], order[n_test : n_test + n_val], order[:n_test])


def random_split(complete: Tensor) -> RowSplit:
    """A random split of the complete rows; all others train."""
    return split_rows(complete, SplitSettings(), Marks())


def split_rows(complete: Tensor, settings: SplitSettings, marks: Marks) -> RowSplit:
    """A split of the complete rows (N,) booleans; all others train.

    Args:
        complete: rows that all parties hold and whose label is known.
        settings: shares, and what to split by.
        marks: of all rows; by time or groups only where all are complete, since the others train whatever theirs is.

    Raises:
        DataError: these rows cannot be split so.
    """
    if settings.folds is not None and settings.fold is not None:
        return _fold_split(complete, settings.folds, settings.fold, settings, marks)
    at = complete.nonzero().squeeze(1)
    rest = (~complete).nonzero().squeeze(1)
    known, stratify = marks.of(at.numpy()), wants_strata(settings, marks)
    if known.time is not None:
        parts = _by_time(known.time, settings)
        order = torch.arange(len(at))
    else:
        order = permutation(torch.arange(len(at)), settings.seed, "split")
        parts = _drawn(order.numpy(), settings, known, stratify)
    _check_parts(parts, settings, known)
    found = [at[order[torch.from_numpy(parts[order.numpy()] == part)]] for part in (TRAIN, VALIDATION, TEST)]
    return RowSplit(torch.cat([found[TRAIN], rest]), found[VALIDATION], found[TEST], stratify)


def wants_strata(settings: SplitSettings, marks: Marks) -> bool:
    """Whether a split counts classes; `ConfigError` where it should and there are none."""
    if settings.stratify and marks.classes is None:
        raise ConfigError("stratify = true needs labels with one class per row; leave it out for other tasks")
    return marks.classes is not None and marks.time is None and settings.stratify is not False


def _drawn(order: Array, settings: SplitSettings, marks: Marks, stratify: bool) -> Array:
    """(N,) the part of each row: rows or whole groups at random, of each class as many as its share."""
    units = np.arange(len(order)) if marks.groups is None else marks.groups
    sizes = np.bincount(units)
    drawn = order if marks.groups is None else units[order][_first_places(units[order])]
    strata = _strata(units, marks.classes) if stratify and marks.classes is not None else np.zeros(len(sizes), int)
    rows = np.bincount(strata, weights=sizes).astype(int)
    spare = 1 if stratify else 0  # every class keeps a training row
    test = _allot(rows, settings.test, np.maximum(rows - spare, 0))
    validation = _allot(rows, settings.validation, np.maximum(rows - test - spare, 0))
    parts = np.full(len(sizes), TRAIN)
    left = {TEST: test.astype(float), VALIDATION: validation.astype(float)}
    for stratum in range(len(rows)):
        mine = drawn[strata[drawn] == stratum]
        if marks.groups is None:
            parts[mine[: test[stratum]]] = TEST
            parts[mine[test[stratum] : test[stratum] + validation[stratum]]] = VALIDATION
            continue
        for unit in mine.tolist():  # a group that would overshoot by more than half of it goes on to the next part
            part = next((p for p in (TEST, VALIDATION) if left[p][stratum] >= max(sizes[unit] / 2, 0.5)), None)
            if part is not None:
                parts[unit] = part
                left[part][stratum] -= sizes[unit]
    return np.asarray(parts[units])


def _first_places(values: Array) -> Array:
    """The places where each value comes first, ascending."""
    return np.sort(np.unique(values, return_index=True)[1])


def _strata(units: Array, classes: Array) -> Array:
    """(U,) the most frequent class of each unit."""
    if bool((units == np.arange(len(units))).all()):  # each is a row
        return classes.astype(int)
    count = int(classes.max()) + 1
    pairs, times = np.unique(units.astype(np.int64) * count + classes, return_counts=True)
    by_times = np.lexsort((times, pairs // count))
    found = np.zeros(int(units.max()) + 1, dtype=int)
    found[(pairs // count)[by_times]] = (pairs % count)[by_times]  # the last one, which is the most frequent, stays
    return found


def _allot(rows: Array, share: float, most: Array) -> Array:
    """How many rows of each stratum: their share, rounded so that the sum is the share of all."""
    exact = share * rows
    given: Array = np.minimum(np.floor(exact + 1e-9).astype(int), most)
    left = round(share * int(rows.sum())) - int(given.sum())
    for stratum in np.argsort(given - exact, kind="stable")[: max(left, 0)].tolist():
        given[stratum] += int(given[stratum] < most[stratum])
    return given


def _by_time(time: Array, settings: SplitSettings) -> Array:
    """(N,) the part of each row; rows of one time are in one part."""
    moments, at = np.unique(time, return_inverse=True)
    needed = 1 + (settings.validation > 0) + (settings.test > 0)
    if len(moments) < needed:
        raise DataError(f"a split by time needs at least {needed} different times; the rows have {len(moments)}")
    after = len(time) - np.concatenate([[0], np.cumsum(np.bincount(at))])  # rows at or after each moment
    second = len(moments)
    if settings.test:
        second = _nearest(after, settings.test * len(time), 1 + (settings.validation > 0), len(moments) - 1)
    first = second
    if settings.validation:
        first = _nearest(after - after[second], settings.validation * len(time), 1, second - 1)
    found: Array = np.where(at >= second, TEST, np.where(at >= first, VALIDATION, TRAIN))
    return found


def _nearest(after: Array, wanted: float, least: int, most: int) -> int:
    """The moment from which on there are about as many rows as wanted, among some."""
    return least + int(np.argmin(np.abs(after[least : most + 1] - wanted)))


def _check_parts(parts: Array, settings: SplitSettings, marks: Marks) -> None:
    """Refuse a part that was asked for and has no rows."""
    asked = settings.model_fields_set
    by = f"whole groups (there are {len(np.unique(marks.groups))})" if marks.groups is not None else ""
    for part, share in ((TRAIN, 1.0), (VALIDATION, settings.validation), (TEST, settings.test)):
        said = part == TRAIN or by or PARTS[part] in asked
        if share and said and len(parts) and not bool((parts == part).any()):
            told = "" if part == TRAIN else f" = {share:g}"
            raise DataError(
                f"the split leaves no {PARTS[part]} rows: {PARTS[part]}{told} of {len(parts)} rows"
                f"{' in ' + by if by else ''} is none; choose other shares, or bring more rows"
            )


# -- folds ------------------------------------------------------------------------------------


def fold_splits(complete: Tensor, count: int, settings: SplitSettings, marks: Marks) -> Iterator[RowSplit]:
    """Splits whose test rows are different: every row tests once, by time every row but the earliest.

    In each, a share of the other rows validates (`settings.validation`; `settings.test` is not read).

    Raises:
        ConfigError: fewer than two folds.
        DataError: there are too few rows, groups or times, or some are not complete.
    """
    if isinstance(count, bool) or not isinstance(count, int) or count < 2:
        raise ConfigError(f"folds = {count!r}: needed a whole number, at least 2")
    for number in range(1, count + 1):
        yield _fold_split(complete, count, number, settings, marks)


def _fold_split(complete: Tensor, count: int, number: int, settings: SplitSettings, marks: Marks) -> RowSplit:
    if not bool(complete.all()):
        raise DataError("folds need rows that all parties hold and that have a label (keep='all')")
    at, stratify = np.arange(len(complete)), wants_strata(settings, marks)
    fold = _time_folds(marks.time, count) if marks.time is not None else _folds(count, settings, marks, stratify, at)
    rest = at[fold < number - 1] if marks.time is not None else at[fold != number - 1]
    inner = settings.model_copy(update={"test": 0.0, "folds": None, "fold": None})
    part = split_rows(torch.ones(len(rest), dtype=torch.bool), inner, marks.of(rest))
    rows, test = torch.from_numpy(rest), torch.from_numpy(at[fold == number - 1])
    return RowSplit(rows[part.train], rows[part.validation], test, stratify)


def _folds(count: int, settings: SplitSettings, marks: Marks, stratify: bool, at: Array) -> Array:
    """(N,) the fold of each row: of each class alike, groups whole."""
    units = at if marks.groups is None else np.unique(marks.groups, return_inverse=True)[1]
    sizes = np.bincount(units, minlength=0)
    if len(sizes) < count:
        what = "rows" if marks.groups is None else "groups"
        raise DataError(f"{count} folds need at least {count} {what}; there are {len(sizes)}")
    strata = _strata(units, marks.classes) if stratify and marks.classes is not None else np.zeros(len(sizes), int)
    order = permutation(torch.arange(len(sizes)), settings.seed, "folds").numpy()
    order = order[np.argsort(strata[order], kind="stable")]  # class by class
    found = np.empty(len(sizes), dtype=int)
    if marks.groups is None:
        found[order] = np.arange(len(order)) % count
        return found
    totals, mine = np.zeros(count), np.zeros((int(strata.max()) + 1, count))
    order = order[np.lexsort((-sizes[order], strata[order]))]  # large groups first
    for unit in order.tolist():
        fold = int(np.lexsort((totals, mine[strata[unit]]))[0])
        found[unit] = fold
        totals[fold] += sizes[unit]
        mine[strata[unit], fold] += sizes[unit]
    return np.asarray(found[units])


def _time_folds(time: Array, count: int) -> Array:
    """(N,) blocks in the order of time, rows of one time together; -1: the earliest, which only trains."""
    moments, at = np.unique(time, return_inverse=True)
    if len(moments) <= count:
        raise DataError(f"{count} folds by time need more than {count} different times; the rows have {len(moments)}")
    before = np.concatenate([[0], np.cumsum(np.bincount(at))])[:-1]  # rows before each moment
    block = np.minimum(before * (count + 1) // len(time), count)
    if len(np.unique(block)) <= count:
        raise DataError(f"{count} folds by time are impossible: too many rows have one time; choose fewer folds")
    return np.asarray(block[at] - 1)


def check_split(split: RowSplit, rows: int) -> None:
    """Refuse rows that do not exist, rows in two parts, and no training rows."""
    for part in PARTS:
        index: Tensor = getattr(split, part)
        if len(index) and (int(index.min()) < 0 or int(index.max()) >= rows):
            raise DataError(f"the {part} split names row {int(index.max())} but there are {rows} rows")
    everything = torch.cat([split.train, split.validation, split.test])
    if len(everything) and int(torch.bincount(everything).max()) > 1:
        raise DataError("train, validation and test rows overlap; a row may be in one of them only")
    if not len(split.train):
        raise DataError("the split leaves no training rows")
