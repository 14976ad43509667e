"""The estimators are scikit-learn's in every respect that its own checks know, but one."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from colonnade import VerticalClassifier, VerticalCountRegressor, VerticalRegressor
from tests.estimators.customers import OWNERS, customers

# Solves are cheap, and eight of them are enough for the checks that ask for a good fit.
QUICK: dict[str, Any] = {"model": "ridge", "epochs": 8, "random_state": 0}
EXCEPTIONS = {
    "check_sample_weight_equivalence_on_dense_data": "a row of weight 2 is in one part of the split, "
    "two equal rows may be in both; batches differ, too"
}


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks(
    [VerticalClassifier(**QUICK), VerticalRegressor(**QUICK), VerticalCountRegressor(**QUICK)],
    expected_failed_checks=lambda estimator: EXCEPTIONS,
)
def test_checks_of_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)


def test_at_most_three_checks_are_excepted() -> None:
    assert len(EXCEPTIONS) <= 3


class TestSelection:
    def test_grid_search_over_two_methods(self) -> None:
        X, y = customers()
        grid = {"method": ["vimadmm_j", "fdml"], "epochs": [2, 12]}
        search = GridSearchCV(VerticalClassifier(parties=OWNERS, model="network", random_state=0), grid, cv=2)
        search.fit(X, y)
        assert {found["method"] for found in search.cv_results_["params"]} == {"vimadmm_j", "fdml"}
        assert np.isfinite(search.cv_results_["mean_test_score"]).all()
        assert search.best_estimator_.run_.method.name == search.best_params_["method"]
        assert search.score(X, y) > 0.8

    def test_cross_validation_by_auc(self) -> None:
        X, y = customers()
        scores = cross_val_score(VerticalClassifier(parties=OWNERS, **QUICK), X, y, cv=3, scoring="roc_auc")
        assert len(scores) == 3
        assert scores.min() > 0.9

    def test_a_clone_is_unfitted_and_fits_to_the_same_numbers(self) -> None:
        X, y = customers()
        first = VerticalClassifier(parties=OWNERS, settings={"rho": 0.5}, **QUICK).fit(X, y)
        again = clone(first)
        assert not hasattr(again, "run_")
        assert again.get_params() == first.get_params()
        assert again.fit(X, y).run_.fingerprint() == first.run_.fingerprint()

    def test_without_a_random_state_two_fits_differ(self) -> None:
        X, y = customers()
        quick = {**QUICK, "random_state": None}
        prints = {VerticalClassifier(parties=OWNERS, **quick).fit(X, y).run_.fingerprint() for _ in range(2)}
        assert len(prints) == 2


class TestPipeline:
    def test_names_reach_the_owners_through_a_scaler(self) -> None:
        X, y = customers()
        numbers = X.drop(columns="city")
        owners = {column: party for column, party in OWNERS.items() if column != "city"}
        pipeline = make_pipeline(StandardScaler(), VerticalClassifier(parties=owners, **QUICK))
        pipeline.set_output(transform="pandas").fit(numbers, y)
        assert pipeline.score(numbers, y) > 0.8
        assert pipeline[-1].feature_names_in_.tolist() == list(numbers.columns)
        assert pipeline[-1].parties_ == {"bank": ["income", "age"], "telco": ["minutes"]}

    def test_a_scaler_that_drops_the_names_is_refused_with_the_remedy(self) -> None:
        X, y = customers()
        pipeline = make_pipeline(StandardScaler(), VerticalClassifier(parties={"income": "bank", "age": "telco"}))
        with pytest.raises(ValueError, match=r"no column names; .*set_output\(transform='pandas'\)"):
            pipeline.fit(X[["income", "age"]], y)


def test_a_pickled_estimator_predicts_the_same() -> None:
    X, y = customers()
    first = VerticalClassifier(parties=OWNERS, **QUICK).fit(X, y)
    again = pickle.loads(pickle.dumps(first))  # noqa: S301 - an estimator may be pickled by its user
    np.testing.assert_array_equal(again.predict_proba(X), first.predict_proba(X))


def test_importing_colonnade_does_not_import_scikit_learn() -> None:
    block = "import sys, colonnade; assert not {'sklearn', 'torch'} & sys.modules.keys()"
    done = subprocess.run([sys.executable, "-c", block], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("as_frame", [False, True])
def test_the_central_reference_predicts_what_it_learned(as_frame: bool) -> None:
    """Its one model has the parties' columns in the parties' order, which need not be that of the table."""
    X = np.random.default_rng(0).normal(size=(400, 5))
    y = X @ [1, -2, 0.5, 0, 1]
    table: Any = pd.DataFrame(X, columns=list("abcde")) if as_frame else X
    owners = {"bank": ["e", "a"], "shop": ["b", "c", "d"]} if as_frame else {"bank": [4, 0], "shop": [1, 2, 3]}
    model = VerticalRegressor(parties=owners, method="centralized").fit(table[:300], y[:300])
    assert model.score(table[300:], y[300:]) > 0.9
