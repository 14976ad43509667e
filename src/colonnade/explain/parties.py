"""Across parties: what each of them adds to the score of a row, and what the model loses without a column's order.

Both ask the parties about rows, which are releases as in a prediction. Only totals of a party are told; what its
columns add to them is its own to know (`columns.py`).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from colonnade.data.ids import Ids
from colonnade.engines.party import PartySide, upload_about
from colonnade.engines.queries import rows_that_fit
from colonnade.engines.stacked import Stacked
from colonnade.errors import ConfigError, DataError
from colonnade.evaluate.metrics import Metric, choose_metric
from colonnade.explain.columns import DRAWS, check_draws, dealt, order_of
from colonnade.explain.contributions import Contributions, Importance, output_names
from colonnade.explain.shares import in_float64, no_sum, places_of
from colonnade.methods.base import Method, State, Uploads
from colonnade.methods.without import outputs
from colonnade.model import Model
from colonnade.models.schema import Schema
from colonnade.part import open_parts
from colonnade.predict import AFTER_TRAINING, answers_of, read_rows
from colonnade.privacy.mechanism import Protection
from colonnade.privacy.training_rows import check_new, noised, note
from colonnade.rows import Rows
from colonnade.schedule import chunked
from colonnade.wire.messages import Purpose

SUM_TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-9}  # relative to what all add at most
UNCOVERED = (
    "the training promises an epsilon, and what leaves for this has no noise and is not covered by it; say "
    "uncovered=True to release it all the same"
)


def explain_parties(model: Model, rows: Any, id: Ids = None, reference: Any = None) -> Contributions:
    """See `Model.contributions`."""
    _refuse(model)
    read = read_rows(model, rows, id)
    before = None if reference is None else _terms(model, read_rows(model, reference, id))
    found = _terms(model, read)
    base, values, total, way = found[0, 0], found[:, 1:-1], found[:, -1], "the terms of a sum"
    if before is not None:
        usual = before[:, :-1].mean(dim=0)
        base, values = usual.sum(dim=0), values - usual[1:]
        way += f", less their means over {len(before):,} reference rows"
    names = output_names(model.task)
    return Contributions("the score", way, tuple(model.parts), names, base, values, total, read.index)


def check_measured(model: Model, uncovered: bool = False) -> None:
    """Refuse a model whose columns may not be measured, before anything is read."""
    _refuse(model)
    if not (model.design.privacy.evaluates() or uncovered):
        raise ConfigError(UNCOVERED)


def measure(
    model: Model,
    read: Rows,
    truth: Tensor,
    metric: str | None = None,
    *,
    weights: Tensor | None = None,
    draws: int = DRAWS,
    seed: int = 0,
) -> Importance:
    """What `of_model.importance` says of rows that were read, with labels as the task has them, and their weights."""
    chosen = choose_metric(model.task, metric)
    check_draws(draws, len(read))
    places = {party: places_of(part) for party, part in model.parts.items()}
    before = len(model.ledger)
    try:
        game = _Game(_Asked(model, read), chosen, truth, weights)
        drops = [game.drops(places, seed, draw) for draw in range(draws)]
    finally:  # whatever left has left, also if something fails later
        model.append_ledger(before)
    parties, columns = zip(*((party, column) for party, mine in places.items() for column in mine), strict=True)
    score = chosen.sign() * game.whole
    return Importance(f"{chosen.title} lost", parties, columns, torch.tensor(drops).double(), len(read), score)


def _refuse(model: Model) -> None:
    """Say in one sentence why the parties of a model cannot be told apart."""
    if model.design.privacy.secure_sum.use:
        raise ConfigError(
            "this model has a secure sum: the coordinator may only learn the total, and what one party adds to it is "
            "just what it hides; a party explains its own columns with its part (Part.contributions)"
        )
    if model.method.pools:
        raise ConfigError(f"a model of {model.method.name} has no parties to tell apart")
    for part in model.parts.values():
        part.check()


# -- by party -----------------------------------------------------------------------------------


def _terms(model: Model, rows: Rows) -> Tensor:
    """(B, 1 + M + 1, K) in float64: the score of silence, what each party adds to it, and the score of all.

    What leaves for it is what leaves for a prediction.
    """
    exact = in_float64(model.state)

    def apart(state: State, uploads: Uploads, schema: Schema) -> Tensor:
        if any(not value.is_floating_point() for group in uploads.groups for value in group.values()):
            raise ConfigError(f"uploads of {model.method.name} are codes, of which no sum can be taken apart by party")
        places = [schema.position(party) for party in model.parts]
        wide = Uploads(tuple({k: v.cpu().double() for k, v in group.items()} for group in uploads.groups))
        terms = _apart(model.method, exact, wide, places)
        whole = outputs(model.method, state, uploads).cpu()
        unit = exact.get("target.scale", torch.ones(()))  # the networks' numbers: those of people may be far from 0
        gap, reach = (((x - whole) / unit).abs().max() for x in (terms.sum(dim=1), terms[:, 0]))
        if float(gap) > SUM_TOLERANCE.get(schema.dtype, 1e-4) * (1 + float(reach)):
            raise no_sum(model.method)
        return torch.cat([terms, whole.double().unsqueeze(1)], dim=1)

    return answers_of(model, rows, apart)


def _apart(method: Method, state: State, uploads: Uploads, places: Sequence[tuple[int, int]]) -> Tensor:
    silent = [{k: torch.zeros_like(v) for k, v in group.items()} for group in uploads.groups]
    nobody = outputs(method, state, Uploads(tuple(silent)))
    terms = [nobody]
    for g, place in places:
        mine = {k: v.clone() for k, v in silent[g].items()}
        for name, value in uploads.groups[g].items():
            mine[name][place] = value[place]
        terms.append(outputs(method, state, Uploads((*silent[:g], mine, *silent[g + 1 :]))) - nobody)
    return torch.stack(terms, dim=1)


# -- by column, with labels ---------------------------------------------------------------------


class _Asked:
    """The parties of a model, asked about rows as they are or with other columns; every answer is in the ledger."""

    def __init__(self, model: Model, rows: Rows) -> None:
        self.model = model
        self.trained = check_new(model.trained, noised(model.ledger), rows, model.releases_training_rows)
        self.engine: Stacked = open_parts(
            model.design, list(model.parts.values()), model.ledger, Protection.everywhere(None)
        )
        self.method, self.rows = model.method, rows
        self.state = {name: value.to(self.engine.schema.device) for name, value in model.state.items()}
        self.pieces = list(chunked(torch.arange(len(rows)), rows_that_fit(model.method, self.engine.schema)))
        self.number = max((entry.number for entry in model.ledger), default=model.rounds) + AFTER_TRAINING

    def everybody(self) -> list[Uploads]:
        """What all parties say of the rows, in pieces."""
        return [
            Uploads(tuple(self._ask(side, self.rows.columns, piece) for side in self.engine.sides))
            for piece in self.pieces
        ]

    def with_other(self, clean: Sequence[Uploads], party: str, columns: Tensor) -> list[Uploads]:
        """The same with what one party says of other columns (B, ...); the others are not asked again."""
        g, place = self.engine.schema.position(party)
        side = self.engine.sides[g]
        alone = copy.copy(side)
        alone.cohort = side.cohort.pick([place])
        found = []
        for piece, before in zip(self.pieces, clean, strict=True):
            said = self._ask(alone, {party: columns}, piece)
            mine = {k: v.clone() for k, v in before.groups[g].items()}
            for name, value in said.items():
                mine[name][place] = value[0]
            found.append(Uploads((*before.groups[:g], mine, *before.groups[g + 1 :])))
        return found

    def _ask(self, side: PartySide, columns: Mapping[str, Tensor], piece: Tensor) -> Mapping[str, Tensor]:
        read = side.cohort.read(torch.stack([columns[name][piece] for name in side.cohort.names]))
        side.gate.notes = note(int(self.trained[piece].sum()))
        upload = upload_about(self.method, side.cohort, read)
        self.number += 1
        passed = side.gate.release(upload, side.cohort.names, self.number, Purpose.EXPLAIN, len(piece))
        return passed.sent


class _Game:
    """How good the model is on rows, as they are and with the values of a column dealt out anew."""

    def __init__(self, asked: _Asked, metric: Metric, truth: Tensor, weights: Tensor | None = None) -> None:
        self.asked, self.metric, self.truth, self.weights = asked, metric, truth, weights
        self.clean = asked.everybody()
        self.whole = self.gain(self.clean)
        if math.isnan(self.whole):
            raise DataError(f"{metric.title} is undefined on these {len(truth)} rows; give rows of every class")

    def gain(self, uploads: Sequence[Uploads]) -> float:
        """The metric as a number that rises with better predictions."""
        asked, model = self.asked, self.asked.model
        with torch.no_grad():
            found = torch.cat([outputs(model.method, asked.state, one).cpu() for one in uploads])
        answers = model.answers(found).to(self.metric)
        return self.metric.sign() * self.metric(model.task, answers, self.truth, self.weights)

    def drops(self, places: Mapping[str, Mapping[str, tuple[int, ...]]], seed: int, draw: int) -> list[float]:
        """What each column costs in one draw, in the order of the parties and their columns."""
        found = []
        for party, mine in places.items():
            columns = self.asked.rows.columns[party]
            for at, where in enumerate(mine.values()):
                other = dealt(columns, where, order_of(seed, party, at, draw, len(columns)))
                found.append(self.whole - self.gain(self.asked.with_other(self.clean, party, other)))
        return found
