"""New raw tables: columns are found by name, rows by id, and whatever could be read wrongly is refused by name."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import skops.io
import torch
from sklearn.decomposition import PCA
from sklearn.preprocessing import FunctionTransformer

from colonnade.data.column_settings import PartyColumns
from colonnade.data.columns import ColumnPlan
from colonnade.data.new_rows import read_new_rows
from colonnade.data.stored import from_bytes, to_bytes
from colonnade.errors import ConfigError, DataError, DoubtfulData, MissingData, RowsDisagree
from colonnade.federation import Federation

ROWS = 40


def bank(rows: int = ROWS) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "customer": range(100, 100 + rows),
            "income": rng.normal(50_000, 9_000, rows),
            "age": rng.integers(18, 80, rows),
            "flat": 3.0,
            "city": rng.choice(["Ulm", "Bonn", "Jena"], rows),
            "owner": rng.choice([True, False], rows),
            "churn": rng.choice(["no", "yes"], rows),
        }
    )


def telco(rows: int = ROWS) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    return pd.DataFrame(
        {
            "subscriber": range(100, 100 + rows),
            "minutes": rng.gamma(2.0, 30.0, rows),
            "plan": pd.Categorical(rng.choice([1, 2, 30], rows)),
        }
    )


@pytest.fixture(scope="module")
def federation() -> Federation:
    id = {"bank": "customer", "telco": "subscriber"}
    return Federation.from_tables({"bank": bank(), "telco": telco()}, labels="churn", id=id)


def slowly(federation: Federation) -> np.ndarray:
    """The bank's columns by hand, one after the other: statistics of the training rows, in plain NumPy."""
    frame, train = bank(), federation.split.train.numpy()
    columns = []
    for name in ("income", "age"):
        x = frame[name].to_numpy(float)
        columns.append((x - x[train].mean()) / x[train].std())
    columns.append(np.zeros(len(frame)))  # flat is constant
    columns += [(frame["city"] == city).to_numpy(float) for city in ("Bonn", "Jena", "Ulm")]
    columns += [(frame["owner"] == owner).to_numpy(float) for owner in (False, True)]
    return np.stack(columns, axis=1)


def test_new_rows_are_encoded_as_in_training(federation: Federation) -> None:
    rows = read_new_rows(federation.plans, {"bank": bank(), "telco": telco()})
    for party in federation.parties:
        assert torch.equal(rows.columns[party.name], party.columns)
    np.testing.assert_allclose(rows.columns["bank"].numpy(), slowly(federation), atol=1e-6)


def test_files_are_read_as_the_frames_are(federation: Federation, tmp_path: Path) -> None:
    """Among them a category that looks like a number in a file."""
    files = {"bank": tmp_path / "bank.csv", "telco": str(tmp_path / "telco.csv")}
    bank().to_csv(files["bank"], index=False)
    telco().iloc[::-1].to_csv(files["telco"], index=False)
    rows = read_new_rows(federation.plans, files)
    for party in federation.parties:
        assert torch.allclose(rows.columns[party.name], party.columns)


def test_columns_and_rows_may_come_in_any_order(federation: Federation) -> None:
    mixed = bank()[["churn", "city", "flat", "age", "owner", "customer", "income"]].sample(frac=1, random_state=3)
    rows = read_new_rows(federation.plans, {"bank": mixed, "telco": telco().sample(frac=1, random_state=4)})
    place = mixed["customer"].to_numpy() - 100
    for party in federation.parties:
        assert torch.equal(rows.columns[party.name], party.columns[place])
    assert rows.index.tolist() == mixed["customer"].tolist()  # the first table's order, and its ids as they came
    assert rows.index.name == "customer"


def test_the_order_of_the_first_table_given_is_kept(federation: Federation) -> None:
    rows = read_new_rows(federation.plans, {"telco": telco().iloc[::-1], "bank": bank()})
    assert rows.index.tolist() == telco()["subscriber"].tolist()[::-1]
    assert list(rows.columns) == ["bank", "telco"]


