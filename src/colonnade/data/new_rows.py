"""New raw tables of the parties of a finished run, as rows that its networks read."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from colonnade.data.columns import ColumnPlan
from colonnade.data.frames import Frames, Key, as_frame, by_party, is_frame, names_of, read_table
from colonnade.data.ids import Ids, Places, id_columns_of_new, is_in, places, text_ids, told, written_differently
from colonnade.data.kinds import BOOLEAN
from colonnade.data.table_file import TextFormat
from colonnade.errors import DataError, DoubtfulData, RowsDisagree
from colonnade.extras import need
from colonnade.rows import Rows, check_order


def read_new_rows(plans: Mapping[str, ColumnPlan], tables: Any, id: Ids = None, some: bool = False) -> Rows:
    """Encode new tables with what was fitted in training; each answer keeps the order of the first table.

    Args:
        plans: how each party's columns become numbers.
        tables: one data frame or table file per party. Columns are found by name.
        id: the column to match rows on, or one per party, of which those of the training need no name; None: the one
            of the training where all tables have it, otherwise all tables have the same rows in the same order.
        some: parties may have no table and lack rows of others; rows that only other tables have follow the first's.

    Raises:
        DataError: somebody's table or column is missing, unknown or of another type.
        RowsDisagree: the tables do not have the same ids, or without ids not the same number of rows.
    """
    given = by_party("new tables", tables)
    check_parties(plans, given, some)
    old = {party: plan.id for party, plan in plans.items()}
    keys = id_columns_of_new(id, old)
    given = {
        party: read_raw(plans[party], table, key=keys.get(party)) if isinstance(table, (str, Path)) else table
        for party, table in given.items()
    }
    for party, table in given.items():
        if not is_frame(table):
            raise DataError(
                f"party {party!r}: got {type(table).__name__} without column names, which could be raw or encoded; "
                "pass a raw data frame with the columns of the training, or federation.select(rows)"
            )
    frames = {party: as_frame(f"party {party!r}", table, keys.get(party, old[party])) for party, table in given.items()}
    keys = keys or keys_of_training(frames, old)
    if not keys:
        check_order({f"party {party!r}": table for party, table in given.items()}, "; or name an id with id (--id)")
    frames, at, index = place_rows(frames, keys, some)
    here = {party: plan for party, plan in plans.items() if party in frames}
    held = {party: torch.from_numpy(rows >= 0) for party, rows in at.items() if (rows < 0).any()}
    columns = {party: plan.transform(frames[party], at.get(party)) for party, plan in here.items()}
    return Rows(columns, index, here, held=held)


def read_raw(plan: ColumnPlan, file: str | Path, written: TextFormat | None = None, key: Key | None = None) -> Any:
    """A party's table file; ids and the categories of the training stay text, whatever their values look like."""
    text = [name for name, kind in plan.categories.items() if kind != BOOLEAN]
    return read_table(file, id=key if key is not None else plan.id, categories=text, text=written)


def check_parties(wanted: Mapping[str, Any], given: Mapping[str, Any], some: bool = False) -> None:
    """Every party of the run has a table, or with `some` at least one; and nobody else."""
    missing, extra = [p for p in wanted if p not in given], [p for p in given if p not in wanted]
    if some and not given:
        raise DataError(f"prediction needs the columns of at least one of the parties {', '.join(wanted)}; got none")
    if extra or (missing and not some):
        odd = [f"{what} {', '.join(map(repr, who))}" for what, who in (("missing", missing), ("unknown", extra)) if who]
        raise DataError(
            f"prediction needs the columns of every party ({', '.join(wanted)}); {'; '.join(odd)}"
            + ("; absent='leave-out' predicts without a party, where the method can" if missing and not extra else "")
        )


def match_rows(frames: Mapping[str, Any], keys: Mapping[str, Key]) -> tuple[Frames, Any]:
    """The frames with equal rows in equal places, without their id columns, and a pandas.Index that names the rows."""
    placed, at, index = place_rows(frames, keys)
    return {party: frame.iloc[at[party]] if at else frame for party, frame in placed.items()}, index


