"""What is given to an estimator, as columns or tables by party, with labels and weights in one order of rows."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from colonnade.data.frames import Frames, Key, as_frame, by_party, is_frame, names_of
from colonnade.data.ids import Ids, id_columns, is_in, places, text_ids
from colonnade.data.order import check_order_of_ids
from colonnade.errors import EstimatorInput, RowsLeftOut
from colonnade.estimators.owners import Owners
from colonnade.federation import Federation, RowSplit
from colonnade.rows import check_order

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Given:
    """Rows of all parties with their labels and weights; row i of everything is the same row."""

    columns: Mapping[str, Any] = field(repr=False)  # by party: arrays (N, F), or data frames
    y: Array = field(repr=False)  # (N,) or (N, K)
    weights: Array | None = field(repr=False)  # (N,) not negative; None: all alike
    keys: Mapping[str, Key] = field(default_factory=dict)  # the ids of data frames; empty: they have none

    def that_count(self) -> Given:
        """Without rows of weight zero: as scikit-learn means it, such a row is not there."""
        if self.weights is None or bool((self.weights > 0).all()):
            return self
        kept = (self.weights > 0).nonzero()[0]
        if not len(kept):
            raise EstimatorInput("sample_weight: all weights are zero; needed at least one row that counts")
        columns = {party: _rows(columns, kept) for party, columns in self.columns.items()}
        return Given(columns, self.y[kept], self.weights[kept], self.keys)

    @property
    def framed(self) -> bool:
        """Whether columns are those of data frames."""
        return any(is_frame(columns) for columns in self.columns.values())

    def federation(self, split: RowSplit, columns: Mapping[str, Any], **meaning: Any) -> Federation:
        """These rows.

        Args:
            split: which of them train and validate.
            columns: how columns of data frames become numbers.
            meaning: what `Federation.from_arrays` needs to know of the labels.
        """
        if self.framed:
            keys, weights = dict(self.keys) or None, self.weights
            return Federation.from_tables(
                self.columns, labels=self.y, id=keys, split=split, weights=weights, columns=columns, **meaning
            )
        return Federation.from_arrays(self.columns, self.y, split=split, weights=self.weights, **meaning)


def _rows(columns: Any, kept: Array) -> Any:
    return columns.iloc[kept] if is_frame(columns) else columns[kept]


def cut(table: Any, owners: Owners) -> Frames:
    """A table (a data frame or an array) as one per party."""
    if is_frame(table):
        return {party: table.iloc[:, at] for party, at in owners.items()}
    return {party: table[:, at] for party, at in owners.items()}


def read_tables(tables: Any, id: Ids) -> Frames:
    """One data frame per party, an index named like the id as a column."""
    given = by_party("X", tables)
    if not given:
        raise EstimatorInput("X has no table; needed a data frame for each party")
    strange = next((party for party, table in given.items() if not is_frame(table)), None)
    if strange is not None:
        raise EstimatorInput(f"X, party {strange!r}: needed a data frame; got {type(given[strange]).__name__}")
    keys = id_columns(id, given)
    if not keys:
        check_order({f"X, party {party!r}": table for party, table in given.items()}, "; or name an id: id=...")
    return {party: as_frame(f"party {party!r}", table, keys.get(party)) for party, table in given.items()}


def matched(frames: Mapping[str, Any], id: Ids, y: Any, weights: Any) -> Given:
    """Tables by party, their rows in the order of the first one.

    Args:
        frames: by party. With an id, rows that not every table has are left out, with a warning that counts them;
            without one all tables have the same rows in the same order.
        id: as for `Federation.from_tables`.
        y: as for `in_order`.
        weights: as for `in_order`.

    Raises:
        EstimatorInput: labels or weights cannot be matched with the rows, or the tables share none.
    """
    keys = id_columns(id, frames)
    party = next(iter(frames))
    ids = {name: text_ids(f"party {name!r}", frame, keys[name]) for name, frame in frames.items() if keys}
    labels, heavy = in_order(frames, id, y, weights)
    if not keys:
        return Given(dict(frames), labels, heavy)
    at = _common(ids)
    rows = {name: frame.iloc[places(ids[party][at], ids[name])] for name, frame in frames.items()}
    return Given(rows, labels[at], None if heavy is None else heavy[at], keys)


def _common(ids: Mapping[str, Any]) -> Array:
    """The places of the ids of the first table that all tables have."""
    first = next(iter(ids))
    shared = np.ones(len(ids[first]), dtype=bool)
    for those in ids.values():
        shared &= np.asarray(is_in(ids[first], those))
    at = shared.nonzero()[0]
    if not len(at):
        told = ", ".join(f"{party} {those[0]!r}" for party, those in ids.items())
        raise EstimatorInput(f"no id is in all tables (first ids: {told}); check that they are written the same way")
    if any(len(those) > len(at) for those in ids.values()):
        told = ", ".join(f"party {party!r}: {len(t) - len(at):,} of {len(t):,}" for party, t in ids.items())
        warnings.warn(f"rows whose id not every table has are left out ({told})", RowsLeftOut, stacklevel=5)
    return at


def in_order(frames: Mapping[str, Any], id: Ids, y: Any, weights: Any) -> tuple[Array, Array | None]:
    """Labels and their weights in the order of the first table.

    Args:
        frames: by party, as `read_tables` made them.
        id: as for `Federation.from_tables`.
        y: labels in the order of the first table, or indexed by id.
        weights: one per label, in their order, or indexed by id; None: all alike.

    Raises:
        EstimatorInput: they are not one for each row of the first table.
        RowsDisagree: an index says that they are in another order than they would be taken in.
    """
    if isinstance(y, str):
        raise EstimatorInput(f"y = {y!r}: needed labels; take the column out of its table: y = table.pop({y!r})")
    party, first = next(iter(frames.items()))
    key = id_columns(id, frames).get(party)
    ids = None if key is None else text_ids(f"party {party!r}", first, key)
    if _ids_beside(weights, key) is None:
        check_order({"y": y, "sample_weight": weights})  # row i of one is row i of the other
    heavy = None
    if weights is not None:
        beside = _ids_beside(weights, key)
        beside = _ids_beside(y, key) if beside is None else beside
        heavy = _placed("sample_weight", weights, ids, beside, key).astype(np.float64)
    labels = _placed("y", y, ids, _ids_beside(y, key), key)
    for what, values in (("y", labels), ("sample_weight", heavy)):
        if values is not None and len(values) != len(first):
            raise EstimatorInput(
                f"{what} has {len(values)} values, and the first table, {party!r}, {len(first)} rows; give one per row"
            )
    return labels, heavy


def _ids_beside(values: Any, key: Key | None) -> Any:
    """The index of labels or weights that is called like the id; None: they have none."""
    index = getattr(values, "index", None)
    found = key is not None and list(getattr(index, "names", ())) == list(names_of(key))
    return index if found else None


def _placed(what: str, values: Any, ids: Any, beside: Any, key: Key | None) -> Array:
    """Labels or weights as they are, or where ids stand `beside` them in the order of the first table's `ids`."""
    array = np.asarray(values)
    if key is None:
        return array
    if beside is None:
        check_order_of_ids(what, values, ids, key)
        return array
    theirs = text_ids(what, beside.to_frame(index=False), key)
    if not bool(np.asarray(is_in(ids, theirs)).all()):
        raise EstimatorInput(f"{what} is indexed by id, and lacks ids of the first table; give every row one")
    return array[places(ids, theirs)] if len(array) == len(theirs) else array
