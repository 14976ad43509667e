"""Boosted trees among the kinds that estimators choose between."""

from __future__ import annotations

import numpy as np
import pytest

from colonnade import VerticalRegressor
from colonnade.estimators import kinds
from colonnade.estimators.kinds import MANY, Circumstances, tries_of

pytest.importorskip("lightgbm")


def tried(method: str, rows: int) -> list[str]:
    return [one.kind for one in tries_of("auto", Circumstances(method, rows, 2, True))]


def test_they_are_tried_where_they_suit() -> None:
    assert "trees" in tried("vimadmm_j", MANY)
    assert "trees" not in tried("vimadmm_j", MANY - 1)
    assert "trees" not in tried("fdml", MANY)


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
