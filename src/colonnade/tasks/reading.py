"""Labels of any kind as an array of numbers, booleans or text, and the classes among them.

Which of two classes counts as yes: the second of `classes`; else yes, true, 1 (against 0 or -1); else the rarer one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from colonnade.errors import ConfigError, DataError
from colonnade.tasks.base import TEXT, Array, Classes

YES = ("yes", "true")
PAIRS = (("0", "1"), ("-1", "1"), ("n", "y"), ("f", "t"))  # (no, yes)
AS_NAMED, BY_NAME, RARER, LAST = "as named", "by its name", "the rarer of the two", "as frequent as the other; the last"
COUNTED = (RARER, LAST)  # rules that count labels
OR_CLASSES = ', or say that each is a class: task="multiclass"'  # of texts: they cannot be a quantity

WHOLE_TEXT = re.compile(r"\s*[+-]?\d+\s*")
FRACTION_TEXT = re.compile(r"\s*[+-]?(?:\d+[.,]\d*|[.,]\d+)(?:[eE][+-]?\d+)?\s*")
WHOLE, FRACTION, BOOLEAN = "whole numbers", "numbers", "booleans"  # what labels may be, besides TEXT
READ: dict[str, Callable[[str], Any]] = {TEXT: str, WHOLE: int, FRACTION: float, BOOLEAN: lambda name: name == "True"}


def as_labels(names: Sequence[str], kind: str) -> tuple[Any, ...]:
    """Class names as the labels were: 1 for "1" where they were numbers, so that a prediction can equal a label."""
    return tuple(map(READ[kind], names))


def kind_of(seen: Array, names: Sequence[str]) -> str:
    """What labels are; text, where a class was named that is nothing of their kind."""
    numbers = WHOLE if numeric(seen) and bool((seen == np.round(seen)).all()) else FRACTION
    kind = numbers if numeric(seen) else BOOLEAN if seen.dtype == bool else TEXT
    try:
        return kind if [str(label) for label in as_labels(names, kind)] == list(names) else TEXT
    except ValueError:
        return TEXT


def check_texts(distinct: Array) -> None:
    """Refuse texts that are mostly numbers: one stray word among numbers would make each of them a class."""
    whole = [text for text in distinct.tolist() if WHOLE_TEXT.fullmatch(str(text))]
    other = [text for text in distinct.tolist() if FRACTION_TEXT.fullmatch(str(text))]
    if other and (len(whole) + len(other)) * 2 > len(distinct):
        raise DataError(f"the labels are numbers written as text (e.g. {other[0]!r}); give them as numbers{OR_CLASSES}")
    if len(distinct) > len(whole) and len(whole) * 2 > len(distinct):
        stray = next(text for text in distinct.tolist() if text not in whole)
        raise DataError(f"the labels have text among numbers (e.g. {stray!r}); correct it{OR_CLASSES}")


# -- classes ----------------------------------------------------------------------------------


def no_and_yes(seen: Array) -> tuple[tuple[str, ...], str]:
    """The two classes, the positive one second, and by which rule it is that."""
    distinct, counts = np.unique(seen, return_counts=True)
    if len(distinct) != 2:
        some = ", ".join(text_of(distinct[:4])) + (", ..." if len(distinct) > 4 else "")
        raise DataError(f"a yes/no task needs two different labels; got {len(distinct)} ({some})")
    first, second = text_of(distinct)
    for no, yes in ((first, second), (second, first)):
        if yes.lower() in YES or (no.lower(), yes.lower()) in PAIRS:
            return (no, yes), BY_NAME
    if counts[0] == counts[1]:
        return (first, second), LAST
    return ((first, second) if counts[1] < counts[0] else (second, first)), RARER


def numbered(seen: Array, classes: int) -> Tensor:
    """Class numbers as they are: the data set knows how many there are."""
    if classes < 2:
        raise ConfigError(f"classes = {classes}: needed at least 2")
    if not numeric(seen) or bool(((seen < 0) | (seen >= classes) | (seen != np.round(seen))).any()):
        got = f"from {seen.min():g} to {seen.max():g}" if numeric(seen) else f"as text, e.g. {str(seen[0])!r}"
        raise DataError(f"classes = {classes} needs labels that are whole numbers from 0 to {classes - 1}; got {got}")
    return torch.from_numpy(seen.astype(np.int64))


def named(classes: Any) -> tuple[str, ...]:
    """Class names as text; refused unless they are at least two different ones."""
    names = tuple(text_of(np.asarray(list(classes)))) if not isinstance(classes, str) else ()
    if len(names) < 2 or len(set(names)) < len(names):
        raise ConfigError(f'classes = {classes!r}: needed a number, or different names, e.g. ["no", "yes"]')
    return names


def count_of(classes: int | Sequence[Any]) -> int:
    """How many classes there are."""
    return classes if isinstance(classes, int) else len(classes)


def codes_of(seen: Array, names: Sequence[str]) -> Tensor:
    """The place of every label among the names."""
    distinct, inverse = np.unique(seen, return_inverse=True)
    place = {name: number for number, name in enumerate(names)}
    strange = next((text for text in text_of(distinct) if text not in place), None)
    if strange is not None:
        raise DataError(f"the label {str(strange)!r} is none of the classes {', '.join(map(repr, names))}")
    return torch.tensor([place[text] for text in text_of(distinct)], dtype=torch.int64)[inverse.reshape(-1)]


# -- numbers ----------------------------------------------------------------------------------


def cells_of(seen: Array, words: str) -> Tensor:
    """Numbers (N, K) in float64."""
    if not numeric(seen) and seen.dtype != bool:
        raise DataError(f"a {words} task needs numbers as labels; got text, e.g. {str(seen.flat[0])!r}")
    return torch.from_numpy(seen.astype(np.float64)).reshape(len(seen), -1)


def no_classes(classes: Classes, words: str) -> None:
    """Refuse classes where there are none."""
    if classes is not None:
        raise ConfigError(f"classes = {classes!r} is for classes; a {words} task has none")


def as_array(values: Any) -> Array:
    """Labels as an array of numbers, booleans or text, (N,) or (N, K)."""
    raw: Array = values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
    if raw.ndim == 0 or len(raw) == 0:
        raise DataError("labels are empty; needed one per row")
    if raw.ndim > 2:
        raise DataError(f"labels need the shape (rows,) or (rows, labels); got {raw.shape}")
    if raw.dtype.kind not in "biufUSO":
        raise DataError(f"labels need numbers, booleans or text; got {raw.dtype}")
    return raw


def of_one_kind(seen: Array) -> Array:
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


def numeric(values: Array) -> bool:
    """Whether these are numbers; booleans are not."""
    return values.dtype.kind in "iuf"


def text_of(values: Array) -> list[str]:
    """Labels as people write them: 7, not 7.0."""
    if values.dtype.kind == "f" and bool((values == np.round(values)).all()):
        values = values.astype(np.int64)
    return [str(value) for value in values.tolist()]


def check_one_column(seen: Array, words: str) -> None:
    """Refuse several labels per row."""
    if seen.ndim != 1:
        raise DataError(f"a task with {words} needs labels of shape (rows,); got {seen.shape}")


def check_finite(seen: Array) -> None:
    """Refuse no rows at all, and numbers that are none."""
    if not len(seen):
        raise DataError("no row has a label; at least one must")
    if seen.dtype.kind == "f" and not bool(np.isfinite(seen).all()):
        raise DataError("labels contain NaN or infinite values; drop those rows before training")
