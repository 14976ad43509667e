"""assisted_boosting written out with NumPy, SciPy and LightGBM, all rows and columns in one place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import lightgbm
import numpy as np
from scipy.optimize import minimize

from colonnade.federation import Federation

Array = np.ndarray[Any, Any]
LEAF = 5  # rows of a leaf at least


@dataclass(frozen=True)
class Loss:
    """One kind of labels, in NumPy: mean, curvature and loss of outputs (B, K)."""

    base: Callable[[Array], Array]
    mean: Callable[[Array], Array]
    curvature: Callable[[Array], Array]
    loss: Callable[[Array, Array], Array]  # (B,)


def sigmoid(o: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-o)))


def softmax(o: Array) -> Array:
    e = np.exp(o - o.max(axis=1, keepdims=True))
    return np.asarray(e / e.sum(axis=1, keepdims=True))


def logistic(o: Array, y: Array) -> Array:
    return (np.logaddexp(0, o) - y * o).sum(axis=1)


FLAGS = Loss(lambda p: np.log(p / (1 - p)), sigmoid, lambda o: sigmoid(o) * (1 - sigmoid(o)), logistic)
LOSSES = {
    "binary": FLAGS,
    "multilabel": FLAGS,
    "multiclass": Loss(
        np.log,
        softmax,
        lambda o: softmax(o) * (1 - softmax(o)) * o.shape[1] / (o.shape[1] - 1),
        lambda o, y: np.log(np.exp(o).sum(axis=1)) - (y * o).sum(axis=1),
    ),
    "regression": Loss(lambda m: m, lambda o: o, np.ones_like, lambda o, y: ((o - y) ** 2).sum(axis=1) / 2),
    "count": Loss(np.log, np.exp, lambda o: 1.5 * np.exp(o), lambda o, y: (np.exp(o) - y * o).sum(axis=1)),
}


def targets_of(whole: Federation) -> tuple[Array, Array, Array]:
    """Targets (N, K) of all rows as training sees them, and how to scale outputs back."""
    y, train = whole.labels.numpy(), whole.split.train.numpy()
    if whole.task.name == "multiclass":
        return np.eye(3)[y], np.zeros(3), np.ones(3)
    if whole.task.name == "regression":
        shift, scale = y[train].mean(axis=0), y[train].std(axis=0)
        return (y - shift) / scale, shift, scale
    if whole.task.name == "count":
        mean = y[train].mean(axis=0)
        return y / mean, np.log(mean), np.ones(1)
    return y.astype(float), np.zeros(y.shape[1]), np.ones(y.shape[1])


def three_trees(x: Array, v: Array, h: Array, train: Array) -> Array:
    """What three new trees for v with weights h say about all rows."""
    parameters = {
        "objective": "regression", "boost_from_average": False, "learning_rate": 0.1, "num_leaves": 15,
        "lambda_l2": 1.0, "min_data_in_leaf": min(LEAF, max(3, len(train) // 40)), "feature_pre_filter": False,
        "verbosity": -1, "num_threads": 1, "deterministic": True, "force_row_wise": True,
    }  # fmt: skip
    said = []
    for k in range(v.shape[1]):
        data = lightgbm.Dataset(x[train], v[train, k], weight=h[train, k], params=parameters)
        said.append(lightgbm.train(parameters, data, 3).predict(x))
    return np.stack(said, axis=1)


def seven_digits(step: float) -> float:
    """A number from 0 to 1 with seven binary digits, by trying all that there are near it."""
    power = 0
    while 0 < step * 2**power < 0.5:
        power += 1
    return float(min(np.arange(129) / 128, key=lambda near: (abs(near - step * 2**power), near))) / 2**power


def written_out(whole: Federation, rounds: int, weights: Array | None = None) -> Array:
    """Outputs (N, K) after so many rounds, all rows in one place, on the scale of the labels."""
    loss, (y, shift, scale) = LOSSES[whole.task.name], targets_of(whole)
    train, validation = whole.split.train.numpy(), whole.split.validation.numpy()
    choosing, w = validation[::2], np.ones(len(y)) if weights is None else weights / weights[train].mean()
    total = np.tile(loss.base(np.average(y[train], axis=0, weights=w[train])), (len(y), 1))
    for _ in range(rounds):
        h = np.maximum(loss.curvature(total), 0.05)
        v = (y - loss.mean(total)) / h
        moves = [three_trees(party.columns.numpy(), v, w[:, None] * h, train) for party in whole.parties]

        def lost(a: Array, total: Array = total, moves: list[Array] = moves) -> float:
            there = total + sum(step * move for step, move in zip(a, moves, strict=True))
            return float((w[choosing] * loss.loss(there[choosing], y[choosing])).sum())

        start, box = np.full(len(moves), 1 / len(moves)), [(0.0, 1.0)] * len(moves)
        steps = minimize(lost, start, bounds=box, method="L-BFGS-B", options={"ftol": 1e-15, "gtol": 1e-10}).x
        total = total + 0.5 * sum(seven_digits(step) * move for step, move in zip(steps, moves, strict=True))
    return total * scale + shift
