"""The rows of an estimator that are not trained on."""

from __future__ import annotations

import numpy as np
import pytest

from colonnade.estimators.validation import split_rows


def test_classes_have_the_same_shares_in_both_parts() -> None:
    classes = np.repeat([0, 1, 2], [100, 60, 20])
    split = split_rows(180, classes, 0.2, seed=1)
    assert np.bincount(classes[split.validation.numpy()]).tolist() == [20, 12, 4]
    together = np.concatenate([split.train.numpy(), split.validation.numpy()])
    assert np.sort(together).tolist() == list(range(180))
    assert len(split.test) == 0


def test_a_class_of_one_row_trains() -> None:
    classes = np.array([0] * 99 + [1])
    split = split_rows(100, classes, 0.2, seed=0)
    assert 99 in split.train.tolist()
    assert len(split.validation) == 20


@pytest.mark.parametrize(("rows", "fraction"), [(63, 0.15), (500, 0.0), (9, 0.9)])
def test_fewer_than_ten_validation_rows_are_none(rows: int, fraction: float) -> None:
    split = split_rows(rows, None, fraction, seed=0)
    assert (len(split.train), len(split.validation)) == (rows, 0)


def test_another_seed_chooses_other_rows() -> None:
    chosen = [split_rows(200, None, 0.1, seed).validation.tolist() for seed in (0, 0, 1)]
    assert chosen[0] == chosen[1] != chosen[2]
