"""Encoding a party's columns: statistics of the training rows only."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
import torch

from colonnade.data.column_settings import ColumnSettings
from colonnade.data.columns import ColumnPlan
from colonnade.errors import DataError

TRAIN = torch.tensor([0, 1, 2, 3])


def encode(party: str, frame: pd.DataFrame, train: torch.Tensor) -> torch.Tensor:
    return ColumnPlan.fit(party, frame, train).encode(frame)


def test_numbers_are_standardised_with_the_training_rows():
    values = [1.0, 2.0, 3.0, 6.0, 10.0]
    encoded = encode("p", pd.DataFrame({"x": values}), TRAIN)
    mean, deviation = np.mean(values[:4]), np.std(values[:4])
    expected = torch.tensor([(v - mean) / deviation for v in values]).float().unsqueeze(1)
    torch.testing.assert_close(encoded, expected)
    assert encoded.dtype == torch.float32


def test_the_order_of_the_training_rows_does_not_matter():
    frame = pd.DataFrame({"x": [3, 1, 2, 9, 5], "k": list("abcab")})
    torch.testing.assert_close(encode("p", frame, TRAIN), encode("p", frame, TRAIN.flip(0)))


@pytest.mark.parametrize(
    "column",
    [
        ["b", "a", "a", "b", "z"],
        pd.Categorical(["b", "a", "a", "b", "z"]),
        pd.array(["b", "a", "a", "b", "z"], dtype="string"),
    ],
)
def test_text_is_one_hot_and_a_new_value_is_all_zero(column):
    encoded = encode("p", pd.DataFrame({"k": column}), TRAIN)
    assert encoded.tolist() == [[0, 1], [1, 0], [1, 0], [0, 1], [0, 0]]


def test_booleans_are_categories():
    frame = pd.DataFrame({"yes": [True, False, True, False, True]})
    assert encode("p", frame, TRAIN).tolist() == [[0, 1], [1, 0], [0, 1], [1, 0], [0, 1]]


@pytest.mark.parametrize(
    ("column", "says"),
    [
        (["31", "44", "unknown", "52", "60"], "1 of 5 values is not a number \\(first in row 2,"),
        (pd.Series([1, "a", 1, "a", 2], dtype=object), "2 of 5 values are not numbers \\(first in row 1,"),
        (pd.Series(["a", "b", "c", "d", 7], dtype=object), "4 of 5 values are not numbers"),
        (["1,5", "2,25", "3,0", "4,1", "5"], "4 of 5 values are numbers with a comma \\(first in row 0,"),
        (["1.234,5", "2,25", "high", "4,1", "5"], "3 of 5 values are numbers with a comma"),
        (["31", "44", "45", "52", "60"], "all values are numbers written as text \\(first in row 0,"),
    ],
)
def test_text_among_numbers_is_refused_with_the_first_value_and_the_remedy(column, says):
    with pytest.raises(DataError, match=f"party 'bank', column 'age': {says}.*astype\\('category'\\)"):
        encode("bank", pd.DataFrame({"age": column}), TRAIN)


def test_the_stray_text_is_named_by_the_id_of_its_row():
    frame = pd.DataFrame({"age": ["31", "44", "?", "52"]}, index=["c7", "c8", "c9", "d1"])
    with pytest.raises(DataError, match="first in the row with id 'c9'"):
        encode("bank", frame, torch.tensor([0, 1]))


@pytest.mark.parametrize(
    "column",
    [
        pd.Categorical(["31", "44", "unknown", "31", "44"]),  # the user says that it is a category
        ["18-25", "26-35", "36+", "18-25", "26-35"],
        ["1", "a", "b", "a", "b"],  # most of the different values are words
    ],
)
def test_categories_that_hold_some_digits_are_categories(column):
    assert encode("p", pd.DataFrame({"k": column}), TRAIN).shape[1] == 3


def test_categories_of_numbers_and_mixed_values_are_taken_at_the_user_s_word():
    mixed = pd.DataFrame({"m": pd.Series([1, "a", 1, "a", 2], dtype=object).astype("category")})
    assert encode("p", mixed, TRAIN).tolist() == [[1, 0], [0, 1], [1, 0], [0, 1], [0, 0]]


def test_decimals_of_a_file_are_numbers():
    frame = pd.DataFrame({"x": [Decimal("1.5"), Decimal("2.5"), Decimal("3.5"), Decimal("4.5"), Decimal("9")]})
    assert encode("p", frame, TRAIN).shape == (5, 1)


def test_numbers_in_object_columns_and_nullable_integers_are_numbers():
    frame = pd.DataFrame({"o": pd.Series([1, 2, 3, 4, 5], dtype=object), "i": pd.array([1, 2, 3, 4, 5], dtype="Int64")})
    assert encode("p", frame, TRAIN).shape == (5, 2)


def test_numeric_columns_come_first():
    frame = pd.DataFrame({"k": ["a", "b", "a", "b", "a"], "x": [1, 2, 3, 4, 5]})
    assert encode("p", frame, TRAIN)[:, 1:].tolist() == [[1, 0], [0, 1], [1, 0], [0, 1], [1, 0]]


def test_what_is_constant_in_training_is_zero_everywhere():
    frame = pd.DataFrame({"x": [7.1, 7.1, 7.1, 7.1, 9e9], "k": ["a", "a", "a", "a", "b"], "z": [1, 2, 3, 4, 5]})
    encoded = encode("p", frame, TRAIN)  # z, x, and the only category of k
    assert not encoded[:, [0, 2]].any()
    assert encoded[:, 1].all()


@pytest.mark.parametrize(
    ("column", "says"),
    [
        ([1.0, np.inf, 2.0, -np.inf, 3.0], "party 'bank', column 'age': 2 of 5 values are infinite; replace"),
        (pd.to_timedelta(range(5), unit="D"), "party 'bank', column 'age' has type timedelta64.*to days"),
        ([[1, 2], [3], [], [4], [5]], "party 'bank', column 'age' has type object; needed numbers, text"),
        (np.arange(5) * 1j, "party 'bank', column 'age' has type complex128"),
    ],
)
def test_unusable_columns_are_named_with_the_remedy(column, says):
    with pytest.raises(DataError, match=says):
        encode("bank", pd.DataFrame({"age": column}), TRAIN)


def test_a_column_of_identifiers_is_refused_before_it_fills_the_memory():
    rows = ColumnSettings().most + 1
    frame = pd.DataFrame({"name": [f"n{i}" for i in range(rows)]})
    with pytest.raises(
        DataError,
        match=f"party 'bank', column 'name' is left out \\({rows:,} different values in .*no other column",
    ):
        encode("bank", frame, torch.arange(rows))
