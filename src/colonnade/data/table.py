"""Tables of different owners, joined on an id, as one Federation.

Behind `Federation.from_tables`. Rows are matched only by id, or only by position when no id is named;
whatever would make a match doubtful (an id twice, no id, labels whose order cannot be checked) is refused,
because a wrong join trains without complaint and is found months later.
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from colonnade.data.preprocess import encode, encode_labels, listed
from colonnade.errors import ConfigError, DataError, MissingData, RowsDisagree
from colonnade.extras import need
from colonnade.federation import Federation, RowSplit, Task

FRAMES = ("__dataframe__", "__arrow_c_stream__")  # what data frames of any library offer
KEEP = ("all", "partial")  # which rows of a join, in the words of `colonnade align`
SEPARATORS = {".csv": ",", ".csv.gz": ",", ".tsv": "\t", ".tsv.gz": "\t"}


def join_tables(
    tables: Mapping[str, Any],
    *,
    labels: Any,
    id: str | None = None,
    task: Task | str | None = None,
    split: RowSplit | None = None,
    name: str = "federation",
    keep: Literal["all", "partial"] = "all",
) -> Federation:
    """Join the parties' tables and encode each party's columns on its own.

    Rows keep the order of the first table. A party whose only column was the label takes part in the join but holds
    no columns afterwards.

    Args:
        tables: one data frame per party: pandas, or anything pandas can read.
        labels: a column name found in exactly one table; or a frame with the id and one label column; or an
            array aligned by position (with `id`, only if all tables list the same ids in the same order).
            Text classes are numbered in sorted order.
        id: the column to join on; without it all tables must have the same rows in the same order.
        task: what the labels are; guessed from the labels if None.
        split: rows of the joined table; a random split if None, in which partial rows train.
        name: the federation's name.
        keep: "all": ids that not every table and the labels have are left out, and an empty label is refused.
            "partial": ids that any table with columns has stay, in the order of the first table, then of the second;
            an empty label is an unknown one. Statistics are then of the training rows that the columns' owner holds.

    Raises:
        ConfigError: `keep` is something else, or "partial" without `id`.
        DataError: a table, column or label is not usable; the message names it.
        RowsDisagree: the tables share no id, or cannot be matched by position.
    """
    frames = {str(party): _frame(f"party {party!r}", table, id) for party, table in tables.items()}
    if not frames:
        raise DataError("a federation needs at least one table; got none")
    for party, frame in frames.items():
        if not set(frame.columns) - {id}:
            raise DataError(f"party {party!r} has no columns besides the id {id!r}; leave that table out")
    _check_keep(keep, id)
    frames, target = _take_labels(frames, labels, id)
    if id is None:
        _check_lengths({**_named(frames), "the labels": target})
    else:
        frames, target = _by_ids(frames, target, id)
    owners = {party: frame for party, frame in frames.items() if len(frame.columns)}
    if not owners:
        raise DataError("no party has columns left besides the labels; a federation needs at least one")
    if keep == "partial":
        rows = _all_rows(owners)
        target = _known(target, rows)
    else:
        rows = target.index if id is None else _common_rows(frames, target, id)
        owners, target = {party: frame.loc[rows] for party, frame in owners.items()}, target.loc[rows]
    y, names = encode_labels(target, Task(task) if task is not None else None)
    ids = () if id is None else tuple(rows)
    joined = _encoded(owners, rows, (y, target.index), (task, split))
    return replace(joined, name=name, ids=ids, class_names=names)


def _encoded(
    frames: Mapping[str, Any], rows: Any, labels: tuple[Any, Any], choices: tuple[Task | str | None, RowSplit | None]
) -> Federation:
    """Every owner's columns as numbers; `rows` are all ids, `labels` the known ones with theirs."""
    (y, known), (task, split) = labels, choices
    places = {party: torch.from_numpy(rows.get_indexer(frame.index)) for party, frame in frames.items()}
    held = torch.zeros(len(rows), len(frames), dtype=torch.bool)
    for place, at in enumerate(places.values()):
        held[at, place] = True
    labelled, full = rows.isin(known), np.zeros((len(rows), *y.shape[1:]), dtype=y.dtype)
    full[rows.get_indexer(known)] = y
    # Checks labels and split before any statistic is taken from training rows.
    nothing = dict.fromkeys(frames, torch.zeros(len(rows), 1))
    agreed = Federation.from_arrays(nothing, full, task=task, split=split, held=held, labelled=labelled)
    columns = {}
    for party, frame in frames.items():
        at = torch.full((len(rows),), -1)
        at[places[party]] = torch.arange(len(frame))
        train = at[agreed.split.train]
        values = encode(party, frame, train[train >= 0])
        columns[party] = torch.zeros(len(rows), values.shape[1], dtype=values.dtype)
        columns[party][places[party]] = values
    return Federation.from_arrays(
        columns, full, task=agreed.task, split=agreed.split, scaled=True, held=held, labelled=labelled
    )