def place_rows(
    frames: Mapping[str, Any], keys: Mapping[str, Key], some: bool = False
) -> tuple[Frames, dict[str, Places], Any]:
    """The same without a copy: frames in their own order, and where in each the rows are.

    With `some`, a table may lack rows of others: the place of such a row is -1.

    Returns:
        The frames without their id columns, indexed by ids; (N,) by party the place of each row, nothing without ids;
        and a pandas.Index that names the rows.
    """
    pd = need("pandas", extra="tables", purpose="a table")
    first, *others = frames
    if not keys:
        counts = {party: len(frame) for party, frame in frames.items()}
        if len(set(counts.values())) > 1:
            told = ", ".join(f"{party}: {rows} rows" for party, rows in counts.items())
            raise RowsDisagree(
                f"the tables have different numbers of rows ({told}); name a column to match them on with id (--id)"
            )
        return dict(frames), {}, pd.RangeIndex(counts[first])
    ids = {party: text_ids(f"party {party!r}", frame, keys[party]) for party, frame in frames.items()}
    names = _index(frames, keys)
    every = ids[first]
    for party in others if some else ():
        odd = ~is_in(ids[party], every)
        if odd.all():
            raise RowsDisagree(
                f"no id of {party!r} is in a table before it (first ids: {every[0]!r} and {ids[party][0]!r}); give "
                "them ids written the same way, or predict each table by itself"
            )
        every = every.append(ids[party][odd])
        names = names.append(_index({party: frames[party]}, keys)[odd].set_names(names.names))
    at = {party: places(every, theirs) for party, theirs in ids.items()}
    for party in others:
        if len(every) == len(ids[first]) == len(ids[party]) and (at[party] >= 0).all():
            continue
        written = written_differently(ids[first], ids[party]).format(repr(first), repr(party))
        if some and written:
            warnings.warn(
                f"{written}, and count as different rows; write them alike if they are the same", DoubtfulData, 2
            )
        elif not some:
            _check_same(ids, at[party], party, written)
    placed = {
        party: frame.drop(columns=list(names_of(keys[party]))).set_axis(ids[party], axis=0)
        for party, frame in frames.items()
    }
    return placed, at, names


def _check_same(ids: Mapping[str, Any], at: Places, party: str, written: str) -> None:
    """Refuse ids of a party that are not those of the first table; `at`: where in its table the first one's are."""
    first, theirs = next(iter(ids)), np.ones(len(ids[party]), dtype=bool)
    theirs[at[at >= 0]] = False
    sides = ((first, ids[first][at < 0]), (party, ids[party][theirs]))
    only = "; ".join(f"{len(odd):,} only in {whose!r}, for example {odd[0]!r}" for whose, odd in sides if len(odd))
    if only:
        how = f"; {written}" if written else ""
        raise RowsDisagree(
            f"the ids of {first!r} and {party!r} differ ({only}){how}; give both the same rows, with ids written the "
            "same way"
        )


def _index(frames: Mapping[str, Any], keys: Mapping[str, Key]) -> Any:
    """The ids of the first table as it has them."""
    pd = need("pandas", extra="tables", purpose="a table")
    first = next(iter(frames))
    names = names_of(keys[first])
    if len(names) > 1:
        return pd.MultiIndex.from_frame(frames[first][list(names)])
    return pd.Index(frames[first][names[0]], name=names[0])


def keys_of_training(frames: Mapping[str, Any], old: Mapping[str, Key | None]) -> dict[str, Key]:
    """The ids of the training, if all tables have them; none, if no table does."""
    keys = {
        party: key
        for party, frame in frames.items()
        if (key := old[party]) is not None and set(names_of(key)) <= set(frame.columns)
    }
    lacking = [(party, key) for party in frames if party not in keys and (key := old[party]) is not None]
    if keys and lacking:
        party, key = lacking[0]
        raise DataError(
            f"party {party!r} has no id column {told(key)}, and party {next(iter(keys))!r} has one; give "
            "all tables their ids, or none"
        )
    return keys
