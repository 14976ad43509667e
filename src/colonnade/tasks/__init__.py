"""What labels mean: one file per kind of label, and how labels of unknown kind are recognised.

A task is guessed only where labels can be read in one way: two different values are yes or no, more texts are
classes, numbers with fractions are numbers. More than two whole numbers may be classes or a quantity, so that is asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from colonnade.errors import ConfigError, DataError
from colonnade.plugins import Table
from colonnade.tasks.base import TEXT, Array, Classes, Read, Scaling, Task
from colonnade.tasks.binary import Binary
from colonnade.tasks.count import Count
from colonnade.tasks.multiclass import Multiclass
from colonnade.tasks.multilabel import Multilabel
from colonnade.tasks.reading import (
    as_array,
    check_finite,
    check_texts,
    count_of,
    no_and_yes,
    numeric,
    of_one_kind,
    text_of,
)
from colonnade.tasks.regression import Regression

__all__ = [
    "TASKS",
    "Classes",
    "Read",
    "Scaling",
    "Task",
    "find_task",
    "guess",
    "read_again",
    "read_labels",
    "task_about",
    "ways_to_read",
]

BUILT_IN: dict[str, type[Task]] = {
    Multiclass.name: Multiclass,
    Binary.name: Binary,
    Multilabel.name: Multilabel,
    Regression.name: Regression,
    Count.name: Count,
}


def _wrong(name: str, kind: Any) -> str:
    """What is wrong with a task of another package; empty: nothing."""
    if not isinstance(kind, type) or not issubclass(kind, Task):
        return f"needs to be a subclass of colonnade.tasks.Task; it is {kind!r}"
    lacking = sorted(kind.__abstractmethods__) + [part for part in ("words", "metric") if not hasattr(kind, part)]
    if lacking:
        return f"lacks {', '.join(lacking)}, which every task has"
    named = getattr(kind, "name", None)
    return "" if named == name else f"calls itself {named!r}; the name of its entry point must be the same"


TASKS: Table[type[Task]] = Table("colonnade.tasks", BUILT_IN, _wrong)


def find_task(name: str | Task | type[Task]) -> type[Task]:
    """The kind of label of that name; of a task, its own kind."""
    if isinstance(name, Task):
        return type(name)
    if isinstance(name, type) and issubclass(name, Task):
        return name
    if not isinstance(name, str) or name not in TASKS:
        raise ConfigError(f"task = {name!r}: needed one of {', '.join(TASKS)}")
    return TASKS[name]


def task_about(about: Mapping[str, Any]) -> Task:
    """The task of a stored run, the inverse of `Task.about`; keys that its version did not know have defaults."""
    positive: Mapping[str, str] = about.get("positive") or {}
    return find_task(about["task"])(
        about["outputs"], tuple(about.get("class_names", ())), about.get("class_kind", TEXT), positive.get("why", "")
    )


def read_labels(
    values: Any,
    task: str | Task | type[Task] | None,
    classes: Classes = None,
    known: Tensor | None = None,
    positive: Any = None,
) -> Read:
    """Labels from an array of numbers, booleans or text.

    Args:
        values: (N,), or (N, K) for several labels or numbers per row.
        task: what they are; None: to be guessed.
        classes: which classes there are, where some may have no row here.
        known: (N,) booleans, whose label is known; the others become zero. None: all.
        positive: of two classes the one that counts as yes.

    Raises:
        DataError: the labels do not fit the task, or could be read in two ways.
        ConfigError: `classes` or `positive` does not fit the task.
    """
    raw = as_array(values)
    kind = None if task is None else find_task(task)
    if raw.ndim == 2 and raw.shape[1] == 1 and (kind is None or not kind.several()):
        raw = raw[:, 0]
    at = np.ones(len(raw), dtype=bool) if known is None else known.numpy()
    seen = of_one_kind(raw[at])
    check_finite(seen)
    if positive is not None:
        kind, classes = _with_positive(seen, kind, classes, positive)
    read = (guess(seen, classes) if kind is None else kind).read(seen, classes)
    full = torch.zeros(len(raw), *read.values.shape[1:], dtype=read.values.dtype)
    full[torch.from_numpy(at)] = read.values
    return Read(full, read.task)


def read_again(values: Any, task: Task) -> Tensor:
    """Labels of other rows of a known task, as `Read.values` has them; `DataError` where they are not of it."""
    raw = as_array(values)
    seen = of_one_kind(raw[:, 0] if raw.ndim == 2 and raw.shape[1] == 1 and not task.several() else raw)
    check_finite(seen)
    again = task.again(seen)
    if task.several() and again.shape[1] != task.outputs:
        raise DataError(f"needed {task.outputs} label columns, as in training; got {again.shape[1]}")
    return again


def _with_positive(seen: Array, kind: type[Task] | None, classes: Classes, positive: Any) -> tuple[type[Task], Classes]:
    """A yes/no task whose classes are (the other, the positive one)."""
    if kind not in (None, Binary) or seen.ndim == 2:
        raise ConfigError(f"positive = {positive!r} names the yes of a yes/no task; these labels are another task")
    if classes is not None:
        raise ConfigError("give either positive or classes: the second of two classes is the positive one")
    names, _ = no_and_yes(seen)
    told = text_of(np.asarray([positive]))[0]
    if told not in names:
        raise ConfigError(f"positive = {positive!r} is none of the labels {', '.join(map(repr, names))}")
    return Binary, (names[1 - names.index(told)], told)


def ways_to_read(distinct: Array) -> tuple[type[Task], ...]:
    """What labels with these different values, in one column, may be; empty: nothing can be learned of them.

    Where there is one way, it is the one that `guess` takes; where there are several, it asks.
    """
    if len(distinct) < 2:
        return ()
    if not numeric(distinct):
        return (Binary,) if len(distinct) == 2 else (Multiclass,)
    whole = bool((distinct == np.round(distinct)).all())
    if len(distinct) == 2:
        return (Binary,) if whole else (Binary, Regression)
    if not whole:
        return (Regression,)
    return (Multiclass, Regression) if distinct.min() < 0 else (Multiclass, Count, Regression)


def guess(seen: Array, classes: Classes = None) -> type[Task]:
    """The kind, where labels can be read in one way; `DataError` with the ways to say it where they cannot."""
    if seen.ndim == 2:
        flags = seen.dtype == bool or (numeric(seen) and bool(np.isin(seen, (0, 1)).all()))
        return Multilabel if flags else Regression
    if classes is not None:
        return Binary if count_of(classes) == 2 else Multiclass
    distinct = np.unique(seen)
    if len(distinct) < 2:
        raise DataError(f"all {len(seen)} labels are {text_of(distinct)[0]!r}; there is nothing to learn")
    if not numeric(seen):
        check_texts(distinct)
        return Binary if len(distinct) == 2 else Multiclass
    if bool((distinct == np.round(distinct)).all()):
        if len(distinct) == 2:
            return Binary
        count = "" if distinct[0] < 0 else ', task="count" (how often something happened)'
        raise DataError(
            f"the labels are {len(distinct)} different whole numbers from {distinct[0]:g} to {distinct[-1]:g}, which "
            f'may be classes or a quantity; say what they are: task="multiclass" (classes){count} or '
            'task="regression" (a number)'
        )
    if len(distinct) == 2:
        raise DataError(
            f"the labels are {distinct[0]:g} or {distinct[1]:g}, which may mean yes and no or a quantity; "
            'say what they are: task="binary" (yes or no) or task="regression" (a number)'
        )
    return Regression
