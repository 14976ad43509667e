"""Joining tables: rows meet by id, and every doubtful table is refused by name."""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from colonnade.data.frames import read_table
from colonnade.data.table import join_tables
from colonnade.errors import ConfigError, DataError, MissingData, RowsDisagree, RowsLeftOut
from colonnade.federation import Federation, RowSplit


def two_tables(rows: int = 20) -> tuple[pd.DataFrame, pd.DataFrame]:
    bank = pd.DataFrame({"customer": range(rows), "income": np.arange(rows) * 10.0, "y": np.arange(rows) % 2})
    telco = pd.DataFrame({"customer": range(rows), "calls": np.arange(rows) ** 2.0})
    return bank, telco


def test_from_tables_is_this():
    bank, telco = two_tables()
    federation = Federation.from_tables({"bank": bank, "telco": telco}, labels="y", id="customer", name="shop")
    assert federation.names == ("bank", "telco")
    assert federation.name == "shop"
    assert [tuple(p.columns.shape) for p in federation.parties] == [(20, 1), (20, 1)]
    assert federation.task.name == "binary"
    assert federation.ids == tuple(str(i) for i in range(20))


@settings(max_examples=25, deadline=None)  # a join takes about 20 ms
@given(st.permutations(range(12)), st.permutations(range(12)))
def test_rows_meet_by_id_whatever_their_order(first, second):
    bank, telco = two_tables(12)
    joined = join_tables({"b": bank.iloc[first], "t": telco.iloc[second]}, labels="y", id="customer")
    assert joined.ids == tuple(str(i) for i in first)
    assert joined.labels[:, 0].tolist() == [i % 2 for i in first]
    for party in joined.parties:  # both columns grow with the id, so standardised values sort like the ids
        assert party.columns[:, 0].argsort().tolist() == np.argsort(first).tolist()


def test_ids_missing_somewhere_are_left_out():
    bank, telco = two_tables()
    says = r"left out \(party 'b': 5 of 15, party 't': 4 of 14\); if they should match, check how the ids are written"
    with pytest.warns(RowsLeftOut, match=says):
        joined = join_tables({"b": bank.iloc[5:], "t": telco.iloc[1:15]}, labels="y", id="customer")
    assert joined.ids == tuple(str(i) for i in range(5, 15))


def test_ids_written_in_two_ways_are_shown_from_both_sides():
    bank, telco = two_tables(40)
    telco["customer"] = [f"{i:02}" for i in range(40)]
    tables = {"bank": bank.iloc[:15], "telco": telco.iloc[:15]}
    says = (
        r"'bank': 10 of 15, party 'telco': 10 of 15\); the first of them: party 'bank' '0', party 'telco' '00'; 10 ids"
    )
    with pytest.warns(RowsLeftOut, match=says):
        assert join_tables(tables, labels="y", id="customer").ids == ("10", "11", "12", "13", "14")
    labels = bank[["customer", "y"]].assign(customer=[f"0{i}" for i in range(40)])
    says = r"first ids: party 'bank' '0', party 'telco' '0', the labels '00'\)"
    plain = {"bank": bank.drop(columns="y"), "telco": telco.assign(customer=range(40))}
    refused(RowsDisagree, says, plain, labels=labels, id="customer")
    refused(RowsDisagree, r"first ids: the tables '0', the labels '00'\)", plain, labels=labels, id="customer",
            keep="partial")  # fmt: skip


def test_labels_of_other_rows_are_counted():
    bank, telco = two_tables()
    plain = {"bank": bank.drop(columns="y"), "telco": telco}
    with pytest.warns(RowsLeftOut, match=r"'bank': 8 of 20, party 'telco': 8 of 20, the labels: 0 of 12\)"):
        assert join_tables(plain, labels=bank[["customer", "y"]].iloc[:12], id="customer").rows == 12


def test_numbers_and_text_that_look_the_same_are_the_same_id():
    bank, telco = two_tables()
    telco["customer"] = telco["customer"].astype(str)
    labels = pd.DataFrame({"customer": np.arange(20.0), "y": np.arange(20) % 2})
    assert join_tables({"b": bank.drop(columns="y"), "t": telco}, labels=labels, id="customer").rows == 20


