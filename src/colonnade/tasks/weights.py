"""Weights of rows and classes: how much a row's loss counts.

    weight of a row = the label holder's number for it x the weight of its class, with mean 1 over the training rows

Weights of classes change training only; weights of rows also weigh validation and test rows in every metric.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from colonnade.errors import ConfigError, DataError
from colonnade.tasks.base import Task
from colonnade.tasks.reading import text_of

BALANCED: Literal["balanced"] = "balanced"
ClassWeights = Literal["balanced"] | Mapping[str, float]  # rows of every class count the same together, or by class


def row_weights(values: Any, rows: int, known: Tensor | None = None) -> Tensor:
    """Weights (N,) in float64; `DataError` unless they are positive finite numbers, one per row.

    Args:
        values: one number per row; those of rows without a label are not read, and become 1.
        rows: how many there are.
        known: (N,) whose label is known; None: of all rows.
    """
    raw = values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
    if raw.shape == (rows, 1):
        raw = raw[:, 0]
    if raw.shape != (rows,):
        raise DataError(f"weights: needed one number for each of the {rows} rows; got the shape {raw.shape}")
    try:
        numbers = torch.from_numpy(raw.astype(np.float64)) if raw.dtype.kind in "iufO" else None
    except (TypeError, ValueError):
        numbers = None
    if numbers is None:
        raise DataError(f"weights: needed positive numbers, one per row; got {raw.dtype}, e.g. {raw.flat[0]!r}")
    if known is not None:
        numbers = torch.where(known, numbers, 1.0)
    bad = (~(torch.isfinite(numbers) & (numbers > 0))).nonzero().flatten()
    if len(bad):
        raise DataError(
            f"weights: needed positive finite numbers; {len(bad)} of {rows} rows have others (first: row "
            f"{int(bad[0])} has {float(numbers[bad[0]]):g}); leave such rows out"
        )
    return numbers


def class_weights(task: Task, given: ClassWeights, truth: Tensor) -> Tensor:
    """Weights (C,) of the classes in their order; 1 for those that are not named.

    Args:
        task: what kind of labels; `ConfigError` unless each row has one class.
        given: "balanced" (rows / (classes x rows of the class)), or numbers by class.
        truth: labels of the training rows, which only "balanced" counts.
    """
    check_classes(task)
    names = text_of(np.asarray(task.classes))
    if isinstance(given, str):  # balanced
        counts = task.by_class(task.expand(truth, torch.float64)).sum(dim=0)
        return torch.where(counts > 0, len(truth) / (len(names) * counts.clamp(min=1)), 1.0)
    strange = next((name for name in given if name not in names), None)
    if strange is not None:
        raise ConfigError(f"class_weights names {strange!r}, which is none of the classes {', '.join(names)}")
    return torch.tensor([float(given.get(name, 1.0)) for name in names], dtype=torch.float64)


def class_text(name: Any) -> str:
    """The name of a class as settings have it: "1" for 1 and 1.0."""
    return text_of(np.asarray([name]))[0] if isinstance(name, (bool, int, float, np.number, np.bool_)) else str(name)


def check_classes(task: Task) -> None:
    """Refuse weights of classes where a row has not one class."""
    if not task.one_class:
        raise ConfigError(
            f"class_weights are for tasks with one class per row; a {task.words} task has none: give weights of the "
            "rows instead (weights=...)"
        )
