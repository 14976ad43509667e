"""From a data frame to numbers, with statistics of the training rows only.

Each party encodes its own columns, so nothing about them is shared: numeric columns are standardised,
text, categories and booleans are one-hot encoded. What is constant on the training rows carries no
information there and becomes zero everywhere, so that a surprising value in a test row cannot explode.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from colonnade.errors import DataError
from colonnade.extras import need
from colonnade.federation import Task

# One-hot columns beyond this are almost always an identifier or free text, and fill the memory.
MOST_CATEGORIES = 1000


def encode(party: str, frame: Any, train: Tensor) -> Tensor:
    """A party's columns as numbers.

    Args:
        party: whose columns, for messages.
        frame: pandas.DataFrame with text column names; one row per agreed row.
        train: the training rows, from which means, deviations and categories are taken.

    Returns:
        (N, F) float32: numeric columns first, then one column per category.

    Raises:
        DataError: a column has empty or infinite values, too many categories or an unusable type.
    """
    from sklearn.compose import ColumnTransformer  # slow to import, and only tables need it
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    frame = frame.infer_objects()  # object columns that hold only numbers are numbers
    numbers, categories = _kinds(party, frame)
    frame = frame.astype({**dict.fromkeys(numbers, np.float64), **dict.fromkeys(categories, str)})
    _check_finite(party, frame, numbers)
    rows = train.numpy()
    _check_categories(party, frame.iloc[rows], categories)
    plan = ColumnTransformer(
        [
            ("numbers", StandardScaler(), numbers),
            ("categories", OneHotEncoder(handle_unknown="ignore", sparse_output=False), categories),
        ]
    )
    values = np.asarray(plan.fit(frame.iloc[rows]).transform(frame), dtype=np.float64)  # (N, F)
    values[:, np.ptp(values[rows], axis=0) == 0] = 0
    return torch.from_numpy(values.astype(np.float32))


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


def listed(frame: Any) -> str:
    """The first column names, for messages."""
    names = [repr(str(column)) for column in frame.columns]
    return ", ".join(names[:10]) + (f", ... ({len(names)} in all)" if len(names) > 10 else "")


def _kinds(party: str, frame: Any) -> tuple[list[str], list[str]]:
    """Names of the numeric columns and of those to one-hot encode; anything else is refused."""
    types = need("pandas", extra="tables", purpose="a table").api.types
    numbers: list[str] = []
    categories: list[str] = []
    for name, kind in frame.dtypes.items():
        empty = int(frame[name].isna().sum())
        if empty:
            raise DataError(
                f"party {party!r}, column {name!r}: {empty} of {len(frame)} values are empty (NaN); "
                "fill them (fillna) or drop those rows first"
            )
        # is_string_dtype is also true of object columns that mix text and numbers
        if types.is_bool_dtype(kind) or isinstance(kind, types.CategoricalDtype) or types.is_string_dtype(kind):
            categories.append(name)
        elif types.is_numeric_dtype(kind) and not types.is_complex_dtype(kind):
            numbers.append(name)
        else:
            raise DataError(
                f"party {party!r}, column {name!r} has type {kind}; wanted numbers, text, categories or booleans; "
                "convert it (a date, for example, to days since a fixed day) or drop it"
            )
    return numbers, categories


def _check_finite(party: str, frame: Any, numbers: list[str]) -> None:
    for name in numbers:
        infinite = int(np.isinf(frame[name].to_numpy()).sum())
        if infinite:
            raise DataError(
                f"party {party!r}, column {name!r}: {infinite} of {len(frame)} values are infinite; "
                "replace them or drop those rows first"
            )


def _check_categories(party: str, frame: Any, categories: list[str]) -> None:
    for name in categories:
        distinct = int(frame[name].nunique())
        if distinct > MOST_CATEGORIES:
            raise DataError(
                f"party {party!r}, column {name!r} has {distinct} different values in {len(frame)} training rows; "
                f"at most {MOST_CATEGORIES} are one-hot encoded: drop it, or group its values first"
            )
