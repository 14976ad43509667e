"""Prediction by row: the parties are asked once more, and what each one says is a release.

A party that is absent, or that lacks some of the rows, is either waited for and then refused, or left out:
the prediction is a sum over parties, and its term is missing. Every row's answer says who was left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from colonnade.deploy.agreement import Agreement
from colonnade.deploy.sealing import own_keys, seals_of_coordinator
from colonnade.engines.base import Answers
from colonnade.engines.coordinator import open_sum, rows_that_fit
from colonnade.engines.nats import Link
from colonnade.engines.post import Say
from colonnade.engines.remote import Absence, Remote
from colonnade.errors import ConfigError, DataError, RunError
from colonnade.fit import find_device
from colonnade.methods.base import Heard, outputs
from colonnade.models.schema import Schema
from colonnade.privacy.gate import CoordinatorGate
from colonnade.privacy.mechanism import Opener
from colonnade.run import STORE, Run
from colonnade.schedule import chunked
from colonnade.store import Store
from colonnade.wire.messages import Ask, Order, Purpose

WhenAbsent = Literal["refuse", "leave-out"]
AFTER_TRAINING = 4  # numbers after the last exchange that stop, test and close have


@dataclass(frozen=True)
class Prediction:
    """Logits (B, K) in the order of the wanted rows, and for each row the parties that were left out."""

    logits: Tensor = field(repr=False)
    without: tuple[tuple[str, ...], ...] = field(repr=False)

    @property
    def left_out(self) -> tuple[str, ...]:
        """Everybody who was left out of some row."""
        return tuple(sorted({party for row in self.without for party in row}))


@dataclass(frozen=True)
class Wish:
    """What to predict, and what to do about somebody who does not answer."""

    rows: Tensor = field(repr=False)  # row numbers
    presence: Mapping[str, np.ndarray] | None = field(default=None, repr=False)  # who holds which row; None: all do
    absent: WhenAbsent = "refuse"
    patience: float = 30.0


def predict_rows(folder: Path, link: Link, wish: Wish, say: Say) -> Prediction:
    """Ask the parties of a finished run about some rows."""
    run, agreement, last = _finished(folder)
    schema = agreement.schema(find_device(run.training.device))
    asks, asked = _asks(run, schema, wish)
    number = max((release.number for release in run.ledger), default=0)
    order = Order(max(number, last + AFTER_TRAINING) + 1, asks)
    gate = CoordinatorGate(link.run, run.ledger, schema.parties, tuple(g.parties for g in schema.groups))
    before = len(run.ledger)
    down = gate.release(order, {}, ())
    run.append_ledger(before)  # it is in the ledger before anybody can read it
    publics = {p: joined.key for p, joined in agreement.joined.items()}
    link.seals = seals_of_coordinator(own_keys(folder), publics, agreement.proposal.digest)
    link.lay(schema.parties, anew=True)
    link.listen()
    engine = Remote(link, schema, run.method, link.run, Absence(patience=wish.patience, then="continue"), say)
    adders = agreement.adders({})
    engine.roster = adders.roster.digest if adders else ""
    try:
        answers = engine.exchange(order, down)
    finally:
        link.purge()  # nobody answers a question later that nobody waits for any more
    if answers.absent and wish.absent == "refuse":
        raise RunError(
            f"{', '.join(answers.absent)} did not answer within {wish.patience:.0f} s; nothing was predicted; start "
            "the party, or predict without its term with --absent leave-out"
        )
    if adders is not None:
        return _opened(run, schema, order, asked, answers, adders.predicting()[1])
    return _add_up(run, schema, wish, asked, answers)


def _finished(folder: Path) -> tuple[Run, Agreement, int]:
    run = Run.load(folder)
    store = Store(folder / STORE)
    try:
        about, saved = store.about(), store.snapshot()
    finally:
        store.close()
    if "agreement" not in about or saved is None:
        raise RunError(f"{folder} is not a run of separate organisations; predict it with --rows or --tables")
    return run, Agreement.from_json(about["agreement"]), int(saved.facts["number"])


def _asks(run: Run, schema: Schema, wish: Wish) -> tuple[tuple[Ask, ...], list[Tensor]]:
    """Rows held by the same parties are asked about together; with each ask, the places its rows have in the wish."""
    if not len(wish.rows):
        raise DataError("there are no rows to predict; wanted at least one id")
    held = {
        p: np.asarray((wish.presence or {}).get(p, np.ones(int(wish.rows.max()) + 1, bool))) for p in schema.parties
    }
    patterns: dict[tuple[str, ...], list[int]] = {}
    for place, row in enumerate(wish.rows.tolist()):
        patterns.setdefault(tuple(p for p in schema.parties if held[p][row]), []).append(place)
    lacking = sorted({p for who in patterns for p in schema.parties if p not in who})
    if lacking and wish.absent == "refuse":
        raise RunError(
            f"{', '.join(lacking)} do not hold all of these rows; predict only rows that all hold, "
            "or predict without the missing terms with --absent leave-out"
        )
    if wish.absent == "leave-out":
        _check_can_leave_out(run)
    most = rows_that_fit(run.method, schema, summed=run.privacy.secure_sum.use)
    asks, asked = [], []
    for who, places in patterns.items():
        for piece in chunked(torch.tensor(places), most):
            asks.append(Ask(Purpose.PREDICT, who, wish.rows[piece]))
            asked.append(piece)
    return tuple(asks), asked


def _check_can_leave_out(run: Run) -> None:
    """Leaving a term out needs a prediction that is a sum of terms which vanish with what is said."""
    if run.privacy.secure_sum.use:
        raise ConfigError("a secure sum opens only with all parties: nobody can be left out; use --absent refuse")
    if run.method.hears == "each" and run.model_settings.head.layers > 1:
        raise ConfigError(
            f"{run.method.name} with heads of {run.model_settings.head.layers} layers cannot leave a party out: such a "
            "head says something even about nothing; use --absent refuse"
        )


def _opened(
    run: Run, schema: Schema, order: Order, asked: Sequence[Tensor], answers: Answers, opener: Opener
) -> Prediction:
    """Predictions from the total of all parties, which is all that can be read."""
    rows = sum(len(places) for places in asked)
    logits = torch.zeros(rows, schema.outputs, dtype=schema.dtype)
    state = {k: v.to(schema.device) for k, v in run.state.items()}
    for part, (places, said) in enumerate(zip(asked, answers.said, strict=True)):
        with torch.no_grad():
            logits[places] = outputs(run.method, state, open_sum(opener, schema, order, part, said)).cpu()
    return Prediction(logits, ((),) * rows)


def _add_up(run: Run, schema: Schema, wish: Wish, asked: Sequence[Tensor], answers: Answers) -> Prediction:
    logits = torch.zeros(len(wish.rows), schema.outputs, dtype=schema.dtype)
    without: list[tuple[str, ...]] = [()] * len(wish.rows)
    state = {k: v.to(schema.device) for k, v in run.state.items()}
    for places, said in zip(asked, answers.said, strict=True):
        groups, missing = [], []
        for group, part in zip(schema.groups, said, strict=True):
            full = {}
            for name, array in run.method.says(schema, group).items():
                empty = schema.zeros(len(group.parties), *array.shape(len(places)))
                full[name] = empty.to(array.dtype or schema.dtype)
                if part.places:
                    full[name][list(part.places)] = part.values[name]
            groups.append(full)
            missing += [p for at, p in enumerate(group.parties) if at not in part.places]
        with torch.no_grad():
            logits[places] = outputs(run.method, state, Heard(tuple(groups))).cpu()
        for place in places.tolist():
            without[place] = tuple(sorted(missing))
    return Prediction(logits, tuple(without))
