"""Tables of different owners, joined on an id, as one Federation.

Behind `Federation.from_tables`. Rows are matched only by id, or only by position when no id is named;
whatever would make a match doubtful (an id twice, no id, labels whose order cannot be checked) is refused,
because a wrong join trains without complaint and is found months later.
"""

from __future__ import annotations

import difflib
import itertools
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch

from colonnade.data.beside import Beside
from colonnade.data.column_settings import PartyColumns, columns_of
from colonnade.data.columns import ColumnPlan
from colonnade.data.frames import FRAMES, Frames, Key, as_frame, by_party, listed, names_of, read_table
from colonnade.data.ids import Ids, Places, by_id, id_columns, is_in, places, told, written_differently
from colonnade.data.order import check_order_of_ids
from colonnade.data.preprocess import encode_labels
from colonnade.data.stored import check_can_store
from colonnade.errors import ConfigError, DataError, RowsDisagree, RowsLeftOut
from colonnade.extras import need
from colonnade.federation import Federation, RowSplit, Task
from colonnade.mapped import large
from colonnade.row_split import ColumnsFrom, SplitSettings, as_settings, rows_of
from colonnade.rows import RowIds, as_columns, check_order
from colonnade.tasks import Classes, Read

LABELS, WEIGHTS = "the labels", "the weights"
Keep = Literal["all", "labelled", "partial"]  # which rows of a join


def join_tables(  # noqa: PLR0913 - those of Federation.from_tables
    tables: Mapping[str, Any],
    *,
    labels: Any,
    id: Ids = None,
    task: Task | str | None = None,
    split: RowSplit | SplitSettings | Mapping[str, Any] | None = None,
    name: str | None = None,
    keep: Keep = "all",
    classes: Classes = None,
    positive: Any = None,
    weights: Any = None,
    by: str | None = None,
    columns: Any = None,
    columns_from: ColumnsFrom = "training",
) -> Federation:
    """Join the parties' tables and encode each party's columns on its own.

    Rows keep the order of the first table. A party whose only column was the label takes part in the join but holds
    no columns afterwards.

    Args:
        tables: one per party: a data frame of pandas or any other library, or a table file (`data.frames.read_table`).
        labels: a column name found in exactly one table; or a frame with the id and one label column; or an
            array aligned by position (with `id`, only if all tables list the same ids in the same order).
            Text classes are numbered in sorted order.
        id: the column to join on, a list of columns that are the id together, or one of these per party; without it all
            tables must have the same rows in the same order. A frame of labels has the id of one of the tables.
        task: what the labels are; None: guessed where they can be read in one way (`Federation.from_arrays`).
        split: rows of the joined table, or how to split them; None: at random, in the same proportion of each class,
            where rows have one. Partial rows train.
        name: the federation's name; None: those of its parties.
        keep: "all": ids that not every table and the labels have are left out with a warning that counts them, and an
            empty label is refused.
            "labelled": ids that have a label and that any table with columns has, in the same order as "partial".
            "partial": ids that any table with columns has stay, in the order of the first table, then of the second;
            an empty label is an unknown one. Statistics are then of the training rows that the columns' owner holds.
        classes: which classes there are, in their order (no, yes), or how many; None: those that occur.
        positive: of two classes the one that counts as yes; None: yes, true or 1, else the rarer one.
        weights: a column beside the labels, or one positive number per label in their order; None: all rows alike.
        by: a column beside the labels by whose groups the test rows are also measured; it stays a column of the model.
        columns: how columns become numbers: settings for all parties, and tables of settings by party
            (`column_settings`); None: as columns are.
        columns_from: whose statistics columns are encoded by: "training" rows, or "others", so that nothing about a
            training row is in them.

    Raises:
        ConfigError: `columns` names what is unknown, `keep` is something else, or "partial" without `id`.
        DataError: a table, column or label is not usable; the message names it.
        RowsDisagree: the tables share no id, or cannot be matched by position.
    """
    check_can_store()
    given = by_party("tables", tables)
    if not given:
        raise DataError("a federation needs at least one table; got none")
    settings = columns_of(columns, given)
    keys = id_columns(id, given)
    if not keys:
        check_order({**_named(given), LABELS: labels, WEIGHTS: weights}, "; or name an id to join on: id=...")
    aside = Beside(weights, SplitSettings() if isinstance(split, RowSplit) else as_settings(split), by)
    frames = {party: _indexed(party, table, keys.get(party), aside) for party, table in given.items()}
    _check_keep(keep, keys)
    holder = next((p for p, frame in frames.items() if isinstance(labels, str) and labels in frame.columns), None)
    if keys and getattr(getattr(weights, "index", None), "name", None) is None:  # row numbers, and no ids
        check_order({LABELS: labels if holder is None else given[holder], WEIGHTS: weights})
    frames, target = _take_labels(frames, labels, keys, aside)
    target, facts = aside.split_off(target, keys)
    if not keys:
        _check_lengths({**_named(frames), LABELS: target})
    owners = {party: frame for party, frame in frames.items() if len(frame.columns)}
    if not owners:
        raise DataError("no party has columns left besides the labels; a federation needs at least one")
    if keep == "all":
        rows = _common_rows(frames, target, facts, keys)
    else:
        rows = _any_rows(owners, target, facts, keep == "labelled")
    read = encode_labels(rows.labels, task, classes, positive)
    sources = [
        Source(p, frame, settings[p], keys.get(p), *((str(labels), tuple(aside.taken)) if p == holder else ()))
        for p, frame in owners.items()
    ]
    joined = _encoded(sources, rows, read, (split if isinstance(split, RowSplit) else None, columns_from), aside)
    return replace(
        joined,
        name=name or joined.name,
        ids=RowIds(rows.ids) if keys else (),
        by=aside.grouping(rows.facts),
        guest=holder if holder in owners else None,
    )