def read_table(path: str | Path, *, id: str | None = None) -> Any:
    """A table file as a pandas.DataFrame.

    Args:
        path: a .csv, .csv.gz, .tsv, .tsv.gz or .parquet file.
        id: the id column, kept as text so that '007' does not become 7 in one party's file only.

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
            return pd.read_parquet(path)
        return pd.read_csv(path, sep=SEPARATORS[ending], dtype=None if id is None else {id: str})
    except ImportError:
        raise DataError(f"reading {str(path)!r} needs pyarrow; run: pip install colonnade[tables]") from None
    except (ValueError, OSError, EOFError) as error:  # pandas' parser errors are ValueErrors
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise DataError(f"table file {str(path)!r} cannot be read as {ending}: {reason}") from None


def _frame(whose: str, table: Any, key: str | None) -> Any:
    """A pandas.DataFrame of our own, with text column names; an index named like the id becomes a column."""
    pd = need("pandas", extra="tables", purpose="joining tables")
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
            raise DataError(f"{whose}: wanted a data frame, got {type(table).__name__} ({error})") from None
    frame = frame.reset_index(drop=not (key is not None and frame.index.name == key and key not in frame.columns))
    frame.columns = [str(column) for column in frame.columns]
    twice = frame.columns[frame.columns.duplicated()]
    if len(twice):
        raise DataError(f"{whose} has the column {twice[0]!r} more than once; rename or drop one")
    if not len(frame):
        raise DataError(f"{whose} has no rows; wanted at least one")
    return frame


def _take_labels(frames: dict[str, Any], labels: Any, key: str | None) -> tuple[dict[str, Any], Any]:
    """The tables without the label, and the labels as a frame: with the id column if they came with one."""
    pd = need("pandas", extra="tables", purpose="joining tables")
    if isinstance(labels, str):
        return _take_column(frames, labels, key)
    if isinstance(labels, pd.Series) and key is not None and labels.index.name == key:
        labels = labels.to_frame("label" if labels.name is None else labels.name)
    if isinstance(labels, pd.Series) or not any(hasattr(labels, name) for name in FRAMES):
        values = np.asarray(labels)
        if values.ndim not in (1, 2):
            raise DataError(
                f"labels: wanted a column name, a frame or one label per row; got {type(labels).__name__} "
                f"of shape {values.shape}"
            )
        return frames, pd.DataFrame(values)
    target = _frame("the labels", labels, key)
    if key is not None and key not in target.columns:
        raise DataError(f"the labels have no id column {key!r} (columns: {listed(target)}); add it, or pass an array")
    for party, frame in frames.items():
        leaked = [column for column in target.columns if column != key and column in frame.columns]
        if leaked:
            raise DataError(f"party {party!r} also has the label column {leaked[0]!r}; drop it from that table")
    return frames, target


def _take_column(frames: dict[str, Any], label: str, key: str | None) -> tuple[dict[str, Any], Any]:
    if label == key:
        raise DataError(f"the id column {key!r} cannot also be the label")
    owners = [party for party, frame in frames.items() if label in frame.columns]
    if not owners:
        known = sorted({column for frame in frames.values() for column in frame.columns})
        close = difflib.get_close_matches(label, known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"columns: {', '.join(known[:20])}"
        raise DataError(f"no table has the label column {label!r}; {hint}")
    if len(owners) > 1:
        raise DataError(
            f"the label column {label!r} is in the tables of {' and '.join(map(repr, owners))}; "
            "drop it from all but one, or a party would train on the answer"
        )
    owner = frames[owners[0]]
    keep = [label] if key is None or key not in owner.columns else [key, label]
    return {**frames, owners[0]: owner.drop(columns=label)}, owner[keep]


def _by_ids(frames: dict[str, Any], target: Any, key: str) -> tuple[dict[str, Any], Any]:
    """Tables and labels indexed by their ids as text; labels without ids only where their order is certain."""
    frames = {party: _by_id(f"party {party!r}", frame, key) for party, frame in frames.items()}
    if key in target.columns:
        return frames, _by_id("the labels", target, key)
    first = next(iter(frames.values())).index
    same = all(first.equals(frame.index) for frame in frames.values())
    if not same or len(target) != len(first):
        raise RowsDisagree(
            f"{len(target)} labels without ids cannot be matched to tables that do not all list the same "
            f"{len(target)} ids in the same order; pass a frame with the columns {key!r} and the label"
        )
    return frames, target.set_axis(first, axis=0)


def _common_rows(frames: Mapping[str, Any], target: Any, key: str) -> Any:
    """The ids that all tables and the labels have, in the order of the first table."""
    common = next(iter(frames.values())).index
    for other in (*frames.values(), target):
        common = common[common.isin(other.index)]
    if not len(common):
        some = {whose: frame.index[0] for whose, frame in {**_named(frames), "the labels": target}.items()}
        raise RowsDisagree(
            f"no id in column {key!r} is in all tables (first ids: "
            + ", ".join(f"{whose} {value!r}" for whose, value in some.items())
            + "); check that it is the same kind of id, written the same way"
        )
    return common


def _all_rows(frames: Mapping[str, Any]) -> Any:
    """The ids that any table with columns has, in the order of the first table, then of the second, and so on."""
    first, *others = (frame.index for frame in frames.values() if len(frame.columns))
    for index in others:
        first = first.append(index[~index.isin(first)])
    return first


def _known(target: Any, rows: Any) -> Any:
    """The labels that are not empty, of these rows."""
    known = target[target.index.isin(rows) & target.notna().all(axis=1)]
    if not len(known):
        raise RowsDisagree("no row of the tables has a label; check that the ids are written the same way")
    return known


def ids_of(whose: str, table: Any, id: str) -> tuple[str, ...]:
    """The ids of a table as text, in its order; `DataError` if the column is missing or an id is empty or repeated."""
    return tuple(_text_ids(whose, _frame(whose, table, id), id))


def _by_id(whose: str, frame: Any, key: str) -> Any:
    """The frame indexed by its ids as text."""
    ids = _text_ids(whose, frame, key)
    return frame.drop(columns=key).set_axis(ids, axis=0)


def _text_ids(whose: str, frame: Any, key: str) -> list[str]:
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


def _check_keep(keep: str, key: str | None) -> None:
    if keep not in KEEP:
        raise ConfigError(f"keep = {keep!r}: wanted {' or '.join(map(repr, KEEP))}")
    if keep == "partial" and key is None:
        raise ConfigError("keep = 'partial' needs an id to join on: without one nobody can tell which rows are missing")


def _check_lengths(frames: Mapping[str, Any]) -> None:
    lengths = {whose: len(frame) for whose, frame in frames.items()}
    if len(set(lengths.values())) > 1:
        raise RowsDisagree(
            "without an id all tables and the labels must have the same rows in the same order; got "
            + ", ".join(f"{whose}: {rows} rows" for whose, rows in lengths.items())
            + "; name the column to join on: id=..."
        )


def _named(frames: Mapping[str, Any]) -> dict[str, Any]:
    return {f"party {party!r}": frame for party, frame in frames.items()}
