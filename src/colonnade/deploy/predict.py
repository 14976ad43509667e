"""Prediction by row: the parties are asked once more, and what each one says is a release.

First everybody is asked whether it would answer; only when all who are needed are there and agree, they are asked to.
So nothing leaves for a prediction that somebody refuses, or that lacks somebody; but for one who goes away in between.

If a party is absent, or lacks some of the rows, nothing is predicted. It is left out only if that was asked for and the
method has an answer without it. Every row's answer then says who was left out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from colonnade.deploy.agreement import Agreement
from colonnade.deploy.encryption import encryption_of_coordinator, own_keys
from colonnade.deploy.scores import Served
from colonnade.deploy.signing import check_own_file, head_signer, sign_file
from colonnade.engines.base import Collected, by_party, numbers_of
from colonnade.engines.link import Link
from colonnade.engines.message import Notify
from colonnade.engines.queries import open_sum, rows_that_fit
from colonnade.engines.remote import Absence, Remote
from colonnade.errors import ConfigError, DataError, RunError, Unwritable
from colonnade.fit import find_device
from colonnade.methods.without import check_can_leave_out, in_their_places, outputs, outputs_of
from colonnade.models.schema import Schema
from colonnade.predict import Prediction, WhenAbsent, in_order
from colonnade.privacy.gate import CoordinatorGate, Down
from colonnade.privacy.ledger import Callers
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
    patience: float = 30.0  # seconds for whoever is asked whether it would answer
    alignment: str | None = None  # digest of the alignment that the row numbers are of; None: not checked
    former: tuple[str, ...] = ()  # digests of the alignments that it extends: runs over those know its rows, too
    callers: Callers = ()  # who called over HTTP for it, and for how many rows: the ledger says so
    answer_patience: float | None = None  # seconds for the answers of those who would; None: the same
    served: bool = True  # somebody wants to know; False: to compare models, which the counts of scores leave out


class Unanswerable(RunError):
    """A model has no answer for these rows, whoever is there."""


class NotThere(RunError):
    """Somebody did not answer in time; `released`: others had answered by then."""

    def __init__(self, told: str, parties: tuple[str, ...], released: bool) -> None:
        super().__init__(told)
        self.parties, self.released = parties, released


def predict_rows(folder: Path, link: Link, wish: Wish, notify: Notify) -> Prediction:
    """Ask the parties of a finished run about some rows, once."""
    asker = Asker(folder, link, notify)
    try:
        return asker.ask(wish)
    finally:
        asker.close()


class Asker:
    """The label holder after a training: asks the parties of a run about rows, as often as need be, over one link.

    Nothing is sent before the first question that may be asked. Calls come from one thread.
    """

    def __init__(self, folder: Path, link: Link, notify: Notify) -> None:
        if late := check_own_file(folder, link.credentials, link.run):
            told = f"the last {late} entries of the ledger were not signed: a process died before; now they are"
            notify("warning", reason=told)
        self.run, self.agreement, last = _finished(folder)
        self.folder, self.link, self._notify = folder, link, notify
        self.schema = self.agreement.schema(find_device(self.run.training.device))
        self._adders = self.agreement.adders({})
        number = max((release.number for release in self.run.ledger), default=0)
        self._number = max(number, last + AFTER_TRAINING)  # of the last question
        self._scores = Served(folder)
        self._open = False
        self.away: set[str] = set()  # who did not answer the last question

    @property
    def can_leave_out(self) -> bool:
        """Whether the model has an answer without some of its parties."""
        return bool(_or_without(self.run))

    def ask(self, wish: Wish) -> Prediction:
        """Predictions of some rows; each question has numbers of its own, and what it asks for is in the ledger."""
        run = self.run
        extension = _check_alignment(self.agreement, wish)
        if wish.absent == "leave-out":  # before anybody is asked: what was released cannot be taken back
            check_can_leave_out(run.method, run.state, run.privacy.secure_sum.use)
        queries, asked = _asks(run, self.schema, wish)
        self.open()
        self._number += 2
        request = Request(self._number, queries, alignment=extension)
        collected = self._collect(request, wish)
        if self._adders is not None:
            found = _opened(run, self.schema, request, asked, collected, self._adders.predicting()[1])
        else:
            found = _add_up(run, self.schema, wish, asked, collected)
        if wish.served:
            self._scores.add(run.model, found)
        return found

    def close(self) -> None:
        """Nobody answers a question later that nobody waits for any more."""
        if self._open:
            self.link.purge()
            self._open = False
        self._scores.write()

    def open(self) -> None:
        """Prepare for questions, once; without it the first one does."""
        if self._open:
            return
        publics, proposal = {p: j.key for p, j in self.agreement.joined.items()}, self.agreement.proposal
        mine, keys, hkdf = self.link.credentials, own_keys(self.folder), proposal.format > 3
        self.link.encryption = encryption_of_coordinator(mine, keys, publics, proposal.digest, hkdf)
        self.link.lay(self.schema.parties, anew=True)
        self._open = True
        self.link.listen()

    def _collect(self, request: Request, wish: Wish) -> Collected:
        """First whether all would answer, then the answers of those who would.

        Who was away last time may be back by now. Only one who may be left out anyway is not waited for again, until
        it says something, which it does as soon as it listens; if all were away, somebody has to be. After the
        connection was lost here, what somebody said may be lost, too: then everybody is waited for.
        """
        forgets = self.link.came_back.is_set() or len(self.away) == len(self.schema.parties)
        known = () if forgets or wish.absent == "refuse" else self.away
        patience = (wish.patience, wish.patience if wish.answer_patience is None else wish.answer_patience)
        engine = Remote(
            self.link, self.schema, self.run.method, self.link.run, Absence(then="continue"), self._notify,
            away=set(known),
        )  # fmt: skip
        engine.roster = self._adders.roster.digest if self._adders else ""
        whole = False
        try:
            for consent, seconds in zip((True, False), patience, strict=True):
                engine.absence = Absence(patience=seconds, then="continue")
                question = _asking(request, consent, engine.away)
                down = _released(self.run, self.link, self.schema, question, wish.callers)
                collected = engine.run_round(question, down)
                _check_present(self.run, collected, wish, seconds, released=not consent)
            whole = not collected.absent
            return collected
        finally:
            self.away = engine.away
            if not whole:
                self.link.purge()


def _asking(request: Request, consent: bool, away: Collection[str]) -> Request:
    """The question whether they would answer; or the one to be answered, by those who said that they would.

    Who did not say so might refuse when the others have answered.
    """
    if consent:
        return replace(request, number=request.number - 1, consent=True)
    queries = [replace(q, senders=tuple(p for p in q.senders if p not in away)) for q in request.queries]
    return replace(request, queries=tuple(queries)) if away else request


def _check_alignment(agreement: Agreement, wish: Wish) -> str:
    """Row numbers of another alignment are other customers: predictions would be wrong, and nobody would see it.

    Returns:
        The digest of the alignment, if it is an extension of the one that the run began with; else nothing.
    """
    began = agreement.proposal.body.get("alignment")
    if not began or wish.alignment is None or wish.alignment == began:
        return ""
    if began not in wish.former:
        raise Unanswerable(
            f"run {agreement.proposal.body['run']!r} was trained on the rows of alignment {str(began)[:12]}, and the "
            f"alignment here is {wish.alignment[:12]}: put the former one back, or train a new run"
        )
    return wish.alignment


def _released(run: Run, link: Link, schema: Schema, request: Request, callers: Callers) -> Down:
    """A request as it leaves; it is in the saved ledger, and signed, before anybody can read it."""
    groups, numbers = tuple(g.parties for g in schema.groups), numbers_of(schema)
    gate = CoordinatorGate(link.run, run.ledger, schema.parties, groups, numbers=numbers, callers=callers)
    before = len(run.ledger)
    down = gate.release(request, {}, ())
    try:
        run.model.append_ledger(before)
    except OSError as error:
        raise Unwritable(
            f"the ledger cannot be written ({error.strerror}); nothing was asked; see to the disk"
        ) from None
    if run.model.path is not None:
        sign_file(run.model.path, len(run.ledger), head_signer(link.credentials, link.run))
    return down


def _check_present(run: Run, collected: Collected, wish: Wish, patience: float, released: bool) -> None:
    """Refuse a prediction that lacks somebody, unless such a one may be left out; or everybody."""
    told = f"did not answer within {patience:.0f} s; nothing was predicted; start the party"
    if collected.absent and wish.absent == "refuse":
        raise NotThere(f"{', '.join(collected.absent)} {told}{_or_without(run)}", collected.absent, released)
    if len(collected.absent) == len(run.model.design.parties):
        nobody = f"nobody answered within {patience:.0f} s; nothing was predicted; start the parties"
        raise NotThere(nobody, collected.absent, released)


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
    held = {p: np.asarray(known) for p, known in (wish.presence or {}).items()}
    patterns: dict[tuple[str, ...], list[int]] = {}
    for place, row in enumerate(wish.rows.tolist()):
        patterns.setdefault(tuple(p for p in schema.parties if p not in held or held[p][row]), []).append(place)
    lacking = sorted({p for who in patterns for p in schema.parties if p not in who})
    if lacking and wish.absent == "refuse":
        raise Unanswerable(
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
    answers = []
    state = {k: v.to(schema.device) for k, v in run.state.items()}
    for part, uploaded in enumerate(collected.uploaded):
        with torch.no_grad():
            answers.append(outputs(run.method, state, open_sum(opener, schema, request, part, uploaded)).cpu())
    return Prediction(in_order(answers, asked))


def _add_up(run: Run, schema: Schema, wish: Wish, asked: Sequence[Tensor], collected: Collected) -> Prediction:
    answers = []
    lacking: dict[tuple[str, ...], list[Tensor]] = {}
    state = {k: v.to(schema.device) for k, v in run.state.items()}
    for places, uploaded in zip(asked, collected.uploaded, strict=True):
        told = by_party(schema, uploaded)
        if not told:
            nobody = f"none of the parties that hold {len(places)} of these rows answered; nothing was predicted"
            raise NotThere(nobody, collected.absent, released=True)
        uploads, present = in_their_places(run.method, schema, told, len(places))
        with torch.no_grad():
            answers.append(outputs_of(run.method, run.task, state, uploads, present).cpu())
        if missing := tuple(sorted(set(schema.parties) - set(told))):
            lacking.setdefault(missing, []).append(places)
    return Prediction(in_order(answers, asked), {who: torch.cat(rows) for who, rows in lacking.items()})