@dataclass(frozen=True)
class Matched:
    """The rows of a join, N of them: their ids, and where each is in every table and among the labels."""

    ids: Any
    at: Mapping[str, Places]  # (N,) by party
    labels: Any  # a frame of the known labels
    label_at: Places | None  # (N,) among these; None: they are those of all rows
    facts: Any  # (N,) a frame of what else is beside the labels


@dataclass(frozen=True)
class Source:
    """A party's columns by row, and what else its table had: the id, and if it holds them the label and its like."""

    party: str
    frame: Any
    settings: PartyColumns
    id: Key | None
    label: str | None = None
    aside: tuple[str, ...] = ()


def _indexed(party: str, table: Any, key: Key | None, aside: Beside) -> Any:
    """A party's table as a frame; with an id, indexed by it, with what of the id splits rows as columns."""
    if isinstance(table, (str, Path)):
        table = read_table(table, id=key)
    frame = as_frame(f"party {party!r}", table, key)
    if key is not None and not set(frame.columns) - {*names_of(key)}:
        raise DataError(f"party {party!r} has no columns besides the id {told(key)}; leave that table out")
    return frame if key is None else by_id(f"party {party!r}", frame, key, aside.in_id(key))


def _encoded(
    sources: Sequence[Source], rows: Matched, read: Read, parts: tuple[RowSplit | None, ColumnsFrom], aside: Beside
) -> Federation:
    """Every owner's columns as numbers, and the labels that were read, by row; `parts`: which rows are for what."""
    split, columns_from = parts
    at, told, labelled = rows.at, rows.facts, None
    held = torch.from_numpy(np.stack([at[source.party] >= 0 for source in sources], axis=1))
    if rows.label_at is not None:
        label_at = torch.from_numpy(rows.label_at)
        labelled = label_at >= 0
        full = torch.zeros(len(label_at), *read.values.shape[1:], dtype=read.values.dtype)
        full[labelled] = read.values[label_at[labelled]]
        read = replace(read, values=full)
    # Checks labels and split before any statistic is taken from training rows.
    nothing = {source.party: torch.zeros(1, 1).expand(len(held), 1) for source in sources}
    heavy = told["weights"].to_numpy() if "weights" in told.columns else None  # of unlabelled rows: not read
    choose = split or aside.splitter(told, read)
    agreed = Federation.of_read(nothing, read, split=choose, held=held, labelled=labelled, weights=heavy)
    plans, seen = {}, rows_of(columns_from, agreed.split.train, agreed.rows)
    for source in sources:
        mine = torch.from_numpy(at[source.party])[seen]
        plan = ColumnPlan.fit(source.party, source.frame, mine[mine >= 0], source.settings)
        plans[source.party] = replace(plan, id=source.id, label=source.label, aside=source.aside)
    on_disk = large(len(held) * sum(plan.width for plan in plans.values()))
    columns = {s.party: plans[s.party].encode(s.frame, at[s.party], on_disk=on_disk) for s in sources}
    parties = tuple(replace(p, columns=as_columns(p.name, columns[p.name])) for p in agreed.parties)
    return replace(agreed, parties=parties, scaled=True, plans=plans, columns_from=columns_from)


