"""Text tables: separator, decimal mark, encoding and types are recognised, and what a file leaves open is refused."""

from __future__ import annotations

import gzip

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import feather

from colonnade.data import gathered, text_files
from colonnade.data.frames import read_table
from colonnade.data.table_file import TextFormat
from colonnade.errors import ConfigError, DataError

FRAME = pd.DataFrame({"x": [1.5, -2.25, 3.0], "k": ["a", "b, c", "d"], "n": [1, 2, 3]})


def write(folder, content, name="t.csv"):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("decimal", [".", ","])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_separator_decimal_mark_and_encoding_are_recognised(tmp_path, separator, decimal, encoding):
    if separator == decimal:
        pytest.skip("such a file has quotation marks around its numbers")
    frame = FRAME.assign(k=["ä", "b", "Ω"])
    frame.to_csv(tmp_path / "t.csv", sep=separator, decimal=decimal, index=False, encoding=encoding)
    pd.testing.assert_frame_equal(read_table(tmp_path / "t.csv"), frame)


def test_text_that_is_not_utf_8_is_read_as_windows_text_with_a_warning(tmp_path):
    path = write(tmp_path, "k,x\nMünchen,1\nKöln,2\n".encode("cp1252"))
    with pytest.warns(UserWarning, match=r"t\.csv' is not UTF-8 text and is read as Windows text.*say encoding"):
        assert read_table(path)["k"].tolist() == ["München", "Köln"]
    assert read_table(path, text=TextFormat(encoding="cp1252"))["k"].tolist() == ["München", "Köln"]
    with pytest.raises(DataError, match="it is not utf-8 text; say encoding"):
        read_table(path, text=TextFormat(encoding="utf-8"))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (
            "a,b;c\n1,2;3\n4,5;6\n",
            r"separated by commas \(2 columns\) or semicolons \(2 columns\); say separator",
        ),
        ("a;b\n1,5;2.5\n1,25;3.5\n", r"column 'a' \(1,5\) has numbers with a decimal comma and column 'b' \(2\.5\)"),
        (
            "a;b\n1,500;2\n2,250;3\n",
            r"column 'a' \(1,500\): the comma may be a decimal mark or mark thousands",
        ),
        (
            "a;b\n1.500;2\n950;3\n12.250;4\n",
            r"column 'a' \(1\.500\): the point may be a decimal mark or mark thousands; say decimal = ",
        ),
        ("5.1,3.5\n4.9,3.0\n", r"first line has numbers \(5\.1, 3\.5\) where column names are needed"),
        (
            ",a\n0,5\n1,6\n",
            r"column 1 of 2 has no name in the first line \(row numbers\? pandas: to_csv",
        ),
        ("a,b,\n1,2,\n3,4,\n", r"column 3 of 3 has no name in the first line \(a separator too many\?\)"),
        ("a,b,a\n1,2,3\n", "it has the column 'a' more than once; rename or drop one"),
        ("a,b\n", "it has no rows; needed at least one"),
        ("", "it is empty; needed a line of column names, and rows"),
        ("a,b\n1,2\n1\n", "line 3 has 1 values and the first line has 2 names; correct the row"),
        (b"a,b\n1,\x00\x01\xff\xfe\n", "it is not text: it has zero bytes"),
    ],
)
def test_what_a_file_leaves_open_is_refused(tmp_path, content, says):
    with pytest.raises(DataError, match=rf"table file '.*t\.csv' cannot be read as \.csv: .*{says}"):
        read_table(write(tmp_path, content))


def test_what_is_said_is_not_guessed(tmp_path):
    path = write(tmp_path, "a,b;c\n1,2;3\n4,5;6\n")
    assert read_table(path, text=TextFormat(separator=";"))["c"].tolist() == [3, 6]
    path = write(tmp_path, "a;b\n1,500;2\n2,250;3\n")
    assert read_table(path, text=TextFormat(decimal=","))["a"].tolist() == [1.5, 2.25]
    assert read_table(path, text=TextFormat(decimal="."))["a"].tolist() == ["1,500", "2,250"]


def test_points_between_thousands_are_suspected_only_where_that_may_be(tmp_path):
    for content in ("a;b\n1.500;2\n2.25;3\n", "a,b\n1.500,2\n", "a;b\n1.500;0.5\n", "a;b\n0.500;2\n"):
        assert read_table(write(tmp_path, content))["a"].dtype == "float64"
    path = write(tmp_path, "a;b\n1.500;2\n2.250;3\n")
    assert read_table(path, text=TextFormat(decimal="."))["a"].tolist() == [1.5, 2.25]


def test_a_decimal_comma_before_a_power_of_ten_is_one(tmp_path):
    path = write(tmp_path, "a;b\n0,25;x\n1,5e-05;y\n-2,5E+03;z\n")
    assert read_table(path)["a"].tolist() == [0.25, 1.5e-05, -2500.0]


@pytest.mark.parametrize(
    ("said", "says"),
    [
        ({"separator": "::"}, "separator = '::' is not valid: .*needed one character"),
        ({"decimal": "·"}, "decimal = '·' is not valid: .*needed '.' or ','"),
        ({"separator": ",", "decimal": ","}, "separator and decimal are both ','"),
        ({"encoding": "utf-9"}, "encoding = 'utf-9' is not valid: .*no such encoding"),
    ],
)
def test_a_format_that_cannot_be_is_refused(said, says):
    with pytest.raises(ConfigError, match=says):
        TextFormat(**said)


