"""What labels mean: the task, and labels of any kind as numbers.

A task is guessed only where labels can be read in one way: two different values are yes or no, more texts are
classes, numbers with fractions are numbers. More than two whole numbers may be classes or a quantity, so that is asked.

Which of two classes counts as yes: the second of `classes`; else yes, true, 1 (against 0 or -1); else the rarer one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
import torch
from torch import Tensor

from colonnade.errors import ConfigError, DataError

YES = ("yes", "true")
PAIRS = (("0", "1"), ("-1", "1"), ("n", "y"), ("f", "t"))  # (no, yes)
AS_NAMED, BY_NAME, RARER, LAST = "as named", "by its name", "the rarer of the two", "as frequent as the other; the last"
COUNTED = (RARER, LAST)  # rules that count labels
ASK = 'say what they are: task="multiclass" (classes) or task="regression" (a number)'
OR_CLASSES = ', or say that each is a class: task="multiclass"'  # of texts: they cannot be a quantity

WHOLE_TEXT = re.compile(r"\s*[+-]?\d+\s*")
FRACTION_TEXT = re.compile(r"\s*[+-]?(?:\d+[.,]\d*|[.,]\d+)(?:[eE][+-]?\d+)?\s*")
TEXT, WHOLE, FRACTION, BOOLEAN = "text", "whole numbers", "numbers", "booleans"  # what labels may be
READ: dict[str, Callable[[str], Any]] = {TEXT: str, WHOLE: int, FRACTION: float, BOOLEAN: lambda name: name == "True"}

Array = np.ndarray[Any, Any]
Classes = int | Sequence[Any] | None  # how many, numbered from 0; or which, in their order (no, yes)


class Task(str, Enum):
    """What the labels are; decides the loss and the prox step."""

    MULTICLASS = "multiclass"  # one of K classes: (N,) integers 0..K-1
    BINARY = "binary"  # yes or no: (N,) zeros and ones, one logit
    MULTILABEL = "multilabel"  # any of K labels: (N, K) zeros and ones
    REGRESSION = "regression"  # (N, K) real numbers

    @classmethod
    def _missing_(cls, value: object) -> Task:
        raise ConfigError(f"task = {value!r}: wanted {', '.join(task.value for task in cls)}")


@dataclass(frozen=True)
class Target:
    """Labels as training reads them."""

    values: Tensor = field(repr=False)  # (N,) classes 0..K-1, or (N, K) float64; a yes/no task: (N, 1) zeros and ones
    task: Task
    outputs: int  # width of a logit row
    names: tuple[str, ...] = ()  # of the classes, (no, yes) for a yes/no task; empty: they are called 0, 1, ...
    positive: str = ""  # by which rule the second of two classes counts as yes
    kind: str = TEXT  # what the labels were, so that predictions equal them


def read_target(values: Any, task: Task | None, classes: Classes = None, known: Tensor | None = None) -> Target:
    """Labels from an array of numbers, booleans or text.

    Args:
        values: (N,), or (N, K) for several labels or numbers per row.
        task: what they are; None: to be guessed.
        classes: which classes there are, where some may have no row here.
        known: (N,) booleans, whose label is known; the others become zero. None: all.

    Raises:
        DataError: the labels do not fit the task, or could be read in two ways.
        ConfigError: `classes` does not fit the task.
    """
    raw = as_array(values)
    if raw.ndim == 2 and raw.shape[1] == 1 and task in (None, Task.MULTICLASS, Task.BINARY):
        raw = raw[:, 0]
    at = np.ones(len(raw), dtype=bool) if known is None else known.numpy()
    seen = _of_one_kind(raw[at])
    _check_finite(seen)
    task = guess(seen, classes) if task is None else task
    if classes is not None and task in (Task.MULTILABEL, Task.REGRESSION):
        raise ConfigError(f"classes = {classes!r} is for classes; a {task.value} task has none")
    if task in (Task.MULTICLASS, Task.BINARY):
        found = _multiclass(seen, classes) if task is Task.MULTICLASS else _yes_no(seen, classes)
    else:
        found = _numbers(seen, task)
    full = torch.zeros(len(raw), *found.values.shape[1:], dtype=found.values.dtype)
    full[torch.from_numpy(at)] = found.values
    return Target(full, found.task, found.outputs, found.names, found.positive, _kind(seen, found.names))


def as_labels(names: Sequence[str], kind: str) -> tuple[Any, ...]:
    """Class names as the labels were: 1 for "1" where they were numbers, so that a prediction can equal a label."""
    return tuple(map(READ[kind], names))


def _kind(seen: Array, names: Sequence[str]) -> str:
    """What labels are; text, where a class was named that is nothing of their kind."""
    numbers = WHOLE if _numeric(seen) and bool((seen == np.round(seen)).all()) else FRACTION
    kind = numbers if _numeric(seen) else BOOLEAN if seen.dtype == bool else TEXT
    try:
        return kind if [str(label) for label in as_labels(names, kind)] == list(names) else TEXT
    except ValueError:
        return TEXT


def guess(seen: Array, classes: Classes = None) -> Task:
    """The task, where labels can be read in one way; `DataError` with the ways to say it where they cannot."""
    if seen.ndim == 2:
        flags = seen.dtype == bool or (_numeric(seen) and bool(np.isin(seen, (0, 1)).all()))
        return Task.MULTILABEL if flags else Task.REGRESSION
    if classes is not None:
        return Task.BINARY if _count(classes) == 2 else Task.MULTICLASS
    distinct = np.unique(seen)
    if len(distinct) < 2:
        raise DataError(f"all {len(seen)} labels are {_text(distinct)[0]!r}; there is nothing to learn")
    if not _numeric(seen):
        _check_texts(distinct)
        return Task.BINARY if len(distinct) == 2 else Task.MULTICLASS
    if bool((distinct == np.round(distinct)).all()):
        if len(distinct) == 2:
            return Task.BINARY
        raise DataError(
            f"the labels are {len(distinct)} different whole numbers from {distinct[0]:g} to {distinct[-1]:g}, which "
            f"may be classes or a quantity; {ASK}"
        )
    if len(distinct) == 2:
        raise DataError(
            f"the labels are {distinct[0]:g} or {distinct[1]:g}, which may mean yes and no or a quantity; "
            'say what they are: task="binary" (yes or no) or task="regression" (a number)'
        )
    return Task.REGRESSION


def _check_texts(distinct: Array) -> None:
    """Refuse texts that are mostly numbers: one stray word among numbers would make each of them a class."""
    whole = [text for text in distinct.tolist() if WHOLE_TEXT.fullmatch(str(text))]
    other = [text for text in distinct.tolist() if FRACTION_TEXT.fullmatch(str(text))]
    if other and (len(whole) + len(other)) * 2 > len(distinct):
        raise DataError(f"the labels are numbers written as text (e.g. {other[0]!r}); give them as numbers{OR_CLASSES}")
    if len(distinct) > len(whole) and len(whole) * 2 > len(distinct):
        stray = next(text for text in distinct.tolist() if text not in whole)
        raise DataError(f"the labels have text among numbers (e.g. {stray!r}); correct it{OR_CLASSES}")


# -- classes ----------------------------------------------------------------------------------


def _multiclass(seen: Array, classes: Classes) -> Target:
    _check_one_column(seen, "multiclass")
    if isinstance(classes, int):
        return Target(_numbered(seen, classes), Task.MULTICLASS, classes)
    if classes is not None:
        names = _named(classes)
        return Target(_codes(seen, names), Task.MULTICLASS, len(names), names)
    distinct = np.unique(seen)
    if _numeric(seen) and not bool((distinct == np.round(distinct)).all()):
        raise DataError(
            f"class labels must be whole numbers or text; got numbers with fractions from {distinct[0]:g} to "
            f'{distinct[-1]:g}; for a number to predict say task="regression"'
        )
    if len(distinct) < 2:
        raise DataError(f"the labels have one class only ({_text(distinct)[0]!r}); there is nothing to learn")
    if len(distinct) == len(seen) and len(seen) > 2:
        raise DataError(f"every one of the {len(seen)} rows has a class of its own; is this an id, or a number?")
    names = tuple(_text(distinct))
    codes = torch.from_numpy(np.searchsorted(distinct, seen).astype(np.int64))
    plain = _numeric(seen) and names == tuple(map(str, range(len(names))))
    return Target(codes, Task.MULTICLASS, len(names), () if plain else names)


def _yes_no(seen: Array, classes: Classes) -> Target:
    if seen.ndim == 2:
        raise DataError(
            f"a yes/no task needs one label column; got {seen.shape[1]}. Choose one with `labels=`, or set "
            'task="multilabel".'
        )
    if isinstance(classes, int):
        if classes != 2:
            raise ConfigError(f"classes = {classes}: a yes/no task has 2")
        classes = ("0", "1")
    names, why = (_named(classes), AS_NAMED) if classes is not None else _no_and_yes(seen)
    if len(names) != 2:
        raise ConfigError(f"classes = {list(names)}: a yes/no task has 2, first the no and then the yes")
    codes = _codes(seen, names).to(torch.float64)[:, None]
    return Target(codes, Task.BINARY, 1, () if names == ("0", "1") and _numeric(seen) else names, why)


def _no_and_yes(seen: Array) -> tuple[tuple[str, ...], str]:
    """The two classes, the positive one second, and by which rule it is that."""
    distinct, counts = np.unique(seen, return_counts=True)
    if len(distinct) != 2:
        some = ", ".join(_text(distinct[:4])) + (", ..." if len(distinct) > 4 else "")
        raise DataError(f"a yes/no task needs two different labels; got {len(distinct)} ({some})")
    first, second = _text(distinct)
    for no, yes in ((first, second), (second, first)):
        if yes.lower() in YES or (no.lower(), yes.lower()) in PAIRS:
            return (no, yes), BY_NAME
    if counts[0] == counts[1]:
        return (first, second), LAST
    return ((first, second) if counts[1] < counts[0] else (second, first)), RARER


def _numbered(seen: Array, classes: int) -> Tensor:
    """Class numbers as they are: the data set knows how many there are."""
    if classes < 2:
        raise ConfigError(f"classes = {classes}: wanted at least 2")
    if not _numeric(seen) or bool(((seen < 0) | (seen >= classes) | (seen != np.round(seen))).any()):
        got = f"from {seen.min():g} to {seen.max():g}" if _numeric(seen) else f"as text, e.g. {str(seen[0])!r}"
        raise DataError(f"classes = {classes} wants labels that are whole numbers from 0 to {classes - 1}; got {got}")
    return torch.from_numpy(seen.astype(np.int64))


def _named(classes: Any) -> tuple[str, ...]:
    names = tuple(_text(np.asarray(list(classes)))) if not isinstance(classes, str) else ()
    if len(names) < 2 or len(set(names)) < len(names):
        raise ConfigError(f'classes = {classes!r}: wanted a number, or different names, e.g. ["no", "yes"]')
    return names


def _count(classes: int | Sequence[Any]) -> int:
    return classes if isinstance(classes, int) else len(classes)


def _codes(seen: Array, names: Sequence[str]) -> Tensor:
    """The place of every label among the names."""
    distinct, inverse = np.unique(seen, return_inverse=True)
    place = {name: number for number, name in enumerate(names)}
    strange = next((text for text in _text(distinct) if text not in place), None)
    if strange is not None:
        raise DataError(f"the label {str(strange)!r} is none of the classes {', '.join(map(repr, names))}")
    return torch.tensor([place[text] for text in _text(distinct)], dtype=torch.int64)[inverse.reshape(-1)]


# -- numbers ----------------------------------------------------------------------------------


def _numbers(seen: Array, task: Task) -> Target:
    if not _numeric(seen) and seen.dtype != bool:
        raise DataError(f"a {task.value} task wants numbers as labels; got text, e.g. {str(seen.flat[0])!r}")
    y = torch.from_numpy(seen.astype(np.float64)).reshape(len(seen), -1)
    if task is Task.MULTILABEL and not bool(((y == 0) | (y == 1)).all()):
        raise DataError(f"a multilabel task wants labels 0 and 1; got values from {y.min():g} to {y.max():g}")
    return Target(y, task, y.shape[1])


def as_array(values: Any) -> Array:
    """Labels as an array of numbers, booleans or text, (N,) or (N, K)."""
    raw: Array = values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
    if raw.ndim == 0 or len(raw) == 0:
        raise DataError("labels are empty; wanted one per row")
    if raw.ndim > 2:
        raise DataError(f"labels want the shape (rows,) or (rows, labels); got {raw.shape}")
    if raw.dtype.kind not in "biufUSO":
        raise DataError(f"labels want numbers, booleans or text; got {raw.dtype}")
    return raw


def _of_one_kind(seen: Array) -> Array:
    """Python objects as numbers or text; a mixture is refused, because 1 and "1" would be two classes, or one."""
    if seen.dtype.kind == "S":
        return seen.astype(str)
    if seen.dtype.kind != "O" or not seen.size:
        return seen
    others = [value for value in seen.flat if not isinstance(value, str)]
    if not others:
        return seen.astype(str)
    neither = [value for value in others if not isinstance(value, (int, float, np.number, np.bool_))]
    if neither or len(others) < seen.size:
        strange = [*neither, *others][0]
        raise DataError(f"labels: needed numbers, or text in every row; got {strange!r} ({type(strange).__name__})")
    return np.array(seen.tolist())


def _numeric(values: Array) -> bool:
    return values.dtype.kind in "iuf"


def _text(values: Array) -> list[str]:
    """Labels as people write them: 7, not 7.0."""
    if values.dtype.kind == "f" and bool((values == np.round(values)).all()):
        values = values.astype(np.int64)
    return [str(value) for value in values.tolist()]


def _check_one_column(seen: Array, task: str) -> None:
    if seen.ndim != 1:
        raise DataError(f"a {task} task wants labels of shape (rows,); got {seen.shape}")


def _check_finite(seen: Array) -> None:
    if not len(seen):
        raise DataError("no row has a label; at least one must")
    if seen.dtype.kind == "f" and not bool(np.isfinite(seen).all()):
        raise DataError("labels contain NaN or infinite values; drop those rows before training")