def _take_labels(frames: Frames, labels: Any, keys: Mapping[str, Key], aside: Beside) -> tuple[Frames, Any]:
    """The tables without the label, and the labels, with what is beside them, as a frame indexed like the tables."""
    pd = need("pandas", extra="tables", purpose="joining tables")
    if isinstance(labels, str):
        return _take_column(frames, labels, keys, aside)
    frames = _without_id(frames, keys, aside)
    if isinstance(labels, pd.Series) and any(labels.index.names == [*names_of(key)] for key in keys.values()):
        labels = labels.to_frame("label" if labels.name is None else labels.name)
    if isinstance(labels, pd.Series) or not any(hasattr(labels, name) for name in FRAMES):
        values = np.asarray(labels)
        if values.ndim not in (1, 2):
            raise DataError(
                f"labels: needed a column name, a frame or one label per row; got {type(labels).__name__} "
                f"of shape {values.shape}"
            )
        placed = _by_position(frames, pd.DataFrame(values), keys)
        if keys:
            check_order_of_ids(LABELS, labels, placed.index, next(iter(keys.values())))
        return frames, placed
    target = _label_frame(labels, keys, aside)
    for party, frame in frames.items():
        leaked = [column for column in target.columns if column in frame.columns]
        if leaked:
            raise DataError(f"party {party!r} also has the label column {leaked[0]!r}; drop it from that table")
    return frames, target


def _without_id(frames: Frames, keys: Mapping[str, Key], aside: Beside) -> Frames:
    """The tables without the columns of ids that rows are split by."""
    return {p: frame.drop(columns=list(aside.in_id(keys.get(p)))) for p, frame in frames.items()}


def _label_frame(labels: Any, keys: Mapping[str, Key], aside: Beside) -> Any:
    """A frame of labels, indexed by the one id column of the tables that it has."""
    if not keys:
        return as_frame("the labels", labels, None)
    read = {name: as_frame("the labels", labels, name) for name in dict.fromkeys(keys.values())}
    found = [key for key, frame in read.items() if set(names_of(key)) <= set(frame.columns)]
    if len(found) != 1:
        names = " or ".join(map(told, read))
        how = "no id column" if not found else "more than one id column"
        raise DataError(
            f"the labels have {how} {names} (columns: {listed(next(iter(read.values())))}); give them one, "
            "or pass an array"
        )
    return by_id("the labels", read[found[0]], found[0], aside.in_id(found[0]))


def _take_column(frames: Frames, label: str, keys: Mapping[str, Key], aside: Beside) -> tuple[Frames, Any]:
    owners = [p for p, frame in frames.items() if label in frame.columns and label not in names_of(keys.get(p))]
    if not owners:
        if any(label in names_of(key) for key in keys.values()):
            raise DataError(f"the id column {label!r} cannot also be the label")
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
    aside.check(f"the table of {owners[0]!r}", owner.columns)
    taken = [*dict.fromkeys([label, *aside.roles.values()])]
    others = _without_id(frames, keys, aside)
    return {**others, owners[0]: owner.drop(columns=[label, *aside.taken])}, owner[taken]


def _by_position(frames: Mapping[str, Any], target: Any, keys: Mapping[str, Key]) -> Any:
    """Labels without ids, indexed like the tables; with ids only where their order is certain."""
    if not keys:
        return target
    first = next(iter(frames.values())).index
    same = all(first.equals(frame.index) for frame in frames.values())
    if not same or len(target) != len(first):
        raise RowsDisagree(
            f"{len(target)} labels without ids cannot be matched to tables that do not all list the same "
            f"{len(target)} ids in the same order; pass a frame with the columns {told(next(iter(keys.values())))} and "
            "the label"
        )
    return target.set_axis(first, axis=0)


def _common_rows(frames: Mapping[str, Any], target: Any, facts: Any, keys: Mapping[str, Key]) -> Matched:
    """The rows that all tables and the labels have, in the order of the first table; without ids, all."""
    ids = next(iter(frames.values())).index if keys else target.index
    sides = {**_named(frames), LABELS: target}
    at = {whose: places(ids, side.index) if keys else np.arange(len(ids)) for whose, side in sides.items()}
    common = np.logical_and.reduce([found >= 0 for found in at.values()])
    shown = _apart(frames, target)
    if not common.any():
        first = {whose: side.index for whose, side in shown.items()}
        raise RowsDisagree(
            f"no id in column {' / '.join(map(told, dict.fromkeys(keys.values())))} is in all tables (first ids: "
            f"{_first_ids(first)}){_spelling(first)}; check that it is the same kind of id, written the same way"
        )
    if not common.all():
        ids, at = ids[common], {whose: found[common] for whose, found in at.items()}
    lost = {whose: _others(side.index, at[whose]) for whose, side in shown.items()}
    _warn_of_left_out(shown, lost, "rows whose id not every table has")
    by_party = dict(zip(frames, at.values(), strict=False))
    if not np.array_equal(at[LABELS], np.arange(len(target))):  # to take all rows would be to copy their ids
        target, facts = target.iloc[at[LABELS]], facts.iloc[at[LABELS]]
    return Matched(ids, by_party, target, None, facts)


