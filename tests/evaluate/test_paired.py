"""The interval of a difference of two models on the same rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from colonnade.errors import DataError
from colonnade.evaluate.answers import Answers, Evaluated
from colonnade.evaluate.chance import RESAMPLES
from colonnade.evaluate.metrics import METRICS
from colonnade.evaluate.paired import independent_interval, paired_interval
from colonnade.randomness import stream
from colonnade.tasks import TASKS

BINARY = TASKS["binary"](1)
ROWS = 200


def model(seed: int, skill: float, yes: np.ndarray) -> Evaluated:
    odds = torch.from_numpy(skill * (2 * yes - 1) + np.random.default_rng(seed).normal(size=len(yes)))[:, None]
    return Evaluated(BINARY, Answers(odds, odds), torch.from_numpy(yes.astype(float))[:, None])


@pytest.fixture
def yes() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 2, ROWS)


def scores(one: Evaluated) -> np.ndarray:
    return one.answers.calibrated.numpy()[:, 0]


def test_it_is_the_bootstrap_of_both_on_the_same_rows(yes: np.ndarray) -> None:
    ours, theirs = [model(1, 1.0, yes), model(2, 1.1, yes)], [model(3, 0.4, yes)]
    drawn = stream(ROWS, "bootstrap").integers(0, ROWS, (RESAMPLES, ROWS))
    apart = []
    for rows in drawn:
        mine = np.mean([roc_auc_score(yes[rows], scores(one)[rows]) for one in ours])
        apart.append(mine - roc_auc_score(yes[rows], scores(theirs[0])[rows]))
    assert paired_interval(METRICS["auc"], ours, theirs) == pytest.approx(np.quantile(apart, [0.025, 0.975]))


def test_two_models_that_agree_have_a_narrow_interval(yes: np.ndarray) -> None:
    one = model(1, 1.0, yes)
    almost = Answers(one.answers.calibrated + 0.01, one.answers.decided + 0.01)
    other = Evaluated(BINARY, almost, one.truth)
    assert paired_interval(METRICS["auc"], [one], [one]) == (0.0, 0.0)
    paired = paired_interval(METRICS["accuracy"], [one], [other])
    assert paired is not None and paired[1] - paired[0] < 0.03
    apart = independent_interval(0.8, (0.74, 0.85), 0.8, (0.74, 0.85))
    assert apart[1] - apart[0] > 0.15


def test_ends_are_put_together_as_of_independent_scores() -> None:
    low, high = independent_interval(0.80, (0.77, 0.82), 0.70, (0.66, 0.73))
    assert (low, high) == pytest.approx((0.1 - np.hypot(0.03, 0.03), 0.1 + np.hypot(0.02, 0.04)))


def test_other_rows_are_refused(yes: np.ndarray) -> None:
    with pytest.raises(DataError, match="same test rows only"):
        paired_interval(METRICS["auc"], [model(1, 1.0, yes)], [model(1, 1.0, 1 - yes)])


def test_a_single_row_has_no_interval() -> None:
    one = model(1, 1.0, np.array([1]))
    assert paired_interval(METRICS["accuracy"], [one], [one]) is None
