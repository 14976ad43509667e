"""Prediction in one process: rows in, logits out, in pieces that fit a message; and what logits mean.

Each party's answer is a release that passes its gate, is written to the ledger, and under a secure sum opens only
together with the others'.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from colonnade.data.frames import Ids, by_party, is_frame
from colonnade.data.new_rows import check_parties, read_new_rows
from colonnade.engines.base import Said, open_workshop
from colonnade.engines.coordinator import open_sum, rows_that_fit
from colonnade.engines.stacked import Stacked
from colonnade.errors import ConfigError, DataError, RowsDisagree, RunError
from colonnade.federation import Federation, Party, RowSplit, as_columns
from colonnade.methods.base import Heard, outputs
from colonnade.models.schema import Schema
from colonnade.models.stack import Way
from colonnade.privacy.mechanism import Mechanism, Opener, Protection
from colonnade.privacy.training_rows import check_new, note
from colonnade.rows import Rows
from colonnade.schedule import chunked
from colonnade.wire.messages import Ask, Order, Purpose

if TYPE_CHECKING:
    from colonnade.run import Run

AFTER_TRAINING = 4  # numbers after the last round that the end of a training has


# -- rows in ------------------------------------------------------------------------------------


def read_rows(run: Run, given: Any, id: Ids = None) -> Rows:
    """What was given to be predicted, as the networks of the run read it.

    Args:
        run: a finished run.
        given: raw data frames by party, for a run that was trained from tables; arrays (B, ...) by party, for a run
            that was trained from arrays; or rows of a federation (`federation.select(rows)`), for any run.
        id: for data frames, the column to match rows on, or one per party.

    Raises:
        DataError: columns are missing, unknown, retyped, or could be meant in two ways.
        RowsDisagree: the parties' rows cannot be matched.
    """
    if isinstance(given, Rows):
        rows = given
    elif run.plans:
        rows = read_new_rows(run.plans, given, id)
        rows = rows.pooled() if run.method.pools else rows
    else:
        rows = _arrays(run, by_party("columns to predict", given))
    if id is not None and (isinstance(given, Rows) or not run.plans):
        raise ConfigError("id names a column of raw data frames; these rows are arrays, matched by position")
    _check_encoding(run, rows)
    return _checked(run, rows)


def check_preprocessing(run: Run) -> None:
    """Refuse a run that was trained from tables and saved without how they became numbers."""
    if not run.plans and run.config is not None and "tables" in run.config.get("data", {}):
        raise RunError(
            "raw tables cannot be scored with this run: it was trained from tables by a version that did not store its "
            "preprocessing; train again, or predict rows of the same tables with federation.select(rows) (--rows)"
        )


def _arrays(run: Run, given: Mapping[str, Any]) -> Rows:
    check_preprocessing(run)
    check_parties(run.models, given)
    named = next((party for party, table in given.items() if is_frame(table)), None)
    if named is not None:
        raise DataError(
            f"party {named!r}: got a data frame, and this run knows its columns by position only (it was trained from "
            "arrays, or saved without its preprocessing); pass arrays exactly as in training"
        )
    return Rows({name: as_columns(name, given[name]) for name in run.models})


def _check_encoding(run: Run, rows: Rows) -> None:
    """Refuse columns that were made of other tables: on another scale they would be predicted without complaint."""
    odd = next((party for party, plan in run.plans.items() if not plan.agrees(rows.plans.get(party))), None)
    if odd is not None:
        raise DataError(
            f"party {odd!r}: these rows were not encoded as in the training of this run (a federation has the means "
            "and categories of its own training rows); pass raw data frames, or rows of the training's federation"
        )


def _checked(run: Run, rows: Rows) -> Rows:
    if run.method.pools and set(rows.columns) != set(run.models):
        raise DataError("this run was trained on the columns in one place; pass federation.pooled().select(rows)")
    check_parties(run.models, rows.columns)
    for party in run.about["parties"]:
        got, wanted = tuple(rows.columns[party["name"]].shape[1:]), tuple(party["shape"])
        if got != wanted:
            raise DataError(f"party {party['name']!r} has columns of shape {got}; the model wants {wanted}")
    lengths = {party: len(columns) for party, columns in rows.columns.items()}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{party}: {count}" for party, count in lengths.items())
        raise RowsDisagree(f"the parties have different numbers of rows ({told}); give all of them the same rows")
    if not len(rows):
        raise DataError("there are no rows to predict; give at least one")
    return rows


# -- logits out ---------------------------------------------------------------------------------


def logits_of(run: Run, rows: Rows) -> Tensor:
    """Logits (B, K): every party answers about all rows, in as many messages as their size needs."""
    device = torch.device(run.training.device if torch.cuda.is_available() else "cpu")
    trained = check_new(run.trained, run.ledger, rows, run.releases_training_rows)
    mechanism, opener = _sum(run)
    engine = _open(run, device, Protection.everywhere(mechanism))
    state = {name: value.to(device) for name, value in run.state.items()}
    earlier = sum(release.purpose is Purpose.PREDICT for release in run.ledger) // len(run.models)
    first = run.result["rounds"] + AFTER_TRAINING + earlier  # every message has a number of its own
    most = rows_that_fit(run.method, engine.schema, summed=opener is not None)
    parts = []
    for number, piece in enumerate(chunked(torch.arange(len(rows)), most), first):
        before, groups = len(run.ledger), []
        for side in engine.sides:
            side.gate.notes = note(int(trained[piece].sum()))
            columns = torch.stack([rows.columns[name][piece] for name in side.cohort.names])  # (P, B, ...)
            scaled = side.cohort.scale_columns(columns.to(device, engine.schema.dtype))
            groups.append(side.predict(scaled, number, piece).sent)
        run.append_ledger(before)  # a prediction is a release: the saved ledger goes on
        with torch.no_grad():
            parts.append(outputs(run.method, state, _heard(groups, number, piece, engine.schema, opener)).cpu())
    return torch.cat(parts)


def _open(run: Run, device: torch.device, protection: Protection) -> Stacked:
    """The parties' networks with what they learned, and no rows of their own."""
    none = torch.empty(0, dtype=torch.int64)
    nobody = tuple(Party(p["name"], torch.zeros(0, *p["shape"])) for p in run.about["parties"])
    federation = Federation(nobody, none, run.task, RowSplit(none, none, none))
    # The model brings the scaling it was trained with: new rows have no statistics of their own.
    model = run.model_settings.model_copy(update={"scale_columns": "never"})
    dtype, t = getattr(torch, run.training.dtype), run.training
    workshop = open_workshop(federation, model, run.encoders, t.seed, dtype, device, t.computing, t.wire.numbers)
    ways: list[Way] = ["each"] * len(workshop.schema.groups)  # prediction is one pass: nothing to time
    engine = Stacked.open(workshop, run.method, run.ledger, run.id, False, protection, ways)
    for side in engine.sides:
        side.load_models(run.models)
    return engine


