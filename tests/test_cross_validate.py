"""cross_validate: every row tests once, each fold is encoded on its own, and metrics have mean and spread."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import colonnade as cn
from colonnade.data.features import NumberFeature
from colonnade.errors import ConfigError
from colonnade.privacy.accounting import exact_epsilon, shift_of
from colonnade.privacy.events import Unit
from colonnade.privacy.sampled import SampledGaussianEvent, sampled_epsilon
from colonnade.privacy.tally import tally
from tests.federations import small
from tests.trainers import TINY

NOISE = {"mechanism": "gaussian", "clip": 1.0, "sigma": 5.0}
QUICK: dict[str, Any] = {"rounds": 2, "model": TINY, "progress": False}


def tables(rows: int = 90) -> dict[str, pd.DataFrame]:
    rng = np.random.default_rng(2)
    x = rng.normal(size=(2, rows))
    bank = pd.DataFrame(
        {
            "customer": np.arange(rows),
            "income": x[0],
            "house": np.arange(rows) // 3,
            "month": rng.permutation(rows),
            "churn": np.where(x.sum(axis=0) > 0.5, "yes", "no"),
        }
    )
    return {"bank": bank, "telco": pd.DataFrame({"customer": np.arange(rows)[::-1], "minutes": x[1][::-1]})}


def less(*drop: str) -> dict[str, pd.DataFrame]:
    given = tables()
    return {**given, "bank": given["bank"].drop(columns=list(drop))}


def test_every_row_tests_once_and_metrics_have_mean_and_spread() -> None:
    federation = small()
    found = cn.cross_validate(federation, "vimadmm", folds=3, **QUICK)
    assert sum(run.about["rows"]["test"] for run in found.runs) == federation.rows
    for name, scores in found.metrics.items():
        values = [run.metrics[name]["test"] for run in found.runs]
        assert scores["folds"] == values
        known = [value for value in values if value is not None]
        assert scores["mean"] == pytest.approx(np.mean(known))
        assert scores["std"] == pytest.approx(np.std(known, ddof=1))
    assert found.score == found.metrics[found.runs[0].metric]["mean"]
    assert "3 folds" in repr(found)
    assert list(found.to_frame().columns) == ["mean", "std", "fold 1", "fold 2", "fold 3"]


def test_each_fold_of_tables_is_encoded_with_its_own_training_rows() -> None:
    given = less("house", "month")
    found = cn.cross_validate(given, "vimadmm", folds=3, labels="churn", id="customer", **QUICK)
    firsts = [run.plans["bank"].features[0] for run in found.runs]
    means = {one.center for one in firsts if isinstance(one, NumberFeature)}
    assert len(means) == 3
    split = {"folds": 3, "fold": 2}
    alone = cn.Federation.from_tables(given, labels="churn", id="customer", split=split)
    again = cn.fit(alone, "vimadmm", **QUICK)
    assert again.fingerprint() == found.runs[1].fingerprint()


def test_groups_stay_whole_and_time_goes_forward(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        grouped = cn.Federation.from_tables(
            less("month"), labels="churn", id="customer", split={"groups": "house", "folds": 3, "fold": number}
        )
        house = tables()["bank"]["house"].to_numpy()
        assert not set(house[grouped.split.test.numpy()]) & set(house[grouped.split.train.numpy()])
    found = cn.cross_validate(
        less("house"), "vimadmm", folds=2, labels="churn", id="customer", split={"time": "month"}, **QUICK
    )
    assert [run.about["rows"]["test"] for run in found.runs] == [30, 30]
    assert found.runs[0].about["rows"]["train"] < found.runs[1].about["rows"]["train"]


def test_a_saved_cross_validation_goes_on_and_repeats_nothing(tmp_path: Path) -> None:
    first = cn.cross_validate(small(), "vimadmm", folds=2, out=tmp_path / "cv", **QUICK)
    stamps = [(tmp_path / "cv" / f"fold-{k}" / "run.json").stat().st_mtime_ns for k in (1, 2)]
    again = cn.cross_validate(small(), "vimadmm", folds=2, out=tmp_path / "cv", **QUICK)
    assert [(tmp_path / "cv" / f"fold-{k}" / "run.json").stat().st_mtime_ns for k in (1, 2)] == stamps
    assert again.metrics == first.metrics
    unsaved = cn.cross_validate(small(), "vimadmm", folds=2, **QUICK)
    assert [run.fingerprint() for run in unsaved.runs] == [run.fingerprint() for run in first.runs]


def test_what_would_give_wrong_numbers_is_refused() -> None:
    joined = cn.Federation.from_tables(less("house", "month"), labels="churn", id="customer")
    with pytest.raises(ConfigError, match="encoded with statistics of its own training rows"):
        cn.cross_validate(joined, "vimadmm", **QUICK)
    with pytest.raises(ConfigError, match="folds = 1: needed a whole number, at least 2"):
        cn.cross_validate(small(), "vimadmm", folds=1, **QUICK)
    with pytest.raises(ConfigError, match="leave test, fold and folds out"):
        cn.cross_validate(small(), "vimadmm", split={"test": 0.2}, **QUICK)
    with pytest.raises(ConfigError, match="columns of tables"):
        cn.cross_validate(small(), "vimadmm", split={"groups": "house"}, **QUICK)
    with pytest.raises(ConfigError, match=r"with labels="):
        cn.cross_validate(tables(), "vimadmm", **QUICK)
    with pytest.raises(ConfigError, match="is for tables"):
        cn.cross_validate(small(), "vimadmm", labels="churn", **QUICK)
    with pytest.raises(ConfigError, match="fold = 6: needed both"):
        cn.Federation.from_tables(tables(), labels="churn", id="customer", split={"folds": 5, "fold": 6})


ROWS: dict[str, Any] = {"unit": "row", "sigma": 4.0}
AT_HOME: dict[str, Any] = {**QUICK, "model": {"encoder": "tanh", "embedding": 4}, "schedule": {"batch": 20}}


def at_home(run: cn.Run) -> SampledGaussianEvent:
    return next(entry.event for entry in run.ledger if isinstance(entry.event, SampledGaussianEvent))


def test_a_row_pays_for_the_folds_that_it_trains_in_and_a_party_for_all() -> None:
    found = cn.cross_validate(small(), "local_only", folds=3, privacy=ROWS, **AT_HOME)
    (cost,), event = found.costs, at_home(found.runs[0])
    assert at_home(found.runs[1]).rate == event.rate < 1
    twice = replace(event, steps=2 * event.steps)
    assert cost.epsilon == pytest.approx(sampled_epsilon([twice], 1e-5), rel=0.01)
    assert (cost.unit, cost.accountant, cost.delta, cost.releases) == (Unit.ROW, "PLD", 1e-5, twice.releases)
    assert found.runs[0].epsilon is not None and cost.epsilon > float(found.runs[0].epsilon)
    parties = cn.cross_validate(small(), "vimadmm_j", folds=3, privacy=NOISE, **QUICK)
    assert parties.costs[0].epsilon == pytest.approx(exact_epsilon(shift_of(5.0, 6), 1e-5))
    assert (parties.costs[0].unit, parties.costs[0].releases) == (Unit.PARTY, 6)


def test_by_time_the_earliest_rows_train_in_every_fold() -> None:
    given: dict[str, Any] = {"labels": "churn", "id": "customer", "split": {"time": "month"}, "privacy": ROWS}
    found = cn.cross_validate(less("house"), "local_only", folds=2, **given, **AT_HOME)
    both = [at_home(run) for run in found.runs]
    assert both[0].rate > both[1].rate  # of more rows
    assert found.costs[0].epsilon == pytest.approx(sampled_epsilon(both, 1e-5), rel=0.01)
    assert "A row trains in at most 2 of them" in found.together


def test_labels_pay_where_they_train_or_validate() -> None:
    labels = {"labels": {"mechanism": "alibi", "epsilon": 1.5}}
    found = cn.cross_validate(small(), "local_only", folds=3, privacy=labels, **QUICK)
    (cost,) = found.costs
    assert (cost.unit, cost.epsilon, cost.delta) == (Unit.LABEL, 3.0, 0.0)


def test_the_figure_of_all_folds_is_told_with_what_belongs_to_it() -> None:
    found = cn.cross_validate(small(), "local_only", folds=3, privacy=ROWS, **AT_HOME)
    sent = sum(dict(t.bare)["EVALUATE"] for run in found.runs for t in tally(run.ledger, "absent"))
    text = found.together
    assert text in repr(found) and f"epsilon {found.costs[0].epsilon:.4g} (PLD accountant over " in text
    assert "unit ROW, neighbours: one row added or removed" in text and "A row trains in at most 2 of them" in text
    assert f"what parties say about a row where it validates or tests ({sent} releases for EVALUATE)" in text
    assert "simulations of one seed draw the same" in text
    parties = cn.cross_validate(small(), "vimadmm_j", folds=3, privacy=NOISE, **QUICK)
    assert "What the uploads contributed was not measured" in parties.together
    assert "A row trains" not in parties.together


@pytest.mark.parametrize("method", ["vimadmm_j", "centralized"])
def test_where_nothing_is_promised_nothing_is_told(method: str) -> None:
    found = cn.cross_validate(small(), method, folds=2, **QUICK)
    assert found.costs == () and found.together == "" and "epsilon" not in repr(found)
