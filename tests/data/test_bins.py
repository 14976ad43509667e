"""Columns that are cut into bins: a plan makes the number of a row's bin of each, for old rows and new ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from colonnade.data import columns as columns_module
from colonnade.data.bins import Bins
from colonnade.data.column_settings import columns_of
from colonnade.data.columns import ColumnPlan
from colonnade.data.stored import from_bytes, to_bytes
from colonnade.errors import ColonnadeError, ConfigError, DataError
from tests.explain.shoppers import shoppers

ROWS = 160
TRAIN = torch.arange(0, ROWS, 2)


def frame() -> pd.DataFrame:
    tables = shoppers(ROWS)
    return tables["bank"].drop(columns="customer").assign(city=tables["telco"]["city"], same=1.0)


def plan(table: pd.DataFrame | None = None, **settings: Any) -> ColumnPlan:
    said = columns_of({"bins": 4, **settings} if "bank" not in settings else settings, ["bank"])["bank"]
    return ColumnPlan.fit("bank", frame() if table is None else table, TRAIN, said)


def test_a_row_becomes_the_number_of_its_bin_in_each_column() -> None:
    found = plan()
    assert found.cut and found.width == 5 and found.columns == ("income", "age", "same", "city", "since")
    codes = found.encode(frame()).numpy()
    income = frame()["income"]
    cuts = income.iloc[TRAIN.numpy()].quantile([0.25, 0.5, 0.75], interpolation="lower")
    assert codes[:, 0].tolist() == np.searchsorted(cuts.to_numpy() + 1e-4, income).tolist()
    names = {one.column: one.names for one in found.features if isinstance(one, Bins)}
    assert set(codes[frame()["age"].isna(), 1]) == {-1}, "empty values have no order"
    assert set(codes[~frame()["age"].isna(), 1]) == {0, 1, 2, 3}
    assert codes[:, 4].tolist() == frame()["city"].map({"Bonn": -2, "Kiel": -3, "Ulm": -4}).tolist()
    assert names["city"] == ("Bonn", "Kiel", "Ulm", "other", "empty") and names["same"] == ("any", "empty")
    assert found.places == {"income": (0,), "age": (1,), "same": (2,), "since": (3,), "city": (4,)}


def test_only_training_rows_decide() -> None:
    other = frame()
    other.loc[1::2, "income"] += 1000.0
    other.loc[1::2, "city"] = "Rome"
    assert plan(other) == plan()


def test_it_is_kept_and_reads_new_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    found = plan()
    again = from_bytes(to_bytes({"bank": found}))["bank"]
    assert again == found and again.agrees(found) and not again.agrees(plan(bins=3))
    assert not again.agrees(plan(bank={"bins": 4, "by_name": {"city": {"kind": "ignore"}}}))
    new = frame().sample(frac=1, random_state=2)
    monkeypatch.setattr(columns_module, "ROWS", 7)  # block by block
    assert torch.equal(again.transform(new), found.encode(frame())[new.index.tolist()])


def test_a_column_may_have_bins_of_its_own_number() -> None:
    found = plan(bank={"bins": 4, "by_name": {"income": {"bins": 10}}})
    counts = {one.column: len(one.cuts) for one in found.features if isinstance(one, Bins)}
    assert counts["income"] == 9 and counts["age"] == 3


@pytest.mark.parametrize(
    ("settings", "table", "told"),
    [
        ({"bins": 1}, None, "needed a whole number from 2 to 100"),
        ({"bank": {"bins": 4, "by_name": {"age": {"bins": 0}}}}, None, "bins = 0 for column 'age', and others are cut"),
        ({"bank": {"by_name": {"age": {"bins": 3}}}}, None, "bins = 0 for column 'income', and others are cut"),
        ({}, frame().assign(income=np.inf), "column 'income': 160 of 160 values are infinite"),
        ({}, frame()[["same"]], "no column with two bins or more"),
        ({"missing": "refuse"}, None, "column 'age': .* values are empty"),
        (
            {},
            frame().assign(city=pd.Categorical([f"c{k}" for k in range(ROWS)])),
            r"'city' is refused \(80 different values in 80 rows\)",
        ),
        ({}, frame().assign(income=[f"{k}.5" for k in range(159)] + ["much"]), "1 of 160 values is not a number"),
    ],
    ids=["one bin", "some whole", "some cut", "infinite", "nothing to tell", "empty", "an identifier", "stray text"],
)
def test_what_cannot_be_cut_is_refused(settings: dict[str, Any], table: pd.DataFrame | None, told: str) -> None:
    with pytest.raises(ColonnadeError, match=told):
        plan(table, **settings)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda t: t.assign(income="much"), "bins of numbers for it, and these values are"),
        (lambda t: t.assign(income=np.inf), "160 of 160 values are infinite"),
        (lambda t: t.assign(since=3.0), "bins of dates for it"),
        (lambda t: t.drop(columns="age"), "lacks the column 'age'"),
    ],
    ids=["text", "infinite", "no date", "missing"],
)
def test_new_tables_of_another_kind_are_refused(change: Callable[[pd.DataFrame], pd.DataFrame], told: str) -> None:
    with pytest.raises(DataError, match=told):
        plan().transform(change(frame()))


def test_levels_of_which_none_is_known_are_warned_of() -> None:
    with pytest.warns(UserWarning, match="none of 160 values has a bin of its own"):
        codes = plan().transform(frame().assign(city=frame()["city"].str.upper()))
    assert set(codes[:, 4].tolist()) == {-5.0}


def test_empty_values_are_refused_later_where_they_were_to_be() -> None:
    full = frame().assign(age=frame()["age"].fillna(50))
    strict = plan(full, missing="refuse")
    with pytest.raises(DataError, match=r"column 'age': \d+ of 160 values are empty"):
        strict.transform(frame())


def test_said_once() -> None:
    import colonnade as cn

    with pytest.raises(ConfigError, match="say bins once"):
        cn.scorecard(shoppers(ROWS), labels="churn", id="customer", release_labels=True, columns={"bins": 3})
