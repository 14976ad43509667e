"""Labels of tables and arrays as numbers. Columns are the work of `data.columns`."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from colonnade.data.frames import listed
from colonnade.errors import DataError
from colonnade.extras import need
from colonnade.federation import Task


def encode_labels(target: Any, task: Task | None) -> tuple[np.ndarray[Any, Any], tuple[str, ...]]:
    """Labels as numbers; text classes are numbered in sorted order.

    Args:
        target: pandas.DataFrame with one label column (several for multilabel and regression tasks).
        task: what the labels are, None if it is to be guessed.

    Returns:
        (N,) numbers, or (N, K) for several label columns; and the names of text classes in their order.

    Raises:
        DataError: a label is empty, or the columns do not fit the task.
    """
    types = need("pandas", extra="tables", purpose="a table").api.types
    several = target.shape[1] != 1
    if several and task not in (Task.MULTILABEL, Task.REGRESSION):
        raise DataError(
            f"wanted one label column, got {target.shape[1]} ({listed(target)}); for several labels per row "
            "say task='multilabel' or task='regression'"
        )
    for column in target.columns:
        empty = int(target[column].isna().sum())
        if empty:
            raise DataError(f"label column {column!r}: {empty} of {len(target)} values are empty; drop those rows")
    values = target.infer_objects() if several else target.iloc[:, 0].infer_objects()
    if not several and isinstance(values.dtype, types.CategoricalDtype):
        values = values.astype(values.cat.categories.dtype)  # categories 2 and 10 sort as numbers, not as text
    kinds = list(values.dtypes) if several else [values.dtype]
    if all(types.is_integer_dtype(kind) or types.is_bool_dtype(kind) for kind in kinds):
        return np.array(values.to_numpy(dtype=np.int64)), ()
    if all(types.is_numeric_dtype(kind) for kind in kinds):
        return np.array(values.to_numpy(dtype=np.float64)), ()
    if several or task is Task.REGRESSION:
        raise DataError(
            f"a {task.value if task else ''} task wants numbers as labels; column {listed(target)} has text"
        )
    names, numbers = np.unique(values.map(str).to_numpy(dtype=str), return_inverse=True)
    if len(names) < 2:
        raise DataError(
            f"label column {listed(target)} has one class only ({str(names[0])!r}); there is nothing to learn"
        )
    return numbers.reshape(-1), tuple(str(name) for name in names)


def number_text(labels: Any, task: Task | None, labelled: Any = None) -> tuple[Any, tuple[str, ...]]:
    """Text labels of arrays as class numbers, with the names in sorted order; other labels as they are.

    Args:
        labels: one per row; of rows that are not `labelled` anything.
        task: what the labels are, None if it is to be guessed.
        labelled: (N,) booleans, whose label is known; None: of all rows.

    Raises:
        DataError: text and something else are mixed, there is one class only, or the task needs numbers.
    """
    raw = None if isinstance(labels, Tensor) else np.asarray(labels)
    if raw is None or raw.dtype.kind not in "UO" or not raw.size:
        return labels, ()
    known = np.full(len(raw), True) if labelled is None else np.asarray(labelled, dtype=bool)
    others = [value for value in raw[known].flat if not isinstance(value, str)]
    if others:
        raise DataError(f"labels: needed numbers, or text in every row; got {others[0]!r} ({type(others[0]).__name__})")
    if raw.ndim != 1 or task in (Task.REGRESSION, Task.MULTILABEL):
        raise DataError("labels: text names one class per row; for regression and multilabel tasks give numbers")
    names, numbers = np.unique(raw[known].astype(str), return_inverse=True)
    if len(names) < 2:
        raise DataError(f"labels: there is one class only ({', '.join(map(repr, names))}); there is nothing to learn")
    full = np.zeros(len(raw), dtype=np.int64)
    full[known] = numbers.reshape(-1)
    return full, tuple(str(name) for name in names)
