"""Prediction by row: the parties are asked once more, and what each one says is a release.

First everybody is asked whether it would answer; only when all who are needed are there and agree, they are asked to.
So nothing leaves for a prediction that somebody refuses, or that lacks somebody; but for one who goes away in between.

If a party is absent, or lacks some of the rows, nothing is predicted. It is left out only if that was asked for and the
method has an answer without it. Every row's answer then says who was left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from colonnade.deploy.agreement import Agreement
from colonnade.deploy.encryption import encryption_of_coordinator, own_keys
from colonnade.deploy.signing import check_own_file, head_signer, sign_file
from colonnade.engines.base import Collected, by_party, numbers_of
from colonnade.engines.link import Link
from colonnade.engines.message import Notify
from colonnade.engines.queries import open_sum, rows_that_fit
from colonnade.engines.remote import Absence, Remote
from colonnade.errors import ConfigError, DataError, RunError
from colonnade.fit import find_device
from colonnade.methods.without import check_can_leave_out, in_their_places, outputs, outputs_of
from colonnade.models.schema import Schema
from colonnade.predict import Prediction, WhenAbsent
from colonnade.privacy.gate import CoordinatorGate, Down
from colonnade.privacy.mechanism import Opener
from colonnade.run import STORE, Run
from colonnade.schedule import chunked
from colonnade.store import Store
from colonnade.wire.messages import Purpose, Query, Request

AFTER_TRAINING = 4  # numbers after the last round that stop, test and close have


@dataclass(frozen=True)
class Wish:
    """What to predict, and what to do about somebody who does not answer."""

    rows: Tensor = field(repr=False)  # row numbers
    presence: Mapping[str, np.ndarray] | None = field(default=None, repr=False)  # who holds which row; None: all do
    absent: WhenAbsent = "refuse"
    patience: float = 30.0


def predict_rows(folder: Path, link: Link, wish: Wish, notify: Notify) -> Prediction:
    """Ask the parties of a finished run about some rows."""
    if late := check_own_file(folder, link.credentials, link.run):
        notify(
            "warning",
            reason=f"the last {late} entries of the ledger were not signed: a process died before; now they are",
        )
    run, agreement, last = _finished(folder)
    if wish.absent == "leave-out":  # before anybody is asked: what was released cannot be taken back
        check_can_leave_out(run.method, run.state, run.privacy.secure_sum.use)
    schema = agreement.schema(find_device(run.training.device))
    queries, asked = _asks(run, schema, wish)
    number = max((release.number for release in run.ledger), default=0)
    request = Request(max(number, last + AFTER_TRAINING) + 2, queries)
    publics = {p: joined.key for p, joined in agreement.joined.items()}
    digest, hkdf = agreement.proposal.digest, agreement.proposal.format > 3
    link.encryption = encryption_of_coordinator(link.credentials, own_keys(folder), publics, digest, hkdf)
    link.lay(schema.parties, anew=True)
    link.listen()
    engine = Remote(link, schema, run.method, link.run, Absence(patience=wish.patience, then="continue"), notify)
    adders = agreement.adders({})
    engine.roster = adders.roster.digest if adders else ""
    try:
        for question in (replace(request, number=request.number - 1, consent=True), request):
            collected = engine.run_round(question, _released(run, link, schema, question))
            _check_present(run, collected, wish)
    finally:
        link.purge()  # nobody answers a question later that nobody waits for any more
    if adders is not None:
        return _opened(run, schema, request, asked, collected, adders.predicting()[1])
    return _add_up(run, schema, wish, asked, collected)


def _released(run: Run, link: Link, schema: Schema, request: Request) -> Down:
    """A request as it leaves; it is in the saved ledger, and signed, before anybody can read it."""
    groups, numbers = tuple(g.parties for g in schema.groups), numbers_of(schema)
    gate = CoordinatorGate(link.run, run.ledger, schema.parties, groups, numbers=numbers)
    before = len(run.ledger)
    down = gate.release(request, {}, ())
    run.model.append_ledger(before)
    if run.model.path is not None:
        sign_file(run.model.path, len(run.ledger), head_signer(link.credentials, link.run))
    return down


def _check_present(run: Run, collected: Collected, wish: Wish) -> None:
    """Refuse a prediction that lacks somebody, unless such a one may be left out."""
    if collected.absent and wish.absent == "refuse":
        raise RunError(
            f"{', '.join(collected.absent)} did not answer within {wish.patience:.0f} s; nothing was predicted; start "
            f"the party{_or_without(run)}"
        )


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


def _asks(run: Run, schema: Schema, wish: Wish) -> tuple[tuple[Query, ...], list[Tensor]]:
    """Rows held by the same parties are asked about together; with each query, the places its rows have in the wish."""
    if not len(wish.rows):
        raise DataError("there are no rows to predict; needed at least one id")
    held = {
        p: np.asarray((wish.presence or {}).get(p, np.ones(int(wish.rows.max()) + 1, bool))) for p in schema.parties
    }
    patterns: dict[tuple[str, ...], list[int]] = {}
    for place, row in enumerate(wish.rows.tolist()):
        patterns.setdefault(tuple(p for p in schema.parties if held[p][row]), []).append(place)
    lacking = sorted({p for who in patterns for p in schema.parties if p not in who})
    if lacking and wish.absent == "refuse":
        raise RunError(
            f"{', '.join(lacking)} do not hold all of these rows; predict only rows that all hold{_or_without(run)}"
        )
    if () in patterns:
        raise DataError(f"{len(patterns[()])} of these rows are held by no party; leave them out")
    most = rows_that_fit(run.method, schema, summed=run.privacy.secure_sum.use)
    queries, asked = [], []
    for who, places in patterns.items():
        for piece in chunked(torch.tensor(places), most):
            queries.append(Query(Purpose.PREDICT, who, wish.rows[piece]))
            asked.append(piece)
    return tuple(queries), asked


def _or_without(run: Run) -> str:
    try:
        check_can_leave_out(run.method, run.state, run.privacy.secure_sum.use)
    except ConfigError:
        return ""
    return ", or predict without it with --absent leave-out"


def _opened(
    run: Run, schema: Schema, request: Request, asked: Sequence[Tensor], collected: Collected, opener: Opener
) -> Prediction:
    """Predictions from the total of all parties, which is all that can be read."""
    rows = sum(len(places) for places in asked)
    logits = torch.zeros(rows, schema.outputs, dtype=schema.dtype)
    state = {k: v.to(schema.device) for k, v in run.state.items()}
    for part, (places, uploaded) in enumerate(zip(asked, collected.uploaded, strict=True)):
        with torch.no_grad():
            logits[places] = outputs(run.method, state, open_sum(opener, schema, request, part, uploaded)).cpu()
    return Prediction(logits)


def _add_up(run: Run, schema: Schema, wish: Wish, asked: Sequence[Tensor], collected: Collected) -> Prediction:
    logits = torch.zeros(len(wish.rows), schema.outputs, dtype=schema.dtype)
    lacking: dict[tuple[str, ...], list[Tensor]] = {}
    state = {k: v.to(schema.device) for k, v in run.state.items()}
    for places, uploaded in zip(asked, collected.uploaded, strict=True):
        told = by_party(schema, uploaded)
        if not told:
            raise RunError(f"nobody answered within {wish.patience:.0f} s; nothing was predicted; start the parties")
        uploads, present = in_their_places(run.method, schema, told, len(places))
        with torch.no_grad():
            logits[places] = outputs_of(run.method, run.task, state, uploads, present).cpu()
        if missing := tuple(sorted(set(schema.parties) - set(told))):
            lacking.setdefault(missing, []).append(places)
    return Prediction(logits, {who: torch.cat(rows) for who, rows in lacking.items()})
