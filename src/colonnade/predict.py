"""Prediction in one process: rows in, logits out, in pieces that fit a message; and what logits mean.

Each party's answer is a release that passes its gate, is written to the ledger, and under a secure sum opens only
together with the others'.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from colonnade.data.frames import as_frame, by_party, is_frame, names_of
from colonnade.data.ids import Ids, id_columns_of_new, text_ids
from colonnade.data.new_rows import check_parties, read_new_rows
from colonnade.engines.base import GroupUploads
from colonnade.engines.queries import open_sum, rows_that_fit
from colonnade.errors import ConfigError, DataError, PartiesLeftOut, RowsDisagree, RunError
from colonnade.methods.base import State, Uploads
from colonnade.methods.without import check_can_leave_out, in_their_places, outputs, outputs_of
from colonnade.models.schema import Schema
from colonnade.part import open_parts, uploads
from colonnade.privacy.mechanism import Mechanism, Opener, Protection
from colonnade.privacy.training_rows import check_new, noised
from colonnade.rows import Grouping, Rows, as_columns
from colonnade.tasks import read_again
from colonnade.tasks.reading import as_array
from colonnade.tasks.weights import row_weights
from colonnade.wire.messages import Purpose, Query, Request

if TYPE_CHECKING:
    from colonnade.model import Model

WhenAbsent = Literal["refuse", "leave-out"]  # a party that is not there, or lacks a row
AFTER_TRAINING = 4  # numbers after the last round that the end of a training has


# -- rows in ------------------------------------------------------------------------------------


def read_rows(model: Model, given: Any, id: Ids = None, absent: WhenAbsent = "refuse") -> Rows:
    """What was given to be predicted, as the networks of a model read it.

    Args:
        model: of a finished training.
        given: raw data frames or table files by party, for a run that was trained from tables; arrays (B, ...) by
            party, for a run that was trained from arrays; or rows of a federation (`federation.select(rows)`), for any
            run.
        id: for data frames, the column to match rows on, or one per party.
        absent: "leave-out": parties may be missing, and lack rows, where the model has an answer without them.

    Raises:
        ConfigError: somebody may be left out, and the model has no answer then.
        DataError: columns are missing, unknown, retyped, or could be meant in two ways.
        RowsDisagree: the parties' rows cannot be matched.
    """
    some = _may_leave_out(model, absent)
    if isinstance(given, Rows):
        rows = given
    elif model.plans:
        rows = read_new_rows(model.plans, given, id, some)
        rows = rows.pooled() if model.design.in_one_place else rows
    else:
        rows = _arrays(model, by_party("columns to predict", given), some)
    if id is not None and (isinstance(given, Rows) or not model.plans):
        raise ConfigError("id names a column of raw data frames; these rows are arrays, matched by position")
    _check_encoding(model, rows)
    return _checked(model, rows, some)


def _may_leave_out(model: Model, absent: str) -> bool:
    """Whether somebody may; refused before anything leaves, where the model has no answer then."""
    if absent not in get_args(WhenAbsent):
        raise ConfigError(f"absent = {absent!r}: needed {' or '.join(map(repr, get_args(WhenAbsent)))}")
    if absent == "leave-out":
        check_can_leave_out(model.method, model.state, model.design.privacy.secure_sum.use)
    return absent == "leave-out"


def check_preprocessing(model: Model) -> None:
    """Refuse a model that was trained from tables and saved without how they became numbers."""
    if model.from_tables and not model.plans:
        raise RunError(
            "raw tables cannot be scored with this run: it was trained from tables by a version that did not store its "
            "preprocessing; train again, or predict rows of the same tables with federation.select(rows) (--rows)"
        )


def _arrays(model: Model, given: Mapping[str, Any], some: bool) -> Rows:
    check_preprocessing(model)
    check_parties(model.parts, given, some)
    named = next((party for party, table in given.items() if is_frame(table)), None)
    if named is not None:
        raise DataError(
            f"party {named!r}: got a data frame, and this run knows its columns by position only (it was trained from "
            "arrays, or saved without its preprocessing); pass arrays exactly as in training"
        )
    return Rows({name: as_columns(name, given[name]) for name in model.parts if name in given})


def _check_encoding(model: Model, rows: Rows) -> None:
    """Refuse columns that were made of other tables: on another scale they would be predicted without complaint."""
    here = model.plans if model.design.in_one_place else {p: x for p, x in model.plans.items() if p in rows.columns}
    odd = next((party for party, plan in here.items() if not plan.agrees(rows.plans.get(party))), None)
    if odd is not None:
        raise DataError(
            f"party {odd!r}: these rows were not encoded as in the training of this run (a federation has the means "
            "and categories of its own training rows); pass raw data frames, or rows of the training's federation"
        )


def _checked(model: Model, rows: Rows, some: bool) -> Rows:
    if model.design.in_one_place and set(rows.columns) != set(model.parts):
        raise DataError("this run was trained on the columns in one place; pass federation.pooled().select(rows)")
    check_parties(model.parts, rows.columns, some)
    for party, columns in rows.columns.items():
        got, part = tuple(columns.shape[1:]), model.parts[party]
        if got != part.shape:
            raise DataError(f"party {party!r} has columns of shape {got}; the model needs {part.shape}")
    lacking = [party for party, mine in rows.held.items() if not bool(mine.all())]
    if lacking and not some:
        raise DataError(
            f"{', '.join(lacking)} do not hold all of these rows, and what stands in their place says nothing; predict "
            "rows that all hold, or say absent='leave-out' where the model has an answer without them"
        )
    lengths = {party: len(columns) for party, columns in rows.columns.items()}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{party}: {count}" for party, count in lengths.items())
        raise RowsDisagree(f"the parties have different numbers of rows ({told}); give all of them the same rows")
    if not len(rows):
        raise DataError("there are no rows to predict; give at least one")
    return rows


# -- labels of rows, to score a model -----------------------------------------------------------


def read_truth(model: Model, rows: Rows, given: Any, labels: Any, id: Ids = None) -> Tensor:
    """Labels of rows that were read, in their order, as the task has them.

    Args:
        model: whose task says what labels are.
        rows: as `read_rows` made them of `given`.
        given: what was given to be predicted.
        labels: a column of one of the tables, by name; an array in the order of the rows; or a pandas Series or
            DataFrame, indexed as the answer to these rows would be.
        id: as for `read_rows`.

    Raises:
        DataError: they are not labels of this task, or it is not clear which label belongs to which row.
    """
    return read_again(as_array(beside(model, rows, given, labels, id)), model.task)


def read_weights(model: Model, rows: Rows, given: Any, weights: Any, id: Ids = None) -> Tensor | None:
    """How much each of the rows that were read counts, in their order; given as labels are. None: all alike."""
    return None if weights is None else row_weights(beside(model, rows, given, weights, id), len(rows))


def read_groups(model: Model, rows: Rows, given: Any, by: Any, id: Ids = None) -> Grouping:
    """Groups of rows that were read, in their order; given as labels are."""
    values = np.asarray(beside(model, rows, given, by, id))
    if values.ndim != 1:
        raise DataError(f"by: needed one group per row; got an array of shape {values.shape}")
    empty = np.array([value is None or (isinstance(value, float) and math.isnan(value)) for value in values.tolist()])
    names, codes = np.unique(values[~empty].astype(str), return_inverse=True)
    found = np.full(len(values), -1)
    found[~empty] = codes
    return Grouping(by if isinstance(by, str) else "by", tuple(names.tolist()), torch.from_numpy(found))


def beside(model: Model, rows: Rows, given: Any, values: Any, id: Ids) -> Any:
    """One value per row, in the order of the rows."""
    if isinstance(values, str):
        values = _column(model, rows, by_party("new tables", given), values, id)
    elif hasattr(values, "reindex"):  # pandas
        values = _in_order(rows, values)
    if len(values) != len(rows):
        raise RowsDisagree(f"there are {len(values)} labels, groups or weights and {len(rows)} rows; give one per row")
    return values


def _column(model: Model, rows: Rows, tables: Mapping[str, Any], label: str, id: Ids) -> Any:
    """A column of one of the tables, in the order of the rows."""
    old = {party: plan.id for party, plan in model.plans.items()}
    keys = old | dict(id_columns_of_new(id, old))
    frames = {p: as_frame(f"party {p!r}", table, keys.get(p)) for p, table in tables.items() if is_frame(table)}
    having = [party for party, frame in frames.items() if label in frame.columns]
    if len(having) != 1:
        told = f"{len(having)} tables have" if having else "no table has"
        raise DataError(f"labels: {told} a column {label!r}; name a column of one table, or pass an array")
    frame, key = frames[having[0]], keys.get(having[0])
    if key is None or not set(names_of(key)) <= set(frame.columns) or None in rows.index.names:
        return frame[label].to_numpy()
    found = frame[label].set_axis(text_ids(f"party {having[0]!r}", frame, key), axis=0)
    these = rows.index.to_frame(index=False, name=key if isinstance(key, str) else list(key))
    return found.loc[text_ids("these rows", these, key)].to_numpy()


def _in_order(rows: Rows, labels: Any) -> Any:
    """Labels with an index of their own, in the order of the rows; refused where the index says nothing of them."""
    if rows.index is None or labels.index.equals(rows.index):
        return labels.to_numpy()
    named_alike = labels.index.name is not None and labels.index.name == rows.index.name
    if named_alike and labels.index.is_unique and len(rows.index.difference(labels.index)) == 0:
        return labels.loc[rows.index].to_numpy()
    raise DataError(
        "labels have an index that is not that of the rows, so it is not clear which label belongs to which row; index "
        f"them by {rows.index.name or 'position'!r}, or pass labels.to_numpy() in the order of the first table"
    )


# -- logits out ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Prediction:
    """Logits (B, K) in the order of the wanted rows, and which rows lack the part of whom."""

    logits: Tensor = field(repr=False)
    lacking: Mapping[tuple[str, ...], Tensor] = field(default_factory=dict, repr=False)  # places, by who was left out

    @property
    def left_out(self) -> tuple[str, ...]:
        """Everybody who was left out of some row."""
        return tuple(sorted({party for parties in self.lacking for party in parties}))

    @property
    def without(self) -> tuple[tuple[str, ...], ...]:
        """For each row the parties that were left out."""
        told: list[tuple[str, ...]] = [()] * len(self.logits)
        for parties, places in self.lacking.items():
            for place in places.tolist():
                told[place] = parties
        return tuple(told)

    @property
    def complete(self) -> Tensor | None:
        """(B,) the rows that nobody was left out of; None: all."""
        if not self.lacking:
            return None
        found = torch.ones(len(self.logits), dtype=torch.bool)
        found[torch.cat(list(self.lacking.values()))] = False
        return found

    def warned(self) -> Prediction:
        """The same; who was left out of how many rows is told as a warning, where nothing else in an answer says it."""
        rows = {p: sum(len(at) for who, at in self.lacking.items() if p in who) for p in self.left_out}
        if rows:
            told = ", ".join(f"{party} ({count:,} of {len(self.logits):,} rows)" for party, count in rows.items())
            warnings.warn(f"predicted without the part of {told}", PartiesLeftOut, stacklevel=4)  # who called predict
        return self


def predicted(model: Model, rows: Rows) -> Prediction:
    """Every row by the parties that hold it; each of them answers, in as many messages as their size needs."""
    everybody = tuple(model.parts)
    kinds = rows.holders(everybody)
    if () in kinds:
        raise DataError(f"{len(kinds[()])} of these rows are held by no party; leave them out")
    answers: list[Tensor] = []
    lacking: dict[tuple[str, ...], Tensor] = {}
    for who, places in kinds.items():
        if who == everybody:
            found = answers_of(
                model,
                rows if len(kinds) == 1 else rows.of(who, places),
                lambda state, uploads, schema: outputs(model.method, state, uploads).cpu(),
            )
        else:
            found = _answers_of_some(model, rows.of(who, places))
            lacking[tuple(sorted(set(everybody) - set(who)))] = places
        answers.append(found)
    return Prediction(in_order(answers, list(kinds.values())), lacking)


def in_order(answers: Sequence[Tensor], places: Sequence[Tensor]) -> Tensor:
    """(B, K) answers to all rows from those to some, each with the places of its rows; as exact as they came."""
    came, at = torch.cat(tuple(answers)), torch.cat(tuple(places))
    ordered = torch.empty_like(came)
    ordered[at] = came
    return ordered


def _answers_of_some(model: Model, rows: Rows) -> Tensor:
    """Logits (B, K) of rows that the same parties hold, but not all: the others are not asked."""
    parts, design = model.parts, model.design
    shapes, modules = {p: part.shape for p, part in parts.items()}, {p: part.module() for p, part in parts.items()}
    whole = design.schema(shapes, modules, 0)

    def answer(state: State, uploads: Uploads, schema: Schema) -> Tensor:
        told = {
            party: {name: value[place] for name, value in values.items()}
            for group, values in zip(schema.groups, uploads.groups, strict=True)
            for place, party in enumerate(group.parties)
        }
        count = len(next(iter(next(iter(told.values())).values())))
        placed, present = in_their_places(model.method, whole, told, count)
        return outputs_of(model.method, model.task, state, placed, present).cpu()

    return answers_of(model, rows, answer)


def answers_of(model: Model, rows: Rows, answer: Callable[[State, Uploads, Schema], Tensor]) -> Tensor:
    """What is made of the uploads of all parties that have columns of these rows, (B, ...).

    `answer` gets the coordinator's part, uploads about some of the rows, and the frame of those who uploaded.
    """
    trained = check_new(model.trained, noised(model.ledger), rows, model.releases_training_rows)
    mechanism, opener = _sum(model)
    asked = [part for party, part in model.parts.items() if party in rows.columns]
    engine = open_parts(model.design, asked, model.ledger, Protection.everywhere(mechanism))
    schema = engine.schema
    state = {name: value.to(schema.device) for name, value in model.state.items()}
    earlier = [release.number + 1 for release in model.ledger if release.purpose is Purpose.PREDICT]
    first = max([model.rounds + AFTER_TRAINING, *earlier])  # every message has a number of its own
    most, parts = rows_that_fit(model.method, schema, summed=opener is not None), []
    before = len(model.ledger)
    try:
        for part in uploads(engine, rows, trained, first, most):
            with torch.no_grad():
                parts.append(answer(state, _opened(part.groups, part.number, part.rows, schema, opener), schema))
    finally:  # a prediction is a release: the saved ledger goes on, also if something fails later
        model.append_ledger(before)
    return torch.cat(parts)


def _sum(model: Model) -> tuple[Mechanism | None, Opener | None]:
    """What stands before predictions and what opens them: under a secure sum, as in training, only the total."""
    design = model.design
    if not design.privacy.secure_sum.use:
        return None, None
    from colonnade.privacy.secure_sum.adders import simulated  # needs a library that not everybody installs

    return simulated(design.id, design.parties, design.arithmetic.seed, design.privacy).predicting()


def _opened(
    groups: Sequence[Mapping[str, Tensor]], number: int, rows: Tensor, schema: Schema, opener: Opener | None
) -> Uploads:
    if opener is None:
        return Uploads(tuple(groups))
    request = Request(number, (Query(Purpose.PREDICT, schema.parties, rows),))
    part = [GroupUploads(tuple(range(len(g.parties))), values) for g, values in zip(schema.groups, groups, strict=True)]
    return open_sum(opener, schema, request, 0, part)


# -- answers ------------------------------------------------------------------------------------


def named(rows: Rows, values: np.ndarray[Any, Any], columns: Sequence[Any] | None = None) -> Any:
    """An answer in the shape of the question: pandas, indexed like the rows, for data frames; otherwise the array."""
    if rows.index is None:
        return values
    import pandas as pd  # whoever brought data frames has it

    if values.ndim == 1:
        return pd.Series(values, index=rows.index, name="prediction")
    return pd.DataFrame(values, index=rows.index, columns=None if columns is None else list(columns))
