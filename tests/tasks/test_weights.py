"""Weights of rows and classes: how they are read, and what is refused by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.utils.class_weight import compute_class_weight

from colonnade.config import build
from colonnade.errors import ConfigError, DataError
from colonnade.run import Training
from colonnade.tasks import TASKS, read_labels
from colonnade.tasks.weights import class_weights, row_weights

WRONG: dict[str, tuple[Any, str]] = {
    "zero": ([1.0, 0.0, 2.0], "1 of 3 rows have others .first: row 1 has 0"),
    "negative": ([1.0, 2.0, -3.0], "row 2 has -3"),
    "NaN": ([float("nan"), 2.0, 1.0], "row 0 has nan"),
    "infinite": ([1.0, float("inf"), 1.0], "row 1 has inf"),
    "too few": ([1.0, 2.0], "each of the 3 rows; got the shape .2,."),
    "a matrix": (np.ones((3, 2)), "got the shape .3, 2."),
    "text": (["a", "b", "c"], "got <U1, e.g. .*'a'"),
    "booleans": ([True, False, True], "got bool"),
}


@pytest.mark.parametrize("what", WRONG)
def test_row_weights_that_are_no_weights_are_refused(what: str) -> None:
    given, told = WRONG[what]
    with pytest.raises(DataError, match=told):
        row_weights(given, 3)


def test_row_weights_of_rows_without_a_label_are_not_read() -> None:
    known = torch.tensor([True, False, True])
    assert row_weights([2.0, float("nan"), 3.0], 3, known).tolist() == [2.0, 1.0, 3.0]


@pytest.mark.parametrize("labels", [["no", "yes", "no", "no"], [2, 0, 1, 2], [True, False, False, False]])
def test_balanced_is_scikit_learns(labels: list[Any]) -> None:
    read = read_labels(np.asarray(labels), "multiclass" if len(set(labels)) > 2 else "binary")
    expected = compute_class_weight("balanced", classes=np.asarray(read.task.classes), y=np.asarray(labels))
    np.testing.assert_allclose(class_weights(read.task, "balanced", read.values), expected)


def test_classes_are_named_as_the_labels_are() -> None:
    for labels, given in (
        (["no", "yes", "no"], {"yes": 5.0}),
        ([0, 1, 0], {1: 5.0}),
        ([0, 1, 0], {"1": 5.0}),
        ([False, True, False], {True: 5.0}),
    ):
        read, training = read_labels(np.asarray(labels), "binary"), Training(class_weights=given)
        assert class_weights(read.task, training.class_weights, read.values).tolist() == [1.0, 5.0]


def test_an_unknown_class_is_refused_by_name() -> None:
    read = read_labels(np.asarray(["no", "yes"]), "binary")
    with pytest.raises(ConfigError, match="names 'maybe', which is none of the classes no, yes"):
        class_weights(read.task, {"maybe": 2.0}, read.values)


@pytest.mark.parametrize("name", ["multilabel", "regression", "count"])
def test_tasks_without_one_class_per_row_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="one class per row"):
        class_weights(TASKS[name](1), "balanced", torch.ones(3, 1))


@pytest.mark.parametrize("given", ["balance", {"yes": 0.0}, {"yes": -1.0}, {"yes": float("nan")}, 3])
def test_class_weights_that_are_none_are_refused(given: Any) -> None:
    with pytest.raises(ConfigError, match="class_weights"):
        build(Training, {"class_weights": given}, "training")
