"""Ids of one or several columns, and what is said where they are written in two ways."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

import colonnade as cn
from colonnade.data import ids
from colonnade.data.columns import ColumnPlan
from colonnade.data.ids import id_columns, places, text_ids
from colonnade.data.new_rows import read_new_rows
from colonnade.data.stored import from_bytes, to_bytes
from colonnade.data.table import join_tables
from colonnade.errors import ConfigError, DataError, RowsDisagree, RowsLeftOut
from colonnade.rows import RowIds

BOTH = {"bank": ["branch", "account"], "telco": ["shop", "line"]}


def branches(rows: int = 24) -> dict[str, pd.DataFrame]:
    """Accounts 0..5 of each of several branches: no column alone is an id."""
    branch, account = np.arange(rows) // 6, np.arange(rows) % 6
    value = np.arange(rows) * 1.0
    bank = pd.DataFrame({"branch": branch, "account": account, "x": value, "y": np.arange(rows) % 2})
    return {"bank": bank, "telco": pd.DataFrame({"shop": branch, "line": account, "z": value}).iloc[::-1]}


def test_rows_meet_by_several_columns_that_each_table_calls_as_it_likes():
    joined = join_tables(branches(), labels="y", id=BOTH)
    assert joined.ids[:7] == ("0|0", "0|1", "0|2", "0|3", "0|4", "0|5", "1|0")
    assert [tuple(party.columns.shape) for party in joined.parties] == [(24, 1), (24, 1)]
    torch.testing.assert_close(joined.parties[0].columns, joined.parties[1].columns)


@pytest.mark.parametrize("where", ["column", "frame", "file"])
def test_rows_are_split_by_a_column_of_their_id(where, tmp_path):
    """A person's years: without it the same people train and test."""
    tables, labels = branches(60), "y"
    if where == "frame":
        labels = tables["bank"][["branch", "account", "y"]]
        tables["bank"] = tables["bank"].drop(columns="y")
    if where == "file":  # where ids are read as text
        for name, table in tables.items():
            table.to_csv(tmp_path / f"{name}.csv", index=False)
        tables = {name: tmp_path / f"{name}.csv" for name in tables}
    plain = join_tables(tables, labels=labels, id=BOTH)
    for split, part in (({"groups": "branch"}, 0), ({"time": "branch"}, 0), ({"groups": "account"}, 1)):
        joined = join_tables(tables, labels=labels, id=BOTH, split={**split, "test": 0.3, "validation": 0})
        assert joined.ids == plain.ids
        assert [tuple(party.columns.shape) for party in joined.parties] == [(60, 1), (60, 1)]
        trained, tested = (
            {int(joined.ids[row].split("|")[part]) for row in rows.tolist()}
            for rows in (joined.split.train, joined.split.test)
        )
        assert tested and not trained & tested
        if "time" in split:
            assert min(tested) > max(trained)


def test_rows_that_share_a_part_of_their_ids_are_noted():
    found = cn.check(branches(60), labels="y", id=BOTH)
    assert any("10 values of 'branch' and 6 values of 'account' have several rows each" in one for one in found.notes)
    by_groups = cn.check(branches(60), labels="y", id=BOTH, split={"groups": "branch"})
    assert not by_groups.errors and not any("several rows each" in one for one in by_groups.notes)


def test_new_rows_meet_by_several_columns_too():
    tables = branches()
    plans = join_tables(tables, labels="y", id=BOTH).plans
    plans = from_bytes(to_bytes(plans))
    assert plans["telco"].id == ("shop", "line")
    rows = read_new_rows(plans, {"bank": tables["bank"].drop(columns="y"), "telco": tables["telco"].iloc[::-1]})
    torch.testing.assert_close(rows.columns["bank"], rows.columns["telco"])
    assert rows.index.names == ["branch", "account"] and rows.index[7] == (1, 1)


def test_a_model_answers_by_several_columns(tmp_path):
    tables = branches()
    federation = cn.Federation.from_tables(tables, labels="y", id=BOTH)
    run = cn.fit(federation, cn.methods.VIMADMM(local_steps=1), rounds=1, out=tmp_path / "run")
    model = cn.Model.load(tmp_path / "run")
    answer = model.predict(tables)
    assert answer.index.names == ["branch", "account"] and len(answer) == 24
    assert model.score(tables, "y", ["accuracy"]) == run.model.score(
        tables, tables["bank"]["y"].to_numpy(), ["accuracy"]
    )


def test_different_ids_of_several_columns_stay_different():
    frame = pd.DataFrame({"a": ["x|", "x", "x\\", "x"], "b": ["y", "|y", "y", "\\y"]})
    assert len(set(text_ids("t", frame, ("a", "b")))) == 4


def test_repeated_ids_of_several_columns_are_named():
    tables = branches()
    tables["telco"] = pd.concat([tables["telco"], tables["telco"].iloc[:1]])
    with pytest.raises(
        DataError, match=r"'telco', id column 'shop' \+ 'line': 1 ids occur more than once \(first: '3\|5'"
    ):
        join_tables(tables, labels="y", id=BOTH)


@pytest.mark.parametrize(
    ("id", "says"),
    [
        ([], r"id: needed a column name, a list of them, or one per party; got \[\]"),
        (["a", "a"], r"id: \['a', 'a'\] names a column twice"),
        ({"bank": ["a", "b"], "telco": "a"}, "all tables need ids of equally many columns; got bank: 2, telco: 1"),
        ({"bank": "a", "telco": ["a", 3]}, "id of party 'telco': needed a column name"),
    ],
)
def test_ids_that_cannot_be_are_refused(id, says):
    with pytest.raises(ConfigError, match=says):
        id_columns(id, ["bank", "telco"])