def test_an_index_named_like_the_id_will_do():
    bank, telco = two_tables()
    tables = {"b": bank.drop(columns="y").set_index("customer"), "t": telco.iloc[::-1].set_index("customer")}
    labels = bank.set_index("customer")["y"].iloc[::-1]
    joined = join_tables(tables, labels=labels, id="customer")
    assert joined.labels[:, 0].tolist() == [i % 2 for i in range(20)]


def test_the_label_is_removed_and_a_pure_label_holder_drops_out():
    bank, telco = two_tables()
    holder = bank[["customer", "y"]]
    with pytest.warns(RowsLeftOut, match=r"party 'holder': 0 of 17, party 't': 3 of 20\)"):
        joined = join_tables({"holder": holder.iloc[3:], "t": telco}, labels="y", id="customer")
    assert joined.names == ("t",)
    assert joined.ids[0] == "3"  # its ids still count


def test_without_id_rows_meet_by_position():
    bank, telco = two_tables()
    joined = join_tables({"b": bank, "t": telco}, labels="y")
    assert joined.rows == 20
    assert joined.ids == ()
    assert tuple(joined.parties[0].columns.shape) == (20, 2)  # without id the customer number is just a column


def test_labels_as_array_list_tensor_or_frame():
    bank, telco = two_tables()
    tables = {"b": bank.drop(columns="y"), "t": telco}
    y = bank["y"]
    shuffled = bank[["customer", "y"]].sample(frac=1, random_state=0)
    for labels in (y.to_numpy(), y.tolist(), torch.tensor(y.to_numpy()), y, shuffled):
        assert join_tables(tables, labels=labels, id="customer").labels[:, 0].tolist() == y.tolist()
    assert join_tables(tables, labels=y.to_frame()).labels[:, 0].tolist() == y.tolist()


def test_labels_without_ids_are_refused_where_the_order_is_doubtful():
    bank, telco = two_tables()
    with pytest.raises(
        RowsDisagree, match=r"20 labels without ids.*same order; pass a frame with the columns 'customer'"
    ):
        join_tables({"b": bank.drop(columns="y"), "t": telco.iloc[::-1]}, labels=bank["y"].to_numpy(), id="customer")


def test_text_classes_are_numbered_in_sorted_order():
    bank, telco = two_tables()
    for values in (["yes", "no"] * 10, pd.Categorical(["yes", "no"] * 10), np.array(["yes", "no"] * 10, dtype=object)):
        joined = join_tables({"b": bank.assign(y=values), "t": telco}, labels="y", id="customer")
        assert joined.labels[:, 0].tolist() == [1, 0] * 10
        assert joined.task.names == ("no", "yes")
    joined = join_tables({"t": telco}, labels=[True, False] * 10)
    assert joined.labels[:, 0].tolist() == [1, 0] * 10 and joined.task.names == ("False", "True")
    joined = join_tables({"t": telco}, labels=["yes", "no"] * 10, task="binary")
    assert joined.task.name == "binary"
    assert joined.outputs == 1


def test_numeric_categories_are_numbers():
    joined = join_tables({"t": two_tables()[1].assign(kind=pd.Categorical([10, 2, 3, 10] * 5))}, labels="kind")
    assert joined.labels.tolist() == [2, 0, 1, 2] * 5  # categories are classes, whatever they look like
    assert joined.task.names == ("2", "3", "10")


def test_several_label_columns_for_tasks_that_have_them():
    _, telco = two_tables()
    labels = pd.DataFrame({"customer": range(20), "a": [0, 1] * 10, "b": [1, 1] * 10})
    joined = join_tables({"t": telco}, labels=labels, id="customer", task="multilabel")
    assert joined.outputs == 2
    assert joined.task.name == "multilabel"
    assert join_tables({"t": telco}, labels=np.arange(60).reshape(20, 3), task="regression").outputs == 3


