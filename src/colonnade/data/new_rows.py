"""New raw tables of the parties of a finished run, as rows that its networks read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from colonnade.data.columns import ColumnPlan
from colonnade.data.frames import Ids, as_frame, by_party, check_no_path, id_columns, is_frame, text_ids
from colonnade.errors import DataError, RowsDisagree
from colonnade.extras import need
from colonnade.rows import Rows


def read_new_rows(plans: Mapping[str, ColumnPlan], tables: Any, id: Ids = None) -> Rows:
    """Encode new tables with what was fitted in training; each answer keeps the order of the first table.

    Args:
        plans: how each party's columns become numbers.
        tables: one data frame per party. Columns are found by name.
        id: the column to match rows on, or one per party; None: the one of the training where all tables have it,
            otherwise all tables have the same rows in the same order.

    Raises:
        DataError: somebody's table or column is missing, unknown or of another type.
        RowsDisagree: the tables do not have the same ids, or without ids not the same number of rows.
    """
    given = by_party("new tables", tables)
    check_parties(plans, given)
    for party, table in given.items():
        check_no_path(f"party {party!r}", table)
        if not is_frame(table):
            raise DataError(
                f"party {party!r}: got {type(table).__name__} without column names, which could be raw or encoded; "
                "pass a raw data frame with the columns of the training, or federation.select(rows)"
            )
    keys = id_columns(id, plans)
    old = {party: plan.id for party, plan in plans.items()}
    frames = {party: as_frame(f"party {party!r}", table, keys.get(party, old[party])) for party, table in given.items()}
    frames, index = match_rows(frames, keys or _keys_of_training(frames, old))
    return Rows({party: plan.transform(frames[party]) for party, plan in plans.items()}, index, plans)


def check_parties(wanted: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Every party of the run has a table, and nobody else."""
    missing, extra = [p for p in wanted if p not in given], [p for p in given if p not in wanted]
    if missing or extra:
        raise DataError(
            f"prediction needs the columns of every party ({', '.join(wanted)}); missing {missing}, unknown {extra}"
        )


def match_rows(frames: Mapping[str, Any], keys: Mapping[str, str]) -> tuple[dict[str, Any], Any]:
    """The frames with equal rows in equal places, without their id columns, and a pandas.Index that names the rows."""
    pd = need("pandas", extra="tables", purpose="a table")
    first, *others = frames
    if not keys:
        counts = {party: len(frame) for party, frame in frames.items()}
        if len(set(counts.values())) > 1:
            told = ", ".join(f"{party}: {rows} rows" for party, rows in counts.items())
            raise RowsDisagree(
                f"the tables have different numbers of rows ({told}); name a column to match them on with id (--id)"
            )
        return dict(frames), pd.RangeIndex(counts[first])
    ids = {party: pd.Index(text_ids(f"party {party!r}", frame, keys[party])) for party, frame in frames.items()}
    for party in others:
        mine, theirs = ids[first].difference(ids[party]), ids[party].difference(ids[first])
        if len(mine) or len(theirs):
            sides = ((first, mine), (party, theirs))
            told = "; ".join(
                f"{len(odd):,} only in {whose!r}, for example {odd[0]!r}" for whose, odd in sides if len(odd)
            )
            raise RowsDisagree(
                f"the ids of {first!r} and {party!r} differ ({told}); give both the same rows, with ids written the "
                "same way"
            )
    places = {party: mine.get_indexer(ids[first]) for party, mine in ids.items()}
    matched = {
        party: frame.drop(columns=keys[party]).iloc[places[party]].set_axis(ids[first], axis=0)
        for party, frame in frames.items()
    }
    return matched, pd.Index(frames[first][keys[first]], name=keys[first])


def _keys_of_training(frames: Mapping[str, Any], old: Mapping[str, str | None]) -> dict[str, str]:
    """The id columns of the training, if all tables have them; none, if no table does."""
    keys = {party: old[party] for party, frame in frames.items() if old[party] in frame.columns}
    lacking = [party for party in frames if party not in keys]
    if keys and lacking:
        raise DataError(
            f"party {lacking[0]!r} has no id column {old[lacking[0]]!r}, and party {next(iter(keys))!r} has one; give "
            "all tables their ids, or none"
        )
    return {party: key for party, key in keys.items() if key is not None}
