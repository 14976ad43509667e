"""Tables of any kind as pandas data frames: files, and frames of other libraries."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from colonnade.data.file_doubts import doubts_of
from colonnade.data.gathered import as_pandas, gather
from colonnade.data.table_file import TextFormat
from colonnade.data.text_files import read_text_tables
from colonnade.errors import DataError, MissingData
from colonnade.extras import need

FRAMES = ("__dataframe__", "__arrow_c_stream__")  # what data frames of any library offer
ARROW = (".parquet", ".arrow", ".feather")
ENDINGS = (".csv", ".csv.gz", ".tsv", ".tsv.gz", *ARROW)
ROW_NUMBERS = "__index_level_"  # how pandas calls row numbers in a file
BATCH = 1 << 14  # rows that are read at once

Frames = dict[str, Any]  # data frames by party; pandas has no types
Key = str | tuple[str, ...]  # the id column of a table, or several that are the id together


def read_table(
    path: str | Path, *, id: Key | None = None, categories: Sequence[str] = (), text: TextFormat | None = None
) -> Any:
    """A table file as a pandas.DataFrame; the columns of large ones are mapped from a file, not loaded.

    Args:
        path: a .csv, .tsv (or .gz of them), .parquet, .arrow or .feather file.
        id: the id column, or several that are the id together, kept as text so that '007' does not become 7 in one
            party's file only.
        categories: columns that are read as text categories even where their values look like numbers.
        text: how a text file is written; None: as its first rows show, refused where they leave it open.

    Raises:
        MissingData: the file is not there.
        DataError: the file is of another kind, cannot be read, or pandas or pyarrow is not installed.
    """
    path = Path(path)
    ending = next((e for e in ENDINGS if path.name.lower().endswith(e)), None)
    if ending is None:
        raise DataError(f"table file {str(path)!r}: the name must end in one of {', '.join(ENDINGS)}")
    if not path.is_file():
        raise MissingData(f"table file {str(path)!r} does not exist; check the path")
    need("pandas", extra="tables", purpose="reading a table file")
    need("pyarrow", extra="tables", purpose=f"reading {str(path)!r}")
    try:
        if ending in ARROW:
            frame = gather(_arrow_tables(path, ending))
        else:
            frame = gather(read_text_tables(path, text or TextFormat(), [*categories, *names_of(id)]))
            frame.attrs |= doubts_of(path, text or TextFormat())
    except (ValueError, OSError, EOFError, DataError) as error:  # parser errors of pyarrow are ValueErrors
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise DataError(f"table file {str(path)!r} cannot be read as {ending}: {reason}") from None
    return _with_categories(frame, categories)


def _arrow_tables(path: Path, ending: str) -> Iterator[tuple[bool, Any]]:
    """(whether to begin again, a pyarrow table of rows); whole numbers become float64 where some are empty."""
    pa = need("pyarrow", extra="tables", purpose="reading a table file")
    schema, parts = _opened(path, ending)
    whole = {field.name for field in schema if pa.types.is_integer(field.type)}
    holes: set[str] = set()
    again = True
    while again:
        rows = 0
        for batch in parts():
            table = _without_row_numbers(pa.Table.from_batches([batch]), rows)
            found = {name for name in whole - holes if name in table.column_names and table.column(name).null_count}
            if found:
                holes |= found
                again = True
                break
            for name in holes:
                table = table.set_column(table.column_names.index(name), name, table.column(name).cast(pa.float64()))
            yield again, table
            again, rows = False, rows + len(table)
        else:
            return


def _without_row_numbers(table: Any, rows: int) -> Any:
    """Some rows of a file, after `rows` others, without the row numbers of pandas; an index with a name is a column."""
    stored = json.loads((table.schema.metadata or {}).get(b"pandas", b"{}")).get("index_columns", [])
    for index in stored:
        if isinstance(index, dict) and index.get("name") is not None:  # a range, stored as its start and step
            step = index["step"]
            values = index["start"] + step * np.arange(rows, rows + len(table))
            table = table.append_column(index["name"], [values])
    unnamed = [name for name in table.column_names if name.startswith(ROW_NUMBERS)]
    return table.drop_columns(unnamed).replace_schema_metadata(None)


def _opened(path: Path, ending: str) -> tuple[Any, Callable[[], Iterable[Any]]]:
    """The schema of a binary file, and what reads its batches from the beginning."""
    if ending == ".parquet":
        parquet = need("pyarrow.parquet", extra="tables", purpose="reading a Parquet file")
        file = parquet.ParquetFile(
            path, memory_map=True, pre_buffer=False
        )  # a buffer would come to hold the whole file
        return file.schema_arrow, lambda: file.iter_batches(BATCH)
    whole = need("pyarrow.feather", extra="tables", purpose="reading an Arrow file").read_table(path, memory_map=True)
    return whole.schema, lambda: whole.to_batches(BATCH)


def _with_categories(frame: Any, categories: Sequence[str]) -> Any:
    for name in categories:
        if name in frame.columns:
            known = frame[name].notna()
            frame[name] = frame[name].astype(object).map(str).where(known).astype("category")
    return frame


def as_frame(whose: str, table: Any, key: Key | None) -> Any:
    """A pandas.DataFrame of our own, with text column names; an index named like the id becomes a column."""
    pd = need("pandas", extra="tables", purpose="joining tables")
    check_no_path(whose, table)
    if isinstance(table, pd.DataFrame):
        frame = table.copy(deep=False)
    elif hasattr(table, "__arrow_c_stream__"):  # polars, pyarrow, duckdb
        frame = as_pandas(need("pyarrow", extra="tables", purpose=f"reading a {type(table).__name__}").table(table))
    elif hasattr(table, "__dataframe__"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # pandas 3 deprecates this protocol; older libraries have no other
            frame = pd.api.interchange.from_dataframe(table)
    else:
        try:
            frame = pd.DataFrame(table)
        except (ValueError, TypeError) as error:
            raise DataError(f"{whose}: needed a data frame, got {type(table).__name__} ({error})") from None
    levels = [name for name in frame.index.names if name in names_of(key) and name not in frame.columns]
    frame = frame.reset_index(level=levels).reset_index(drop=True) if levels else frame.reset_index(drop=True)
    frame.columns = [str(column) for column in frame.columns]
    twice = frame.columns[frame.columns.duplicated()]
    if len(twice):
        raise DataError(f"{whose} has the column {twice[0]!r} more than once; rename or drop one")
    if not len(frame):
        raise DataError(f"{whose} has no rows; needed at least one")
    return frame


def check_no_path(whose: str, table: Any) -> None:
    """Refuse a file's name where its content was needed."""
    if isinstance(table, (str, Path)):
        raise DataError(
            f"{whose}: needed a data frame, got the text {str(table)!r}; if that is a file, read it first, for example "
            f"pandas.read_csv({str(table)!r})"
        )


def names_of(key: Key | None) -> tuple[str, ...]:
    """The columns of an id; none where there is no id."""
    return () if key is None else (key,) if isinstance(key, str) else key


def is_frame(table: Any) -> bool:
    """Whether a table has column names: a data frame of any library, or a dict of columns."""
    return isinstance(table, Mapping) or any(hasattr(table, name) for name in FRAMES)


def by_party(what: str, tables: Any) -> Frames:
    """The tables or columns by party name, or one sentence about what to pass instead of a list."""
    if not isinstance(tables, Mapping):
        raise DataError(
            f"{what} must be given by party name, e.g. {{'bank': ..., 'telco': ...}}; got {type(tables).__name__}"
        )
    return {str(party): table for party, table in tables.items()}


def listed(frame: Any) -> str:
    """The first column names, for messages."""
    names = [repr(str(column)) for column in frame.columns]
    return ", ".join(names[:10]) + (f", ... ({len(names)} in all)" if len(names) > 10 else "")