def test_a_split_is_kept_and_checked():
    bank, telco = two_tables()
    split = RowSplit.random(20, seed=4)
    joined = join_tables({"b": bank, "t": telco}, labels="y", id="customer", split=split)
    assert torch.equal(joined.split.train, split.train)
    with pytest.raises(DataError, match="names row 29 but there are 20 rows"):
        beyond = RowSplit(torch.arange(30), torch.tensor([]).long(), torch.tensor([]).long())
        join_tables({"b": bank, "t": telco}, labels="y", split=beyond)


def test_the_tables_of_the_user_are_left_alone():
    bank, telco = two_tables()
    before = bank.copy(), telco.copy()
    join_tables({"b": bank, "t": telco}, labels="y", id="customer")
    pd.testing.assert_frame_equal(bank, before[0])
    pd.testing.assert_frame_equal(telco, before[1])


def test_what_pandas_can_read_is_a_table():
    joined = join_tables({"a": {"x": [1, 2, 3, 4]}, "b": np.arange(8.0).reshape(4, 2)}, labels=[0, 1, 0, 1])
    assert [tuple(p.columns.shape) for p in joined.parties] == [(4, 1), (4, 2)]


class Other:
    """A data frame of another library, known only by the old interchange protocol."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self.frame = frame

    def __dataframe__(self, *args, **options):
        return self.frame.__dataframe__(*args, **options)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # raised by pandas while it plays the other library
def test_frames_of_other_libraries_come_through_the_interchange_protocol():
    _, telco = two_tables()
    labels = pd.DataFrame({"customer": range(19, -1, -1), "y": [1, 0] * 10})
    joined = join_tables({"t": Other(telco)}, labels=Other(labels), id="customer")
    assert joined.labels[:, 0].tolist() == [i % 2 for i in range(20)]


def test_arrow_tables_are_tables():
    pyarrow = pytest.importorskip("pyarrow")
    bank, telco = two_tables()
    joined = join_tables({"b": pyarrow.table(bank), "t": pyarrow.table(telco)}, labels="y", id="customer")
    assert joined.labels[:, 0].tolist() == bank["y"].tolist()


def refused(error, says, tables, **options):
    with pytest.raises(error, match=says):
        join_tables(tables, **options)


def test_bad_ids_are_named():
    bank, telco = two_tables()
    tables = {"bank": bank, "telco": telco}
    twice = pd.concat([telco, telco.iloc[[4, 7]]])
    refused(DataError, r"party 'telco', id column 'customer': 2 ids occur more than once \(first: '4', '7'\); keep one",
            tables | {"telco": twice}, labels="y", id="customer")  # fmt: skip
    for hole in (None, float("nan"), " "):
        holes = telco.astype({"customer": object})
        holes.loc[[2, 5], "customer"] = hole
        refused(DataError, "party 'telco', id column 'customer': 2 ids are empty.*rows 2, 5.*give those rows an id",
                tables | {"telco": holes}, labels="y", id="customer")  # fmt: skip
    refused(DataError, "party 'telco' has no id column 'customer'; columns: 'client', 'calls'",
            tables | {"telco": telco.rename(columns={"customer": "client"})}, labels="y", id="customer")  # fmt: skip
    strangers = telco.assign(customer=[f"c{i}" for i in range(20)])
    refused(RowsDisagree, "no id in column 'customer' is in all tables.*party 'bank' '0', party 'telco' 'c0'.*check",
            tables | {"telco": strangers}, labels="y", id="customer")  # fmt: skip


def test_bad_labels_are_named():
    bank, telco = two_tables()
    tables = {"bank": bank, "telco": telco}
    plain = {"bank": bank.drop(columns="y"), "telco": telco}
    refused(DataError, "no table has the label column 'incom'; did you mean 'income'", tables, labels="incom")
    refused(DataError, "no table has the label column 'zzz'; columns: calls", plain, labels="zzz")
    refused(DataError, "label column 'y' is in the tables of 'bank' and 'telco'; drop it from all but one",
            tables | {"telco": telco.assign(y=1)}, labels="y")  # fmt: skip
    refused(DataError, "id column 'customer' cannot also be the label", tables, labels="customer", id="customer")
    refused(DataError, "the labels have no id column 'customer'", plain, labels=bank[["y"]], id="customer")
    refused(DataError, "party 'bank' also has the label column 'y'; drop it", tables,
            labels=bank[["customer", "y"]], id="customer")  # fmt: skip
    refused(DataError, "needed a column name, a frame or one label per row; got NoneType", plain, labels=None)
    refused(DataError, "label column 'y': 2 of 20 values are empty; drop those rows",
            {"bank": bank.assign(y=[None, None, *[1.0] * 18])}, labels="y")  # fmt: skip
    refused(DataError, "one label column, got 2.*'y', 'w'.*task='multilabel'", {"t": telco[["calls"]]},
            labels=pd.DataFrame({"y": [0] * 20, "w": [1] * 20}))  # fmt: skip
    refused(DataError, "label column 'y': a regression task needs numbers as labels; got text, e.g. 'high'",
            {"bank": bank.assign(y="high")}, labels="y", task="regression")  # fmt: skip
    refused(DataError, "no party has columns left", {"h": bank[["customer", "y"]]}, labels="y", id="customer")


def test_bad_tables_are_named():
    bank, telco = two_tables()
    tables = {"bank": bank, "telco": telco}
    refused(DataError, "at least one table", {}, labels="y")
    refused(DataError, "party 'telco' has no columns besides the id 'customer'",
            tables | {"telco": telco[["customer"]]}, labels="y", id="customer")  # fmt: skip
    refused(DataError, "party 'telco' has the column 'x' more than once; rename",
            tables | {"telco": pd.DataFrame(np.zeros((20, 2)), columns=["x", "x"])}, labels="y")  # fmt: skip
    refused(DataError, "party 'telco' has no rows", tables | {"telco": telco.iloc[:0]}, labels="y")
    refused(DataError, "party 'telco': needed a data frame, got int", tables | {"telco": 3}, labels="y")
    refused(MissingData, "table file 'x.csv' does not exist; check the path", tables | {"telco": "x.csv"}, labels="y")
    refused(RowsDisagree, "party 'bank': 20 rows, party 'telco': 19 rows, the labels: 20 rows; name the column.*id=",
            tables | {"telco": telco.iloc[1:]}, labels="y")  # fmt: skip


def test_missing_pandas_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    refused(DataError, r"needs pandas.*pip install colonnade\[tables\]", {"a": {"x": [1, 2]}}, labels=[0, 1])


@pytest.mark.parametrize(
    ("name", "separator"), [("t.csv", ","), ("t.csv.gz", ","), ("t.tsv", "\t"), ("T.TSV.GZ", "\t")]
)
def test_text_tables_are_read(tmp_path, name, separator):
    bank, _ = two_tables()
    compression = "gzip" if name.lower().endswith("gz") else None
    bank.to_csv(tmp_path / name, sep=separator, index=False, compression=compression)
    if name == "T.TSV.GZ":  # pandas looks at the ending as it is written
        (tmp_path / name).rename(tmp_path / "T.tsv.gz")
        name = "T.tsv.gz"
    pd.testing.assert_frame_equal(read_table(tmp_path / name), bank)


def test_ids_in_a_file_stay_text(tmp_path):
    (tmp_path / "t.csv").write_text("id,x\n007,1\n012,2\n")
    assert read_table(str(tmp_path / "t.csv"), id="id")["id"].tolist() == ["007", "012"]
    assert read_table(tmp_path / "t.csv")["id"].tolist() == [7, 12]


def test_parquet_is_read(tmp_path):
    pytest.importorskip("pyarrow")
    bank, _ = two_tables()
    bank.to_parquet(tmp_path / "t.parquet")
    pd.testing.assert_frame_equal(read_table(tmp_path / "t.parquet"), bank)


def test_parquet_without_its_library_says_what_to_install(tmp_path, monkeypatch):
    (tmp_path / "t.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(DataError, match=r"t\.parquet' needs pyarrow, which is not installed; run: pip install"):
        read_table(tmp_path / "t.parquet")


def test_unreadable_table_files_are_named(tmp_path):
    with pytest.raises(MissingData, match=r"nowhere\.csv' does not exist; check the path"):
        read_table(tmp_path / "nowhere.csv")
    with pytest.raises(DataError, match=r"t\.xlsx': the name must end in one of \.csv, .*\.parquet"):
        read_table(tmp_path / "t.xlsx")
    (tmp_path / "empty.csv").write_text("")
    with pytest.raises(DataError, match=r"empty\.csv' cannot be read as \.csv: it is empty; needed a line"):
        read_table(tmp_path / "empty.csv")
    (tmp_path / "broken.csv.gz").write_bytes(b"not gzip")
    with pytest.raises(DataError, match=r"broken\.csv\.gz' cannot be read as \.csv\.gz"):
        read_table(tmp_path / "broken.csv.gz")
    (tmp_path / "ragged.csv").write_text("a,b\n1,2\n1,2,3,4\n")
    with pytest.raises(DataError, match=r"cannot be read.*line 3 has 4 values.*2 names"):
        read_table(tmp_path / "ragged.csv")


def test_each_table_may_have_its_own_name_for_the_id():
    bank, telco = two_tables()
    telco = telco.rename(columns={"customer": "subscriber"}).assign(customer=5.0)  # a column like any other
    id = {"b": "customer", "t": "subscriber"}
    joined = join_tables({"b": bank, "t": telco.iloc[::-1]}, labels="y", id=id)
    same = join_tables({"b": bank, "t": telco.rename(columns={"customer": "c", "subscriber": "customer"})},
                       labels="y", id="customer")  # fmt: skip
    assert joined.ids == same.ids
    for mine, theirs in zip(joined.parties, same.parties, strict=True):
        assert torch.equal(mine.columns, theirs.columns)
    assert [plan.id for plan in joined.plans.values()] == ["customer", "subscriber"]


def test_labels_with_the_id_of_one_of_the_tables():
    bank, telco = two_tables()
    tables = {"b": bank.drop(columns="y"), "t": telco.rename(columns={"customer": "subscriber"})}
    id = {"b": "customer", "t": "subscriber"}
    for name in id.values():
        labels = bank[["customer", "y"]].rename(columns={"customer": name}).iloc[::-1]
        assert join_tables(tables, labels=labels, id=id).labels[:, 0].tolist() == bank["y"].tolist()
        series = labels.set_index(name)["y"]
        assert join_tables(tables, labels=series, id=id).labels[:, 0].tolist() == bank["y"].tolist()
    refused(DataError, "the labels have more than one id column 'customer' or 'subscriber'", tables,
            labels=bank[["customer", "y"]].assign(subscriber=range(20)), id=id)  # fmt: skip
    refused(DataError, "the labels have no id column 'customer' or 'subscriber'", tables, labels=bank[["y"]], id=id)


def test_id_names_that_do_not_fit_the_tables():
    bank, telco = two_tables()
    tables = {"b": bank, "t": telco}
    refused(ConfigError, "id names no column for party 't'; give one for each of b, t", tables,
            labels="y", id={"b": "customer"})  # fmt: skip
    refused(ConfigError, "id names a column for 'z', who has no table", tables, labels="y",
            id={"b": "customer", "t": "customer", "z": "customer"})  # fmt: skip
    refused(ConfigError, "id: needed a column name, a list of them, or one per party; got 3", tables, labels="y", id=3)
    refused(ConfigError, "id of party 't': needed a column name.*got 3", tables, labels="y",
            id={"b": "customer", "t": 3})  # fmt: skip
    refused(DataError, "party 't' has no id column 'subscriber'", tables, labels="y",
            id={"b": "customer", "t": "subscriber"})  # fmt: skip


def test_a_list_instead_of_a_dict_is_one_sentence():
    bank, telco = two_tables()
    with pytest.raises(DataError, match=r"tables must be given by party name, e\.g\. .*; got list"):
        Federation.from_tables([bank, telco], labels="y")
    with pytest.raises(DataError, match=r"columns must be given by party name, e\.g\. .*; got list"):
        Federation.from_arrays([np.zeros((4, 2))], [0, 1, 0, 1])


def test_text_labels_of_arrays_are_named_classes():
    x, words = np.arange(8.0).reshape(4, 2), ["yes", "no", "no", "maybe"]
    for labels in (words, np.array(words), np.array(words, dtype=object), pd.Series(words)):
        made = Federation.from_arrays({"a": x}, labels)
        assert made.labels.tolist() == [2, 1, 1, 0]
        assert made.task.names == ("maybe", "no", "yes")
    binary = Federation.from_arrays({"a": x}, ["yes", "no", "no", "yes"], task="binary")
    assert binary.labels.flatten().tolist() == [1, 0, 0, 1]
    assert binary.task.names == ("no", "yes")
    partial = Federation.from_arrays({"a": x}, ["b", None, "a", "b"], labelled=[True, False, True, True])
    assert (partial.labels[:, 0].tolist(), partial.task.names) == ([0, 0, 1, 0], ("b", "a"))  # the rarer counts as yes


@pytest.mark.parametrize(
    ("labels", "task", "says"),
    [
        (["a", None, "b", "a"], None, r"needed numbers, or text in every row; got None \(NoneType\)"),
        (np.array([1, "a", 2, 3], dtype=object), None, r"needed numbers, or text in every row; got 1 \(int\)"),
        (["a", "a", "a", "a"], None, "nothing to learn"),
        (["a", "b", "a", "b"], "regression", "a regression task needs numbers as labels; got text"),
        ([["a", "b"]] * 4, "multilabel", "a multilabel task needs numbers as labels; got text"),
        (["a", "b", "c", "a"], "binary", r"two different labels; got 3 \(a, b, c\)"),
    ],
)
def test_text_labels_of_arrays_that_cannot_be_are_one_sentence(labels, task, says):
    with pytest.raises(DataError, match=says):
        Federation.from_arrays({"a": np.zeros((4, 2))}, labels, task=task)


def test_text_columns_of_arrays_are_one_sentence():
    with pytest.raises(DataError, match="party 'a': needed an array of numbers, got list with other values"):
        Federation.from_arrays({"a": [["x"], ["y"]]}, [0, 1])


def test_semicolons_between_the_columns_are_recognised(tmp_path):
    bank, _ = two_tables()
    for name in ("t.csv", "t.csv.gz"):
        bank.to_csv(tmp_path / name, sep=";", index=False)
        pd.testing.assert_frame_equal(read_table(tmp_path / name), bank)
    (tmp_path / "one.csv").write_text("x\n1\n2\n")
    assert list(read_table(tmp_path / "one.csv")) == ["x"]
    (tmp_path / "ids.csv").write_text("id;x\n007;1\n012;2\n")
    assert read_table(tmp_path / "ids.csv", id="id")["id"].tolist() == ["007", "012"]


def test_decimal_commas_are_refused_by_name(tmp_path):
    (tmp_path / "t.csv").write_text("customer,income\n" + "".join(f'{k},"{k},5"\n' for k in range(20)))
    says = r"party 't', column 'income': 20 of 20 values are numbers with a comma \(first in the row with id '0'\)"
    refused(DataError, says, {"t": read_table(tmp_path / "t.csv", id="customer")},
            labels=pd.DataFrame({"customer": range(20), "y": [0, 1] * 10}), id="customer")  # fmt: skip


def test_categories_of_a_file_are_text_whatever_they_look_like(tmp_path):
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame({"zip": [1067, 89073], "x": [1.0, 2.0]})
    (tmp_path / "t.csv").write_text("zip,x\n01067,1.0\n89073,2.0\n")
    frame.to_parquet(tmp_path / "t.parquet")
    read = read_table(tmp_path / "t.csv", categories=["zip"])
    assert read["zip"].tolist() == ["01067", "89073"]
    assert str(read["zip"].dtype) == "category"
    assert read_table(tmp_path / "t.parquet", categories=["zip", "gone"])["zip"].tolist() == ["1067", "89073"]


def test_a_federation_is_named_after_its_parties() -> None:
    """So that runs of different tables are not all on `federation`."""
    bank, telco = two_tables()
    tables = {"bank": bank, "telco": telco}
    assert Federation.from_tables(tables, labels="y", id="customer").name == "bank+telco"
    assert Federation.from_tables(tables, labels="y", id="customer", name="churn").name == "churn"
    many = {f"party_{k}": np.zeros((4, 1)) for k in range(1, 9)}
    assert Federation.from_arrays(many, [0, 1, 0, 1]).name == "party_1+party_2+party_3+5 more"