def test_without_ids_rows_meet_by_position(federation: Federation) -> None:
    tables = {"bank": bank().drop(columns=["customer", "churn"]), "telco": telco().drop(columns="subscriber")}
    rows = read_new_rows(federation.plans, tables)
    assert torch.equal(rows.columns["telco"], federation.parties[1].columns)
    assert rows.index.tolist() == list(range(ROWS))


def test_another_id_column_and_an_index_with_its_name(federation: Federation) -> None:
    renamed = bank().rename(columns={"customer": "key"})
    tables = {"bank": renamed.iloc[::-1], "telco": telco().set_index("subscriber")}
    rows = read_new_rows(federation.plans, tables, id={"bank": "key", "telco": "subscriber"})
    assert torch.equal(rows.columns["telco"], federation.parties[1].columns.flip(0))


def test_parties_whose_id_is_not_named_keep_that_of_the_training(federation: Federation) -> None:
    renamed = bank().rename(columns={"customer": "key"})
    rows = read_new_rows(federation.plans, {"bank": renamed, "telco": telco().iloc[::-1]}, id={"bank": "key"})
    assert torch.equal(rows.columns["telco"], federation.parties[1].columns)
    alone = read_new_rows(federation.plans, {"bank": renamed}, id={"bank": "key"}, some=True)
    assert list(alone.columns) == ["bank"] and alone.index.tolist() == renamed["key"].tolist()
    with pytest.raises(ConfigError, match="id names a column for 'tellco', who has no table"):
        read_new_rows(federation.plans, {"bank": renamed, "telco": telco()}, id={"tellco": "key"})


def test_frames_of_other_kinds(federation: Federation) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    plans = federation.only(["bank"]).plans
    expected = federation.parties[0].columns
    for table in (pyarrow.table(bank()), bank().to_dict("list")):
        assert torch.equal(read_new_rows(plans, {"bank": table}).columns["bank"], expected)


