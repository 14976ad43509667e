"""Ids are read as text, unchanged; doubtful ones are refused by column, count and first examples."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from colonnade.align.ids import check_ids, read_ids
from colonnade.data.table_file import TextFormat
from colonnade.errors import DataError, MissingData


def test_ids_are_text_and_keep_what_they_are_written_with(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("customer,x\n007,1\n7,2\n Ab ,3\nab,4\n")
    assert read_ids(tmp_path / "t.csv", "customer") == ("007", "7", " Ab ", "ab")
    assert read_ids(pd.DataFrame({"customer": [7, 8]}), "customer") == ("7", "8")
    assert read_ids(pd.DataFrame({"customer": [7.0, 8.0]}), "customer") == ("7", "8")


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (["a", "b", "a", "c", "b", "a"], "id column 'customer': 2 ids occur more than once (first: 'a', 'b')"),
        (["a", None, "b", "  "], "id column 'customer': 2 ids are empty (first at rows 1, 3"),
        (["a", "b\nc", "\x00"], "id column 'customer': 2 ids contain line breaks or other control characters (first"),
    ],
)
def test_doubtful_ids_are_refused_with_examples(values: list[str | None], sentence: str) -> None:
    with pytest.raises(DataError) as error:
        read_ids(pd.DataFrame({"customer": values}, dtype=object), "customer", "the table of telco")
    assert sentence in str(error.value) and str(error.value).startswith("the table of telco")


def test_a_missing_column_or_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("customer,x\n1,1\n")
    with pytest.raises(DataError, match=r"t\.csv' has no id column 'client'; columns: 'customer'"):
        read_ids(tmp_path / "t.csv", "client")
    with pytest.raises(MissingData, match=r"gone\.csv"):
        read_ids(tmp_path / "gone.csv", "customer")


@pytest.mark.parametrize(
    ("ids", "sentence"),
    [
        ([], "no ids"),
        (["a", "a"], "1 of 2 ids are repeated"),
        (["a", " "], "empty"),
        (["\ud800"], "control"),
        (["a", "b", "c"], "more than"),
    ],
)
def test_ids_from_elsewhere_are_checked_too(ids: list[str], sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        check_ids(ids, 2)


def test_an_id_of_several_columns_in_a_file_whose_separator_is_said(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("branch,account;x\n007,1;1\n8,2;2\n")
    with pytest.raises(DataError, match=r"separated by commas .* or semicolons"):
        read_ids(tmp_path / "t.csv", ("branch", "account;x"))
    found = read_ids(tmp_path / "t.csv", ("branch", "account;x"), text=TextFormat(separator=","))
    assert found == ("007|1;1", "8|2;2")
    with pytest.raises(DataError, match=r"id column 'a' [+] 'b': 1 ids occur more than once"):
        read_ids(pd.DataFrame({"a": [1, 1], "b": [2, 2]}), ("a", "b"))
