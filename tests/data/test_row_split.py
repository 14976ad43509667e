"""Which rows train, validate and test: shares, classes, time, groups, folds, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.model_selection import StratifiedKFold, TimeSeriesSplit, train_test_split

from colonnade import Federation, RowSplit, fit
from colonnade.config import build
from colonnade.errors import ConfigError, DataError
from colonnade.job import load_data, read_job
from colonnade.row_split import Marks, SplitSettings, check_split, fold_splits, random_split, split_rows

labels = st.lists(st.integers(0, 3), min_size=8, max_size=120)
shares = st.floats(0.15, 0.45)


def everything(rows: int) -> torch.Tensor:
    return torch.ones(rows, dtype=torch.bool)


def parts_of(split: RowSplit) -> list[list[int]]:
    return [split.train.tolist(), split.validation.tolist(), split.test.tolist()]


@given(st.integers(1, 500))
def test_without_marks_it_is_the_random_split_of_before(rows: int) -> None:
    assert parts_of(random_split(everything(rows))) == parts_of(RowSplit.random(rows))


@settings(max_examples=60, deadline=None)
@given(labels, shares, shares, st.integers(0, 5))
def test_a_stratified_split_has_every_class_in_proportion(
    classes: list[int], validation: float, test: float, seed: int
) -> None:
    y = np.array(classes)
    asked = SplitSettings(validation=validation, test=test, seed=seed)
    split = split_rows(everything(len(y)), asked, Marks(classes=y))
    check_split(split, len(y))
    assert split.stratified
    assert sorted(row for part in parts_of(split) for row in part) == list(range(len(y)))
    assert abs(len(split.test) - test * len(y)) <= 1 + len(set(classes)) * (min(np.bincount(y)[np.unique(y)]) < 8)
    for c in np.unique(y):
        count = int((y == c).sum())
        assert (y[split.train.numpy()] == c).any()  # also of a class with a single row
        assert abs(int((y[split.test.numpy()] == c).sum()) - test * count) <= 1
        assert abs(int((y[split.validation.numpy()] == c).sum()) - validation * count) <= 1.001


def test_it_has_as_many_rows_of_each_class_as_that_of_scikit_learn() -> None:
    y = np.repeat([0, 1, 2], [700, 250, 50])
    split = split_rows(everything(len(y)), SplitSettings(validation=0.0, test=0.25), Marks(classes=y))
    train, test = train_test_split(np.arange(len(y)), test_size=0.25, stratify=y, random_state=0)
    assert np.bincount(y[split.test.numpy()]).tolist() == pytest.approx(np.bincount(y[test]).tolist(), abs=1)
    assert len(split.train) == len(train)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 30), min_size=20, max_size=100), shares, shares)
def test_a_split_by_time_tests_the_future(times: list[int], validation: float, test: float) -> None:
    time = np.array(times)
    asked = SplitSettings(validation=validation, test=test, time="month")
    if len(np.unique(time)) < 3:
        with pytest.raises(DataError, match="needs at least 3 different times"):
            split_rows(everything(len(time)), asked, Marks(time=time))
        return
    split = split_rows(everything(len(time)), asked, Marks(time=time, classes=time % 2))
    train, middle, last = (time[np.array(part)] for part in parts_of(split))
    assert train.max() < middle.min() and middle.max() < last.min()
    assert not split.stratified


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 12), min_size=30, max_size=120), st.booleans(), st.integers(0, 3))
def test_a_group_is_on_one_side_only(households: list[int], stratify: bool, seed: int) -> None:
    groups = np.unique(households, return_inverse=True)[1]
    asked = SplitSettings(validation=0.2, test=0.3, groups="household", stratify=stratify, seed=seed)
    try:
        split = split_rows(everything(len(groups)), asked, Marks(groups=groups, classes=groups % 2))
    except DataError as error:
        assert "whole groups" in str(error)
        return
    sides = [set(groups[np.array(part)]) for part in parts_of(split)]
    assert not sides[0] & sides[1] and not sides[0] & sides[2] and not sides[1] & sides[2]
    assert sorted(row for part in parts_of(split) for row in part) == list(range(len(groups)))


def test_many_groups_have_the_shares_that_were_asked_for() -> None:
    groups = np.repeat(np.arange(500), np.random.default_rng(0).integers(1, 6, 500))
    y = np.random.default_rng(1).integers(0, 2, 500)[groups]
    split = split_rows(everything(len(groups)), SplitSettings(test=0.25, groups="g"), Marks(groups=groups, classes=y))
    assert len(split.test) / len(groups) == pytest.approx(0.25, abs=0.01)
    assert len(split.validation) / len(groups) == pytest.approx(0.1, abs=0.01)
    assert y[split.test.numpy()].mean() == pytest.approx(y.mean(), abs=0.01)
    sizes = np.bincount(groups)
    assert sizes[groups[split.test.numpy()]].mean() == pytest.approx(
        sizes[groups].mean(), rel=0.1
    )  # no small ones only


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"validation": 0.6, "test": 0.5}, "leave no rows to train on"),
        ({"time": "month", "groups": "household"}, "say one of them"),
        ({"time": "month", "stratify": True}, "impossible"),
        ({"test": 1.5}, "less than 1"),
        ({"tset": 0.2}, "did you mean 'test'"),
    ],
)
def test_impossible_settings_are_refused_in_one_sentence(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        build(SplitSettings, given, "split")
    assert "\n" not in str(caught.value)


def test_parts_that_were_asked_for_and_would_be_empty_are_refused() -> None:
    with pytest.raises(DataError, match=r"the split leaves no test rows: test = 0.1 of 3 rows is none"):
        split_rows(everything(3), SplitSettings(test=0.1), Marks())
    with pytest.raises(DataError, match=r"leaves no .* rows: .* in whole groups \(there are 2\)"):
        split_rows(everything(10), SplitSettings(groups="g"), Marks(groups=np.arange(10) // 5))
    with pytest.raises(ConfigError, match="one class per row"):
        split_rows(everything(10), SplitSettings(stratify=True), Marks())


# -- folds ------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(labels, st.integers(2, 5))
def test_folds_test_every_row_once_and_are_as_even_as_those_of_scikit_learn(classes: list[int], count: int) -> None:
    y = np.array(classes)
    splits = list(fold_splits(everything(len(y)), count, SplitSettings(), Marks(classes=y)))
    assert sorted(row for split in splits for row in split.test.tolist()) == list(range(len(y)))
    for split in splits:
        check_split(split, len(y))
        assert len(split.train) + len(split.validation) + len(split.test) == len(y)
        for c in np.unique(y):
            assert abs((y[split.test.numpy()] == c).sum() - (y == c).sum() / count) < 1
    if min(np.bincount(y)[np.unique(y)]) >= count:
        theirs = [len(test) for _, test in StratifiedKFold(count).split(y, y)]
        assert max(theirs) - min(theirs) >= max(len(s.test) for s in splits) - min(len(s.test) for s in splits)


def test_folds_by_time_are_those_of_scikit_learn_where_times_differ() -> None:
    time = np.random.default_rng(0).permutation(60)
    splits = list(fold_splits(everything(60), 5, SplitSettings(validation=0.2), Marks(time=time)))
    order = np.argsort(time)
    for split, (train, test) in zip(splits, TimeSeriesSplit(5).split(order), strict=True):
        assert set(split.test.tolist()) == set(order[test])
        assert set(split.train.tolist()) | set(split.validation.tolist()) == set(order[train])
        assert time[split.train.numpy()].max() < time[split.validation.numpy()].min()


def test_folds_keep_groups_whole() -> None:
    groups = np.repeat(np.arange(30), np.random.default_rng(0).integers(1, 9, 30))
    splits = list(fold_splits(everything(len(groups)), 3, SplitSettings(), Marks(groups=groups)))
    for split in splits:
        sides = [set(groups[np.array(part)]) for part in parts_of(split)]
        assert not sides[0] & sides[1] and not sides[0] & sides[2] and not sides[1] & sides[2]
    sizes = [len(split.test) for split in splits]
    assert max(sizes) - min(sizes) <= 2
    with pytest.raises(DataError, match="40 folds need at least 40 groups; there are 30"):
        list(fold_splits(everything(len(groups)), 40, SplitSettings(), Marks(groups=groups)))


# -- tables -----------------------------------------------------------------------------------


def customers(count: int = 200) -> dict[str, pd.DataFrame]:
    rng = np.random.default_rng(4)
    bank = pd.DataFrame(
        {
            "customer": np.arange(count),
            "income": rng.normal(size=count),
            "household": rng.integers(0, 60, count),
            "since": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, count), unit="D"),
            "churn": np.where(rng.random(count) < 0.1, "yes", "no"),
        }
    )
    telco = pd.DataFrame({"customer": np.arange(count)[::-1], "minutes": rng.normal(size=count)})
    return {"bank": bank, "telco": telco}


def joined(tables: dict[str, pd.DataFrame], drop: list[str], **options: Any) -> Federation:
    less = {**tables, "bank": tables["bank"].drop(columns=drop)}
    return Federation.from_tables(less, labels="churn", id="customer", **options)


def test_tables_are_split_in_proportion_to_the_classes_unless_said_otherwise() -> None:
    tables = customers()
    federation = joined(tables, ["household", "since"])
    yes = federation.labels[:, 0]
    share = float(yes.mean())
    assert federation.split.stratified
    for rows in (federation.split.train, federation.split.validation, federation.split.test):
        assert abs(float(yes[rows].sum()) - share * len(rows)) <= 1
    plain = joined(tables, ["household", "since"], split={"stratify": False})
    assert not plain.split.stratified
    assert parts_of(plain.split) == parts_of(RowSplit.random(200))


def test_columns_to_split_by_are_no_columns_of_the_model_and_may_stand_in_new_tables() -> None:
    tables = customers()
    federation = joined(tables, ["since"], split={"groups": "household", "test": 0.2})
    assert federation.parties[0].columns.shape[1] == 1
    house = tables["bank"]["household"].to_numpy()
    assert not set(house[federation.split.train.numpy()]) & set(house[federation.split.test.numpy()])
    run = fit(federation, "vimadmm", rounds=1)
    new = {**tables, "bank": tables["bank"].drop(columns="since")}
    assert len(run.predict(new)) == 200
    by_time = joined(tables, ["household"], split={"time": "since"})
    since = tables["bank"]["since"].to_numpy()
    assert since[by_time.split.train.numpy()].max() < since[by_time.split.test.numpy()].min()


@pytest.mark.parametrize(
    ("change", "split", "words"),
    [
        ({"since": "soon"}, {"time": "since"}, "needed dates or numbers"),
        ({"since": pd.NaT}, {"time": "since"}, "200 of 200 values are empty"),
        ({"household": np.nan}, {"groups": "household"}, "200 of 200 values are empty"),
        ({}, {"groups": "flat"}, "has no column 'flat' of groups"),
    ],
)
def test_columns_that_cannot_split_are_refused_by_name(
    change: dict[str, Any], split: dict[str, Any], words: str
) -> None:
    tables = customers()
    tables["bank"] = tables["bank"].assign(**change)
    with pytest.raises(DataError, match=words):
        joined(tables, [name for name in ("household", "since") if name not in split.values()], split=split)


def test_a_split_that_counted_labels_is_refused_beside_label_privacy() -> None:
    private = {"labels": {"mechanism": "alibi", "epsilon": 2.0}}
    federation = joined(customers(), ["household", "since"], classes=["no", "yes"])
    with pytest.raises(ConfigError, match=r"split in proportion to the classes.*split=\{'stratify': False\}"):
        fit(federation, "vimadmm", rounds=1, privacy=private)
    plain = joined(customers(), ["household", "since"], classes=["no", "yes"], split={"stratify": False})
    assert fit(plain, "vimadmm", rounds=1, privacy=private).result["rounds"] == 1


def test_a_configuration_file_says_how_to_split(tmp_path: Any) -> None:
    for name, table in customers().items():
        table.drop(columns=["since"], errors="ignore").to_csv(tmp_path / f"{name}.csv", index=False)
    files = {name: str(tmp_path / f"{name}.csv") for name in ("bank", "telco")}
    data = {"tables": files, "labels": "churn", "id": "customer", "split": {"groups": "household", "test": 0.3}}
    job = read_job({"data": data, "training": {"rounds": 1}})
    federation = job.federation()
    assert federation.split.stratified and len(federation.split.test) == pytest.approx(60, abs=4)
    run = job.fit(federation)
    assert parts_of(load_data(data, run.about).split) == parts_of(federation.split)
    del run.about["stratified"]  # as in runs of earlier versions
    plain = {**data, "split": {"test": 0.3}, "tables": files}
    assert not load_data(plain, run.about).split.stratified
    private = {"labels": {"mechanism": "alibi", "epsilon": 2.0}}
    assert not read_job({"data": data, "privacy": private}).federation().split.stratified
