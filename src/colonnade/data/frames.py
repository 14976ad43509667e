"""Tables of any kind as pandas data frames: files, frames of other libraries, and the ids of their rows."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from colonnade.errors import ConfigError, DataError, MissingData
from colonnade.extras import need

Ids = str | Mapping[str, str] | None  # the id column of all tables, one name per party, or none

FRAMES = ("__dataframe__", "__arrow_c_stream__")  # what data frames of any library offer
SEPARATORS = {".csv": ",", ".csv.gz": ",", ".tsv": "\t", ".tsv.gz": "\t"}


def read_table(path: str | Path, *, id: str | None = None, categories: Sequence[str] = ()) -> Any:
    """A table file as a pandas.DataFrame.

    Args:
        path: a .csv, .csv.gz, .tsv, .tsv.gz or .parquet file; a .csv file may have semicolons between its columns.
        id: the id column, kept as text so that '007' does not become 7 in one party's file only.
        categories: columns that are read as text categories even where their values look like numbers.

    Raises:
        MissingData: the file is not there.
        DataError: the file is of another kind, cannot be read, or pandas is not installed.
    """
    path = Path(path)
    endings = (*SEPARATORS, ".parquet")
    ending = next((e for e in endings if path.name.lower().endswith(e)), None)
    if ending is None:
        raise DataError(f"table file {str(path)!r}: the name must end in one of {', '.join(endings)}")
    if not path.is_file():
        raise MissingData(f"table file {str(path)!r} does not exist; check the path")
    pd = need("pandas", extra="tables", purpose="reading a table file")
    try:
        if ending == ".parquet":
            frame = pd.read_parquet(path)
        else:
            text = dict.fromkeys([*categories, *([] if id is None else [id])], str)
            frame = pd.read_csv(path, sep=_separator(path, SEPARATORS[ending]), dtype=text)
    except ImportError:
        raise DataError(f"reading {str(path)!r} needs pyarrow; run: pip install colonnade[tables]") from None
    except (ValueError, OSError, EOFError) as error:  # pandas' parser errors are ValueErrors
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise DataError(f"table file {str(path)!r} cannot be read as {ending}: {reason}") from None
    return _with_categories(frame, categories)


def _separator(path: Path, usual: str) -> str:
    """Semicolons, where the header read with commas is one column with semicolons in it."""
    header = list(need("pandas", extra="tables", purpose="reading a table file").read_csv(path, sep=usual, nrows=0))
    return ";" if usual == "," and len(header) == 1 and ";" in str(header[0]) else usual


def _with_categories(frame: Any, categories: Sequence[str]) -> Any:
    for name in categories:
        if name in frame.columns:
            known = frame[name].notna()
            frame[name] = frame[name].astype(object).map(str).where(known).astype("category")
    return frame


def as_frame(whose: str, table: Any, key: str | None) -> Any:
    """A pandas.DataFrame of our own, with text column names; an index named like the id becomes a column."""
    pd = need("pandas", extra="tables", purpose="joining tables")
    check_no_path(whose, table)
    if isinstance(table, pd.DataFrame):
        frame = table.copy(deep=False)
    elif hasattr(table, "__arrow_c_stream__"):  # polars, pyarrow, duckdb
        frame = need("pyarrow", extra="tables", purpose=f"reading a {type(table).__name__}").table(table).to_pandas()
    elif hasattr(table, "__dataframe__"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # pandas 3 deprecates this protocol; older libraries have no other
            frame = pd.api.interchange.from_dataframe(table)
    else:
        try:
            frame = pd.DataFrame(table)
        except (ValueError, TypeError) as error:
            raise DataError(f"{whose}: needed a data frame, got {type(table).__name__} ({error})") from None
    frame = frame.reset_index(drop=not (key is not None and frame.index.name == key and key not in frame.columns))
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


def is_frame(table: Any) -> bool:
    """Whether a table has column names: a data frame of any library, or a dict of columns."""
    return isinstance(table, Mapping) or any(hasattr(table, name) for name in FRAMES)


def by_party(what: str, tables: Any) -> dict[str, Any]:
    """The tables or columns by party name, or one sentence about what to pass instead of a list."""
    if not isinstance(tables, Mapping):
        raise DataError(
            f"{what} must be given by party name, e.g. {{'bank': ..., 'telco': ...}}; got {type(tables).__name__}"
        )
    return {str(party): table for party, table in tables.items()}


def id_columns(id: Ids, parties: Iterable[str]) -> dict[str, str]:
    """The id column of each party's table; empty where no id is named."""
    names = list(parties)
    if id is None:
        return {}
    if isinstance(id, str):
        return dict.fromkeys(names, id)
    if not isinstance(id, Mapping):
        raise ConfigError(f"id: needed a column name, or one per party; got {type(id).__name__}")
    for party in (*names, *id):
        if party not in id:
            raise ConfigError(f"id names no column for party {party!r}; give one for each of {', '.join(names)}")
        if party not in names:
            raise ConfigError(f"id names a column for {party!r}, who has no table; parties: {', '.join(names)}")
        if not isinstance(id[party], str):
            raise ConfigError(f"id of party {party!r}: needed a column name; got {id[party]!r}")
    return {party: id[party] for party in names}


def ids_of(whose: str, table: Any, id: str) -> tuple[str, ...]:
    """The ids of a table as text, in its order; `DataError` if the column is missing or an id is empty or repeated."""
    return tuple(text_ids(whose, as_frame(whose, table, id), id))


def by_id(whose: str, frame: Any, key: str) -> Any:
    """The frame indexed by its ids as text."""
    ids = text_ids(whose, frame, key)
    return frame.drop(columns=key).set_axis(ids, axis=0)


def text_ids(whose: str, frame: Any, key: str) -> list[str]:
    """Ids as text, so that 7 in one table meets '7' in another."""
    types = need("pandas", extra="tables", purpose="joining tables").api.types
    if key not in frame.columns:
        raise DataError(f"{whose} has no id column {key!r}; columns: {listed(frame)}")
    values = frame[key]
    if types.is_float_dtype(values.dtype) and bool((values % 1 == 0).all()) and float(values.abs().max()) < 2**53:
        values = values.astype(np.int64)  # 7.0 is how a whole number looks after a trip through a spreadsheet
    text = values.astype(object).map(str)
    empty = (values.isna() | (text.str.strip() == "")).to_numpy().nonzero()[0]
    if len(empty):
        raise DataError(
            f"{whose}, id column {key!r}: {len(empty)} ids are empty (first at rows "
            f"{', '.join(map(str, empty[:3]))}, counted from 0); give those rows an id or drop them"
        )
    twice = text[text.duplicated()].unique()
    if len(twice):
        raise DataError(
            f"{whose}, id column {key!r}: {len(twice)} ids occur more than once "
            f"(first: {', '.join(map(repr, twice[:3]))}); keep one row per id"
        )
    texts: list[str] = text.to_list()
    return texts


def listed(frame: Any) -> str:
    """The first column names, for messages."""
    names = [repr(str(column)) for column in frame.columns]
    return ", ".join(names[:10]) + (f", ... ({len(names)} in all)" if len(names) > 10 else "")