def _sum(run: Run) -> tuple[Mechanism | None, Opener | None]:
    """What stands before predictions and what opens them: under a secure sum, as in training, only the total."""
    if not run.privacy.secure_sum.use:
        return None, None
    from colonnade.privacy.secure_sum.adders import simulated  # needs a library that not everybody installs

    parties = tuple(party["name"] for party in run.about["parties"])
    return simulated(run.id, parties, run.training.seed, run.privacy).predicting()


def _heard(
    groups: Sequence[Mapping[str, Tensor]], number: int, rows: Tensor, schema: Schema, opener: Opener | None
) -> Heard:
    if opener is None:
        return Heard(tuple(groups))
    order = Order(number, (Ask(Purpose.PREDICT, schema.parties, rows),))
    said = [Said(tuple(range(len(g.parties))), values) for g, values in zip(schema.groups, groups, strict=True)]
    return open_sum(opener, schema, order, 0, said)


# -- answers ------------------------------------------------------------------------------------


def named(rows: Rows, values: np.ndarray[Any, Any], columns: Sequence[Any] | None = None) -> Any:
    """An answer in the shape of the question: pandas, indexed like the rows, for data frames; otherwise the array."""
    if rows.index is None:
        return values
    import pandas as pd  # whoever brought data frames has it

    if values.ndim == 1:
        return pd.Series(values, index=rows.index, name="prediction")
    return pd.DataFrame(values, index=rows.index, columns=None if columns is None else list(columns))