def test_categories_of_numbers_fit_however_they_are_written(federation: Federation) -> None:
    plans, expected = federation.only(["telco"]).plans, federation.parties[1].columns
    for kind in (int, str, "category"):
        written = telco().astype({"plan": int}).astype({"plan": kind})
        assert torch.equal(read_new_rows(plans, {"telco": written}).columns["telco"], expected)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda t: t.drop(columns="age"), "party 'bank': the new table lacks the column 'age'.*it has 'income'"),
        (lambda t: t.set_axis(range(len(t.columns)), axis=1), "party 'bank' has no id column 'customer'"),
        (
            lambda t: t.drop(columns=["customer", "churn"]).set_axis(range(5), axis=1),
            "party 'bank' has no id column 'customer', and party 'telco' has one",
        ),
        (
            lambda t: t.astype({"age": object}).replace({"age": {t["age"][2]: "old"}}),
            "party 'bank', column 'age' had numbers in training and has text now \\(first in the row with id",
        ),
        (lambda t: t.astype({"age": str}), "column 'age' had numbers in training and has text now"),
        (lambda t: t.astype({"age": "category"}), "'age' had numbers in training and has numbers as categories now"),
        (lambda t: t.assign(city=3), "column 'city' had text in training and has numbers now"),
        (lambda t: t.assign(owner="yes"), "column 'owner' had booleans in training and has text now"),
        (lambda t: t.assign(age=np.nan), "party 'bank', column 'age': 40 of 40 values are empty.*training had no"),
        (lambda t: t.assign(city=None), "party 'bank', column 'city': 40 of 40 values are empty.*training had no"),
        (lambda t: t.assign(income=np.inf), "party 'bank', column 'income': 40 of 40 values are infinite"),
        (lambda t: t.to_numpy(), "party 'bank': got ndarray without column names, which could be raw or encoded"),
        (lambda t: torch.zeros(40, 8), "party 'bank': got Tensor without column names"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_by_party_and_column(federation: Federation, change, says) -> None:
    with pytest.raises(DataError, match=says):
        read_new_rows(federation.plans, {"bank": change(bank()), "telco": telco()})


def test_tables_that_do_not_match_each_other(federation: Federation) -> None:
    plans = federation.plans
    with pytest.raises(RowsDisagree, match=r"'bank' and 'telco' differ \(1 only in 'bank', for example '139'\); give"):
        read_new_rows(plans, {"bank": bank(), "telco": telco().iloc[:-1]})
    zeros = telco().assign(subscriber=[f"0{k}" for k in telco()["subscriber"]])
    sides = r"\(40 only in 'bank', for example '100'; 40 only in 'telco', .*\); 40 ids .* differ only in leading zeros"
    with pytest.raises(RowsDisagree, match=sides):
        read_new_rows(plans, {"bank": bank(), "telco": zeros})
    for name in ("new.csv", Path("new.csv")):
        with pytest.raises(MissingData, match=r"table file 'new.csv' does not exist; check the path"):
            read_new_rows(plans, {"bank": bank(), "telco": name})
    with pytest.raises(DataError, match=r"2 ids occur more than once"):
        read_new_rows(plans, {"bank": bank(), "telco": pd.concat([telco(), telco().iloc[:2]])})
    with pytest.raises(RowsDisagree, match=r"different numbers of rows \(bank: 40 rows, telco: 39 rows\)"):
        tables = {"bank": bank().drop(columns="customer"), "telco": telco().drop(columns="subscriber").iloc[1:]}
        read_new_rows(plans, tables)
    with pytest.raises(DataError, match=r"\(bank, telco\); missing 'telco'; unknown 'shop'$"):
        read_new_rows(plans, {"bank": bank(), "shop": telco()})
    with pytest.raises(DataError, match=r"new tables must be given by party name.*got list"):
        read_new_rows(plans, [bank(), telco()])


def test_ids_that_are_written_differently_are_told_where_rows_may_lack(federation: Federation) -> None:
    zeros = telco().assign(subscriber=[f"0{k}" if k < 103 else str(k) for k in telco()["subscriber"]])
    with pytest.warns(
        DoubtfulData, match="3 ids of 'bank' and 'telco' differ only in leading zeros, and count as diff"
    ):
        rows = read_new_rows(federation.plans, {"bank": bank(), "telco": zeros}, some=True)
    assert len(rows) == ROWS + 3
    assert len(read_new_rows(federation.plans, {"bank": bank(), "telco": telco().iloc[3:]}, some=True)) == ROWS


def test_a_column_of_unknown_categories_only_is_refused(federation: Federation) -> None:
    plan, new = federation.plans["bank"], bank()
    new["city"] = new["city"].str.upper()
    says = r"party 'bank', column 'city': none of 40 values is a category of the training; write them"
    with pytest.raises(DataError, match=says):
        plan.transform(new)
    with pytest.warns(UserWarning, match="1 of 1 values are categories that training did not see"):
        assert not plan.transform(new.iloc[:1])[0, 3:6].any()  # one row may well be the first of its city


def test_a_column_without_any_value_is_refused_where_training_had_few_empty_ones() -> None:
    table = pd.DataFrame(
        {"income": np.arange(100.0), "city": ["Ulm", "Bonn"] * 50, "hired": pd.Timestamp("2020-01-01")}
    )
    table["hired"] += pd.to_timedelta(np.arange(100), unit="D")
    nothing = {"income": np.nan, "city": None, "hired": pd.NaT}
    for name, empty in nothing.items():
        few, many = table.copy(), table.copy()
        few.loc[:4, name] = empty
        many.loc[5:, name] = empty
        plan = ColumnPlan.fit("bank", few, torch.arange(100))
        says = f"column {name!r}: 30 of 30 values are empty.*training had 5 % empty ones; give it as in training"
        with pytest.raises(DataError, match=says):
            plan.transform(table[:30].assign(**{name: empty}))
        assert len(plan.transform(table[:5].assign(**{name: empty}))) == 5  # five rows may well be such
        usual = ColumnPlan.fit("bank", many, torch.arange(100))
        assert len(usual.transform(table[:30].assign(**{name: empty}))) == 30  # nearly all were
        settings = PartyColumns(missing="fill")
        with pytest.warns(UserWarning, match=f"column {name!r}: 30 of 30 .* training had some values"):
            ColumnPlan.fit("bank", few, torch.arange(100), settings).transform(table[:30].assign(**{name: empty}))


def test_unknown_categories_count_as_none_and_are_named(federation: Federation) -> None:
    plan, new = federation.plans["bank"], bank()
    new.loc[[3, 5], "city"] = ["Rom", "Ulm"]
    new.loc[7, "city"] = "Oslo"
    with pytest.warns(
        UserWarning, match="party 'bank', column 'city': 2 of 40 values .* did not see; they count as 'other'"
    ):
        encoded = plan.transform(new)
    assert not encoded[3, 3:6].any()
    assert encoded[5, 3:6].any()


# -- the file -------------------------------------------------------------------------------------


def test_plans_come_back_from_their_file(federation: Federation) -> None:
    back = from_bytes(to_bytes(federation.plans))
    assert list(back) == ["bank", "telco"]
    for party, old in federation.plans.items():
        new, table = back[party], bank() if party == "bank" else telco()
        assert (new.party, new.numbers, new.categories, new.id, new.label) == (
            old.party, old.numbers, old.categories, old.id, old.label,
        )  # fmt: skip
        assert torch.equal(new.transform(table), old.transform(table))


@pytest.mark.parametrize("columns", [["income"], ["city"], ["flat", "owner"]])
def test_plans_with_columns_of_one_kind_come_back(columns: list[str]) -> None:
    frame = bank()[columns]
    plan = ColumnPlan.fit("bank", frame, torch.arange(30))
    back = from_bytes(to_bytes({"bank": plan}))["bank"]
    assert torch.equal(back.transform(frame), plan.encode(frame))


@pytest.mark.parametrize("stranger", [PCA(), FunctionTransformer(print), {"x": np.random.default_rng(0)}])
def test_types_that_no_plan_is_made_of_are_not_loaded(stranger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skops.io, "loads", lambda *_, **__: pytest.fail("it was loaded"))
    with pytest.raises(DataError, match=r"it holds a .*, which no preprocessing of ours contains"):
        from_bytes(skops.io.dumps({"bank": stranger}))


def test_a_damaged_file_is_one_sentence(federation: Federation) -> None:
    content = to_bytes(federation.plans)
    empty = io.BytesIO()
    with zipfile.ZipFile(empty, "w") as file:
        file.writestr(
            "schema.json", json.dumps({"__class__": "dict", "__module__": "builtins", "__loader__": "DictNode"})
        )
    for damaged in (
        content[:100],
        b"",
        b"nothing",
        empty.getvalue(),
        skops.io.dumps([1, 2]),
        skops.io.dumps({"a": {}}),
    ):
        with pytest.raises(DataError, match="it is damaged"):
            from_bytes(damaged)


@pytest.mark.parametrize("kind", [int, float, str, lambda column: column.astype(float).astype(str)])
def test_categories_that_were_numbers_are_found_whether_written_7_or_7_0(federation: Federation, kind: object) -> None:
    plan, frame = federation.plans["telco"], telco().drop(columns="subscriber")
    column = frame["plan"].astype(int)
    other = frame.assign(plan=kind(column) if kind not in (int, float, str) else column.astype(kind))
    assert torch.equal(plan.transform(other), plan.transform(frame))  # and no warning of unknown categories


def test_categories_that_were_floats_in_training_are_found_as_whole_numbers() -> None:
    frame = pd.DataFrame({"plan": pd.Categorical([1.0, 2.0, 30.5, 1.0])})
    plan = ColumnPlan.fit("telco", frame, torch.arange(4))
    new = pd.DataFrame({"plan": [2, 1]})
    assert torch.equal(plan.transform(new), plan.transform(frame)[[1, 0]])


def test_a_category_column_may_have_any_name() -> None:
    frame = pd.DataFrame({"self": ["a", "b", "a"], "": [1.0, 2.0, 3.0]})
    plan = ColumnPlan.fit("telco", frame, torch.arange(3))
    assert plan.transform(frame).shape == (3, 3)