@pytest.mark.parametrize(
    ("later", "kind", "last"),
    [("2.5", "float64", 2.5), ("x", "str", "x"), ("", "float64", np.nan), ("9" * 25, "float64", float("9" * 25))],
)
def test_a_later_row_may_change_the_type_of_a_column(tmp_path, monkeypatch, later, kind, last):
    monkeypatch.setattr(text_files, "CHUNK", 64)
    path = write(tmp_path, "a,b\n" + "".join(f"{k},z\n" for k in range(100)) + f"{later},z\n")
    column = read_table(path)["a"]
    assert column.dtype == kind and len(column) == 101
    assert column.iloc[-1] == last or (np.isnan(last) and np.isnan(column.iloc[-1]))
    assert str(column.iloc[7]) in ("7", "7.0")


@pytest.mark.parametrize("chunk", [7, 16, 1 << 20])
def test_line_ends_and_separators_inside_quotation_marks_belong_to_the_value(tmp_path, monkeypatch, chunk):
    monkeypatch.setattr(text_files, "CHUNK", chunk)
    frame = pd.DataFrame({"k": ['a\nb, "c"', "d", "e;\n\nf"], "x": [1, 2, 3]})
    frame.to_csv(tmp_path / "t.csv", index=False)
    pd.testing.assert_frame_equal(read_table(tmp_path / "t.csv"), frame)


def test_windows_line_ends_and_blank_lines_are_no_rows(tmp_path):
    assert read_table(write(tmp_path, b"\r\na,b\r\n1,x\r\n\r\n2,y\r\n"))["a"].tolist() == [1, 2]


def test_iso_dates_are_dates_and_times_are_text(tmp_path):
    frame = read_table(write(tmp_path, "d,s,t\n2020-01-31,2020-01-31 12:30:00,12:30\n,2020-02-01 00:00:00,13:00\n"))
    assert [column.dtype.kind for _, column in frame[["d", "s"]].items()] == ["M", "M"]
    assert frame["t"].tolist() == ["12:30", "13:00"]
    assert frame["d"].isna().tolist() == [False, True]


def table_of_all_kinds(rows: int) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "f": rng.normal(size=rows),
            "holes": np.where(np.arange(rows) % 7 == 3, np.nan, rng.normal(size=rows)),
            "i": np.arange(rows),
            "whole_with_holes": pd.array([None, *range(1, rows)], dtype="Int64"),
            "b": np.arange(rows) % 2 == 0,
            "maybe": [None, *[True, False] * ((rows - 1) // 2)],
            "k": [f"level {k % 5}" for k in range(rows)],
            "empty_text": [None, *["x"] * (rows - 1)],
            "d": pd.date_range("2020-01-01", periods=rows, unit="s"),
            "c": pd.Categorical([f"c{k % 3}" for k in range(rows)]),
        }
    )


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "parquet", "arrow", "feather"])
def test_a_mapped_table_is_the_same_as_one_in_memory(tmp_path, monkeypatch, ending):
    frame, path = table_of_all_kinds(501), tmp_path / f"t.{ending}"
    if ending.startswith("csv"):
        monkeypatch.setattr(text_files, "CHUNK", 2000)
        frame.to_csv(path, index=False)
    elif ending == "parquet":
        frame.to_parquet(path, row_group_size=100)
    else:
        feather.write_feather(frame, path, chunksize=100)
    in_memory = read_table(path)
    monkeypatch.setattr(gathered, "IN_MEMORY", 4000)
    mapped = read_table(path)
    pd.testing.assert_frame_equal(mapped, in_memory)
    base = mapped["f"].to_numpy()
    while isinstance(base, np.ndarray) and not isinstance(base, np.memmap):
        base = base.base
    assert isinstance(base, np.memmap)
    assert not list(tmp_path.glob("colonnade-*"))


def test_no_room_for_a_mapped_table_is_one_sentence(tmp_path, monkeypatch):
    def full(*args, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(gathered.MappedColumns, "_add_numbers", full)
    monkeypatch.setattr(gathered, "IN_MEMORY", 10)
    with pytest.raises(DataError, match=r"no room for it in .*No space left.*set TMPDIR to a larger disk"):
        read_table(write(tmp_path, "a\n1\n2\n"))


def test_a_zipped_file_of_windows_text_is_read(tmp_path):
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress("k;x\nä;1,5\n".encode("utf-16")))
    assert read_table(tmp_path / "t.csv.gz")["x"].tolist() == [1.5]


def test_row_numbers_that_pandas_stored_are_no_column(tmp_path):
    FRAME.iloc[[2, 0]].to_parquet(tmp_path / "t.parquet")
    assert list(read_table(tmp_path / "t.parquet")) == ["x", "k", "n"]
    FRAME.set_index("n").to_parquet(tmp_path / "t.parquet")
    assert list(read_table(tmp_path / "t.parquet")) == ["x", "k", "n"]  # an index with a name may be the id


def test_arrow_dictionaries_are_categories(tmp_path):
    feather.write_feather(pa.table({"c": pa.array(["a", "b"]).dictionary_encode()}), tmp_path / "t.arrow")
    assert read_table(tmp_path / "t.arrow")["c"].dtype == "category"
