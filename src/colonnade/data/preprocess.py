"""Labels of tables as numbers; `tasks` says what they mean. Columns are the work of `data.columns`."""

from __future__ import annotations

from typing import Any

import numpy as np

from colonnade.data.frames import listed
from colonnade.data.kinds import TEXT, Levels
from colonnade.errors import DataError
from colonnade.extras import need
from colonnade.tasks import Classes, Read, Task, find_task, read_labels
from colonnade.tasks.multiclass import Multiclass


def encode_labels(target: Any, task: Task | str | None, classes: Classes = None, positive: Any = None) -> Read:
    """Labels as numbers; text classes are numbered in sorted order.

    Args:
        target: pandas.DataFrame with one label column (several for multilabel and regression tasks).
        task: what the labels are, None if it is to be guessed.
        classes: which classes there are, where some may have no row here.
        positive: of two classes the one that counts as yes.

    Raises:
        DataError: a label is empty, or the columns do not fit the task.
    """
    types = need("pandas", extra="tables", purpose="a table").api.types
    several = target.shape[1] != 1
    kind = None if task is None else find_task(task)
    if several and (kind is None or not kind.several()):
        raise DataError(
            f"needed one label column, got {target.shape[1]} ({listed(target)}); for several labels per row "
            "say task='multilabel', task='regression' or task='count'"
        )
    for column in target.columns:
        empty = int(target[column].isna().sum())
        if empty:
            raise DataError(f"label column {column!r}: {empty} of {len(target)} values are empty; drop those rows")
    values = target.infer_objects() if several else target.iloc[:, 0].infer_objects()
    if not several and isinstance(values.dtype, types.CategoricalDtype):
        values = values.astype(values.cat.categories.dtype)  # categories 2 and 10 sort as numbers, not as text
        kind = Multiclass if kind is None and values.nunique() > 2 else kind  # classes, whatever they look like
    kinds = list(values.dtypes) if several else [values.dtype]
    numbers = all(types.is_numeric_dtype(kind) or types.is_bool_dtype(kind) for kind in kinds)
    try:
        return read_labels(values.to_numpy() if numbers else _texts(values), kind, classes, positive=positive)
    except DataError as error:
        raise DataError(f"label column {listed(target)}: {error}") from None


def _texts(values: Any) -> Any:
    """(N,) or (N, K) texts; of one column without a Python text for each row."""
    if values.ndim > 1:
        return values.map(str).to_numpy(dtype=str)
    levels = Levels.of(values, TEXT)
    return np.array(levels.texts, dtype=str)[levels.codes]
