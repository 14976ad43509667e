"""Boosted trees among the kinds that estimators choose between."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from colonnade import VerticalClassifier, VerticalRegressor
from colonnade.estimators import kinds
from colonnade.estimators.kinds import MANY, Circumstances, tries_of
from colonnade.methods import OneMessage

pytest.importorskip("lightgbm")


def tried(method: str, rows: int) -> list[str]:
    return [one.kind for one in tries_of("auto", Circumstances(method, rows, 2, True))]


def test_they_are_tried_where_they_suit() -> None:
    assert "trees" in tried("vimadmm_j", MANY)
    assert "trees" not in tried("vimadmm_j", MANY - 1)
    assert "trees" not in tried("fdml", MANY)


def test_one_message_tries_them_too() -> None:
    assert tried("one_message", MANY) == ["network", "trees", "linear"]


@pytest.mark.parametrize("model", ["trees", "network", "linear", {"encoder": "ridge"}])
def test_what_learns_once_has_one_pass_and_the_steps_of_its_own(model: Any) -> None:
    """A network of ten steps, which others take in each of many rounds, has hardly learned anything."""
    (one,) = tries_of(model, Circumstances("one_message", 300, 2, True))
    assert (one.batch, one.epochs, one.settings) == (300, 1, {})


def test_one_message_in_an_estimator_is_the_training_that_it_is_outside() -> None:
    X = np.random.default_rng(0).normal(size=(400, 4))
    y = (np.abs(X[:, 0]) > np.abs(X[:, 3])).astype(int)
    known = slice(0, 300)
    for model in ("network", "trees"):
        fitted = VerticalClassifier(method="one_message", parties=2, model=model, random_state=0).fit(
            X[known], y[known]
        )
        assert fitted.run_.result["rounds"] == 1 and fitted.run_.method == OneMessage()
        assert fitted.score(X[300:], y[300:]) > 0.75


@pytest.mark.filterwarnings("error::colonnade.errors.ShortTraining")
def test_a_method_whose_rounds_are_about_all_rows_is_given_no_smaller_batch() -> None:
    """It came with advice to leave out a batch that nobody had set, and with a round for each of its pieces."""
    X = np.random.default_rng(0).normal(size=(300, 4))
    fitted = VerticalClassifier(method="assisted_boosting", parties=2, model="network", epochs=2, random_state=0).fit(
        X, (X[:, 0] > X[:, 3]).astype(int)
    )
    assert fitted.run_.training.rounds == 2 and fitted.run_.training.schedule.batch == 255


def test_they_are_not_tried_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinds, "find_spec", lambda name: None)
    assert "trees" not in tried("vimadmm_j", MANY)


def test_the_recipe() -> None:
    for classes, rho in ((True, 0.25), (False, 1.0)):
        (one,) = tries_of("trees", Circumstances("vimadmm_j", 300, 3, classes))
        assert (one.batch, one.model) == (300, {"encoder": "trees"})
        assert one.settings == {"damping": 1 / 3, "rho": rho, "local_steps": 10}


def test_they_are_chosen_where_columns_bend() -> None:
    X = np.random.default_rng(0).normal(size=(400, 4))
    y = np.abs(X[:, 0]) - X[:, 3] ** 2
    fitted = VerticalRegressor(parties=2, model=["ridge", "trees"], epochs=8, random_state=0).fit(X[:300], y[:300])
    assert fitted.chosen_ == "trees"
    assert fitted.score(X[300:], y[300:]) > 0.6