def _any_rows(owners: Mapping[str, Any], target: Any, facts: Any, labelled: bool) -> Matched:
    """The rows that any table with columns has, and the labels that are known of them; or only rows with a label."""
    ids = _all_rows(owners)
    known = _known(target, ids)
    if labelled:
        ids = ids[is_in(ids, known.index)]
    lost = {LABELS: target.index[~is_in(target.index, ids)]}
    _warn_of_left_out({LABELS: target}, lost, "labels whose id no table has")
    at = {party: places(ids, frame.index) for party, frame in owners.items()}
    return Matched(ids, at, known, places(ids, known.index), facts.reindex(ids))


def _others(index: Any, at: Places) -> Any:
    """The ids that are at none of these places."""
    left = np.ones(len(index), dtype=bool)
    left[at] = False
    return index[left]


def _apart(frames: Mapping[str, Any], target: Any) -> Frames:
    """The tables, and the labels where they have rows of their own."""
    apart = not any(target.index is frame.index or target.index.equals(frame.index) for frame in frames.values())
    return {**_named(frames), **({LABELS: target} if apart else {})}


def _warn_of_left_out(tables: Mapping[str, Any], lost: Mapping[str, Any], which: str) -> None:
    """Say how many rows of whom are not among those that stay; with few left, also what the others' ids look like."""
    if not any(map(len, lost.values())):
        return
    told = ", ".join(f"{whose}: {len(lost[whose]):,} of {len(frame):,}" for whose, frame in tables.items())
    text = f"{which} are left out ({told})"
    if any(2 * len(lost[whose]) > len(frame) for whose, frame in tables.items()):
        text += f"; the first of them: {_first_ids({whose: ids for whose, ids in lost.items() if len(ids)})}"
    text += _spelling(lost)
    warnings.warn(f"{text}; if they should match, check how the ids are written", RowsLeftOut, stacklevel=5)


def _spelling(lost: Mapping[str, Any]) -> str:
    """Whether ids that were left out of two tables would meet if both were written alike."""
    pairs = itertools.combinations(lost.items(), 2)
    found = (written_differently(one, other).format(a, b) for (a, one), (b, other) in pairs)
    return next((f"; {text}" for text in found if text), "")


def _first_ids(ids: Mapping[str, Any]) -> str:
    return ", ".join(f"{whose} {some[0]!r}" for whose, some in ids.items())


def _all_rows(frames: Mapping[str, Any]) -> Any:
    """The ids that any table with columns has, in the order of the first table, then of the second, and so on."""
    first, *others = (frame.index for frame in frames.values() if len(frame.columns))
    for index in others:
        first = first.append(index[~is_in(index, first)])
    return first


def _known(target: Any, rows: Any) -> Any:
    """The labels that are not empty, of these rows."""
    known = target[is_in(target.index, rows) & target.notna().all(axis=1).to_numpy()]
    if not len(known):
        raise RowsDisagree(
            f"no row of the tables has a label (first ids: the tables {rows[0]!r}, the labels {target.index[0]!r}); "
            "check that the ids are written the same way"
        )
    return known


def _check_keep(keep: str, keys: Mapping[str, Key]) -> None:
    if keep not in get_args(Keep):
        raise ConfigError(f"keep = {keep!r}: needed {' or '.join(map(repr, get_args(Keep)))}")
    if keep != "all" and not keys:
        raise ConfigError(f"keep = {keep!r} needs an id to join on: without one nobody can tell which rows are missing")


def _check_lengths(frames: Mapping[str, Any]) -> None:
    lengths = {whose: len(frame) for whose, frame in frames.items()}
    if len(set(lengths.values())) > 1:
        raise RowsDisagree(
            "without an id all tables and the labels must have the same rows in the same order; got "
            + ", ".join(f"{whose}: {rows} rows" for whose, rows in lengths.items())
            + "; name the column to join on: id=..."
        )


def _named(frames: Mapping[str, Any]) -> Frames:
    return {f"party {party!r}": frame for party, frame in frames.items()}
