"""Rank correlations that know ties, in plain NumPy: parties that do nothing are often equal to the last digit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]


def average_ranks(values: Sequence[float]) -> Vector:
    """Ranks from 1 (smallest); equal values share the mean of their places."""
    x = np.asarray(values, dtype=np.float64)
    below = (x[None, :] < x[:, None]).sum(axis=1)
    equal = (x[None, :] == x[:, None]).sum(axis=1)
    ranks: Vector = below + (equal + 1) / 2
    return ranks


def places(values: Sequence[float]) -> list[int]:
    """1 for the largest value, 2 for the next; of equal ones the first comes first."""
    order = np.argsort(-np.asarray(values, dtype=np.float64), kind="stable")
    found = np.empty(len(order), dtype=np.int64)
    found[order] = np.arange(1, len(order) + 1)
    return [int(place) for place in found]


def spearman(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Pearson's correlation of the average ranks; None if one side is constant."""
    a, b = average_ranks(one), average_ranks(other)
    a, b = a - a.mean(), b - b.mean()
    size = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / size if size > 0 else None


def kendall(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Kendall's tau-b: pairs in one order less pairs in two, ties taken out; None if one side is constant."""
    x, y = np.asarray(one, dtype=np.float64), np.asarray(other, dtype=np.float64)
    a, b = np.sign(x[:, None] - x[None, :]), np.sign(y[:, None] - y[None, :])
    size = float(np.sqrt((a * a).sum() * (b * b).sum()))
    return float((a * b).sum()) / size if size > 0 else None
