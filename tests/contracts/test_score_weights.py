"""Scores of new rows that count differently: however weights are given, and as test rows of a training are scored."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import accuracy_score, roc_auc_score

import colonnade as cn
from colonnade.errors import DataError, RowsDisagree
from colonnade.fit import fit
from colonnade.run import Run
from tests.contracts.test_scoring_tables import joined, tables, train

FAST: dict[str, Any] = {"rounds": 3, "model": {"hidden": 6, "embedding": 4}}


@pytest.fixture(scope="module")
def run() -> Run:
    return train(joined(), rounds=40)


@pytest.fixture(scope="module")
def new() -> dict[str, pd.DataFrame]:
    bank, telco = tables(300, 2)
    return {"bank": bank, "telco": telco.sample(frac=1, random_state=3)}


@pytest.fixture(scope="module")
def heavy(new: dict[str, pd.DataFrame]) -> pd.Series:
    """A weight by id; the heaviest rows are those that say they leave."""
    leaves = new["telco"].set_index("customer")["churn"] == "leaves"
    return pd.Series(np.random.default_rng(0).uniform(0.1, 2, len(leaves)) + 3 * leaves, index=leaves.index)


def test_weights_are_those_of_scikit_learn_whatever_way_they_are_given(
    run: Run, new: dict[str, pd.DataFrame], heavy: pd.Series
) -> None:
    chances = run.model.predict_proba(new)["leaves"]
    truth = new["telco"].set_index("customer")["churn"].loc[chances.index] == "leaves"
    ordered = heavy.loc[chances.index]
    wanted = {
        "auc": roc_auc_score(truth, chances, sample_weight=ordered),
        "accuracy": accuracy_score(truth, chances > 0.5, sample_weight=ordered),
    }
    alike = run.model.score(new, "churn", ["auc", "accuracy"])
    for weights in (heavy, ordered, ordered.to_numpy(), ordered.tolist()):
        found = run.model.score(new, "churn", ["auc", "accuracy"], weights=weights)
        assert found == pytest.approx(wanted, abs=1e-6) and found != pytest.approx(alike, abs=1e-4)
    beside = {**new, "telco": new["telco"].assign(count=heavy.loc[new["telco"]["customer"]].to_numpy())}
    assert run.model.score(beside, "churn", ["auc", "accuracy"], weights="count") == pytest.approx(wanted, abs=1e-6)
    same = run.model.score(new, "churn", ["auc", "accuracy"], weights=np.full(300, 0.7))
    assert same == pytest.approx(alike, abs=1e-12)


def test_groups_are_weighed_too(run: Run, new: dict[str, pd.DataFrame], heavy: pd.Series) -> None:
    groups = np.repeat(["north", "south"], 150)
    given = {**new, "bank": new["bank"].assign(region=groups)}  # no word about it: it is read as the group
    found = run.model.score_by_group(given, "churn", "region", ["accuracy"], weights=heavy)["groups"]
    chances = run.model.predict_proba(new)["leaves"]
    truth = new["telco"].set_index("customer")["churn"].loc[chances.index] == "leaves"
    for name, rows in (("north", slice(150)), ("south", slice(150, 300))):
        part = heavy.loc[chances.index][rows]
        wanted = accuracy_score(truth[rows], chances[rows] > 0.5, sample_weight=part)
        assert found[name]["metrics"]["accuracy"]["value"] == pytest.approx(wanted, abs=1e-6)


def test_wrong_weights_are_refused_before_anything_leaves(run: Run, new: dict[str, pd.DataFrame]) -> None:
    before = len(run.ledger)
    with pytest.raises(DataError, match="weights: needed positive finite numbers; 1 of 300 rows"):
        run.model.score(new, "churn", weights=np.r_[np.ones(299), -1.0])
    with pytest.raises(RowsDisagree, match="299 labels, groups or weights and 300 rows"):
        run.model.score(new, "churn", weights=np.ones(299))
    with pytest.raises(DataError, match="no table has a column 'count'"):
        run.model.score_by_group(new, "churn", np.repeat("all", 300), weights="count")
    assert len(run.ledger) == before


def test_rows_that_trained_with_weights_are_scored_as_the_record_scores_them() -> None:
    draw = np.random.default_rng(1)
    columns = {"bank": draw.normal(size=(400, 3)), "telco": draw.normal(size=(400, 2))}
    labels = (columns["bank"][:, 0] + columns["telco"][:, 0] + draw.normal(size=400) > 0).astype(int)
    weights = draw.uniform(0.1, 5, 400)
    federation = cn.Federation.from_arrays(columns, labels, weights=weights)
    run, test = fit(federation, "vimadmm", **FAST), federation.split.test
    scores = run.model.score(federation.select(test), labels[test], weights=weights[test])
    assert scores == pytest.approx({name: found["test"] for name, found in run.metrics.items()}, abs=1e-6)