@pytest.mark.parametrize(
    ("theirs", "how"),
    [
        (lambda n: f"{n:03}", "leading zeros"),
        (lambda n: f" {n}", "spaces around them"),
        (lambda n: f"{n}.0", "'.0' at the end"),
    ],
)
def test_ids_that_are_written_differently_are_recognised(theirs, how):
    ids = np.arange(100, 140)
    bank = pd.DataFrame({"c": [str(n) for n in ids], "x": ids * 1.0, "y": ids % 2})
    telco = pd.DataFrame(
        {"c": [str(n) for n in ids[:30]] + [theirs(n) if n > 999 else theirs(n - 100) for n in ids[30:]]}
    )
    telco = telco.assign(z=ids * 1.0)
    bank.loc[30:, "c"] = [str(n - 100) for n in ids[30:]]
    with pytest.warns(RowsLeftOut, match=rf"10 ids of party 'bank' and party 'telco' differ only in {how}"):
        join_tables({"bank": bank, "telco": telco}, labels="y", id="c")
    telco["c"] = [theirs(int(n)) for n in bank["c"]]
    if how != "leading zeros":
        with pytest.raises(RowsDisagree, match=rf"40 ids of party 'bank' and party 'telco' differ only in {how}"):
            join_tables({"bank": bank, "telco": telco}, labels="y", id="c")


def test_ids_that_two_tables_have_and_a_third_lacks_are_not_called_differently_written():
    ids = [f"c{n}" for n in range(40)]
    bank = pd.DataFrame({"c": ids, "x": np.arange(40.0), "y": np.arange(40) % 2})
    telco, shop = bank[["c"]].assign(z=1.0 * np.arange(40)), bank[["c"]].assign(s=1.0 * np.arange(40)).iloc[:-5]
    with pytest.warns(RowsLeftOut, match="party 'bank': 5 of 40") as told:
        join_tables({"bank": bank, "telco": telco, "shop": shop}, labels="y", id="c")
    assert not any("differ only in" in str(one.message) for one in told)


def test_capitals_are_recognised():
    bank = pd.DataFrame({"c": ["Aa", "Bb", "Cc", "Dd"], "x": [1.0, 2, 3, 4], "y": [0, 1, 0, 1]})
    telco = pd.DataFrame({"c": ["AA", "BB", "CC", "DD"], "z": [1.0, 2, 3, 4]})
    with pytest.raises(RowsDisagree, match="4 ids of party 'bank' and party 'telco' differ only in capitals"):
        join_tables({"bank": bank, "telco": telco}, labels="y", id="c")


def test_a_plan_of_one_column_keeps_its_id_as_it_was():
    plan = ColumnPlan.fit("p", pd.DataFrame({"x": [1.0, 2.0]}), torch.arange(2), id="c")
    assert from_bytes(to_bytes({"p": plan}))["p"].id == "c"


def test_ids_of_rows_are_a_sequence_of_texts():
    rows = RowIds(pd.Index(["a", "b", "c"]))
    assert len(rows) == 3 and rows[1] == "b" and rows[1:] == ("b", "c") and list(rows) == ["a", "b", "c"]
    assert rows == ("a", "b", "c") and rows == RowIds(pd.Index(["a", "b", "c"])) and rows not in (("a", "b"), "abc")
    assert hash(rows) == hash(("a", "b", "c")) and rows.take(torch.tensor([2, 0])) == ("c", "a")
    assert [rows[place] for place in torch.tensor([2, 0])] == ["c", "a"]  # as row numbers of a split come
    assert rows.index("c") == 2 and "b" in rows and repr(rows) == "RowIds(3 ids)"


@pytest.mark.parametrize("chunks", [1, 3])
def test_many_ids_are_matched_in_parts_as_few_are_at_once(monkeypatch, chunks):
    rng = np.random.default_rng(0)
    some, others = ([f"{'é' if k % 7 else ''}c{k}" for k in rng.permutation(400)[:300]] for _ in range(2))
    some += ["", "ü"]

    def index(texts: list[str]) -> pd.Index:
        parts = [texts[at::chunks] for at in range(chunks)]
        return pd.Index(pd.array(pa.chunked_array(parts, pa.large_string())[1:], dtype="str"))

    expected = places(index(some), index(others))
    monkeypatch.setattr(ids, "AT_ONCE", 10)
    assert places(index(some), index(others)).tolist() == expected.tolist()
    assert 0 < (expected < 0).sum() < len(expected)
    place = {text: at for at, text in enumerate(index(others))}  # the readable way
    assert expected.tolist() == [place.get(text, -1) for text in index(some)]


def test_a_repeated_id_among_many_is_refused(monkeypatch):
    monkeypatch.setattr(ids, "AT_ONCE", 10)
    frame = pd.DataFrame({"id": [f"c{k}" for k in range(50)] + ["c7"]})
    with pytest.raises(DataError, match=r"1 ids occur more than once \(first: 'c7'\)"):
        text_ids("the table", frame, "id")
    assert len(text_ids("the table", frame[:50], "id")) == 50


@pytest.mark.parametrize(("kind", "whole"), [("float64", 2**53), ("float32", 2**24), ("Float64", 2**53)])
def test_ids_that_a_float_may_have_made_one_are_refused(kind, whole):
    """Of two accounts with neighbouring numbers a float keeps one: it would meet the other's row."""
    table = pd.DataFrame({"id": pd.Series([whole, 7], dtype=kind), "x": [1.0, 2.0]})
    with pytest.raises(DataError, match=rf"'id': {kind.lower()} does not tell whole numbers from {whole:,} on apart"):
        text_ids("party 'bank'", table, "id")
    below = pd.DataFrame({"id": pd.Series([whole - 1, 7], dtype=kind)})
    assert list(text_ids("party 'bank'", below, "id")) == [str(whole - 1), "7"]
