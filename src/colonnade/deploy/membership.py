"""Membership: what a party brings to a run, what it agrees to, and the limits it keeps to afterwards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from colonnade.deploy.agreement import (
    Agreement,
    Joined,
    Proposal,
    join,
    proposal_within,
    read_agreement,
    read_proposal,
)
from colonnade.deploy.budget import check_table, check_unit, note_figures, planned, spent_by, whole_cost
from colonnade.deploy.encryption import RunEncryption, encryption_of_party
from colonnade.deploy.limits import check_training
from colonnade.deploy.mechanism import check_mechanism, protection
from colonnade.deploy.open_rows import OpenRows
from colonnade.deploy.party_setup import Columns, PartySetup
from colonnade.deploy.policy import (
    Policy,
    check_columns,
    check_prediction,
    check_repeats,
    check_run,
    check_training_rows,
)
from colonnade.deploy.table_ledger import Entered, TableLedger
from colonnade.deploy.taken_part import check_promise, part_for
from colonnade.deploy.withdrawal.limits import check_request as check_withdrawn
from colonnade.deploy.withdrawal.limits import check_rows
from colonnade.design import Design
from colonnade.engines.base import (
    CohortBuilder,
    Introduction,
    Local,
    columns_dtype,
    in_a_group_alone,
    introduce,
    numbers_of,
    open_module,
)
from colonnade.engines.party import PartySide
from colonnade.errors import AccountingError, ConfigError, ModelError, Refused, RunError, WireError
from colonnade.federation import Party
from colonnade.identity.cipher import KeyPair
from colonnade.identity.credentials import Credentials
from colonnade.methods._guest import check_shown, is_told, shown_by, what_is_shown
from colonnade.methods._lifts import check_sides
from colonnade.methods.base import (
    check_bins,
    check_classifiers,
    check_gradients,
    check_lacking,
    check_numbers,
)
from colonnade.models.encoders import ModelSettings, PartySettings
from colonnade.models.schema import Schema
from colonnade.models.sides import some_of
from colonnade.models.stack import portable_key
from colonnade.part import Part
from colonnade.privacy.gate import Gate
from colonnade.privacy.ledger import Ledger
from colonnade.privacy.mechanism import Protection
from colonnade.privacy.registry import kind_of
from colonnade.privacy.together import Cost, Together
from colonnade.privacy.training_rows import TrainingRows
from colonnade.row_split import rows_of
from colonnade.run import DTYPES
from colonnade.tasks import find_task
from colonnade.wire.messages import Purpose, Request
from colonnade.wire.notice import Notice

MOST_STEPS = 100_000  # of one party in one round: a request for more would keep it busy for ever


class Membership:
    """One party's place in one run: nothing yet, joined to a proposal, or agreed."""

    def __init__(
        self, folder: Path, run: str, credentials: Credentials, setup: PartySetup, keys: KeyPair, spent: TableLedger
    ) -> None:
        self.me, self.run, self._folder = credentials.name, run, folder
        self.credentials, self.setup, self.keys, self.spent = credentials, setup, keys, spent
        self.table = setup.table or self.me
        self.proposal: Proposal | None = None
        self.agreement: Agreement | None = None
        self.cost: Together | None = None  # of the last proposal that was checked; None: it releases nothing
        self._columns: Columns | None = None
        self._part: Part | None = None  # of a finished run, which it brings instead of training; None: it trains
        self._rows = OpenRows()  # that may be asked about
        self.left_out = setup.left_out()  # rows of people who had withdrawn when the run began

    # -- agreeing -----------------------------------------------------------------------------

    def read(self, notice: Notice) -> Proposal:
        """A proposal that really is the coordinator's."""
        return read_proposal(notice, self.credentials)

    def consider(self, proposal: Proposal) -> Notice:
        """Check a proposal against the operator's policy and one's own data; the consent, or `Refused`."""
        if self.agreement is not None and proposal.digest != self.agreement.proposal.digest:
            raise Refused(f"run {self.run!r} began with another proposal; choose another name for a new run")
        if self.agreement is None:
            self.proposal = None
            self._check(proposal)
            self.left_out = self.setup.left_out()
            check_rows(proposal.train, self.left_out, "the proposal trains on")
            self._part = part_for(proposal, self.me, self.setup, self._folder)
            self._columns = self._read_columns(proposal)
            if self._part is not None:
                check_promise(self._part, proposal, self._columns.values)
            self.proposal = proposal
        return join(proposal, self._joined(proposal), self.credentials)

    def _check(self, proposal: Proposal) -> None:
        body = proposal.body
        if self.me not in proposal.parties:
            raise Refused(f"{self.me!r} is not among the parties of the proposal: {', '.join(proposal.parties)}")
        if self.setup.alignment and body.get("alignment") != self.setup.alignment:
            raise Refused(
                f"the proposal is about the rows of another alignment ({str(body.get('alignment'))[:12]}) than the one "
                f"this party has ({self.setup.alignment[:12]}); align again, all together"
            )
        privacy = proposal.privacy()
        if privacy.protects and privacy.evaluation == "simulated":
            raise Refused(
                "the proposal asks for evaluation on validation rows without noise (privacy.evaluation = "
                "'simulated'), which is for simulations only; use 'none'"
            )
        check_mechanism(proposal, self.setup.mechanism.event.kind)
        try:
            training = proposal.training()
            training.computing.check(DTYPES[training.dtype], torch.device(self.setup.device))
            schedule = proposal.schedule()
            goes_on = proposal.absence().then == "continue"
            silence = schedule.someone_may_be_silent or schedule.leaves_out or goes_on
            noised = privacy.protects or not self.setup.mechanism.event.bare
            check_shown(proposal.method(), noised, privacy.secure_sum.use)
            check_numbers(proposal.method(), proposal.training().wire.numbers, privacy.secure_sum.use)
            names, whose = proposal.parties, proposal.own
            privacy.check_sum(len(names), proposal.method().needs_uploads, silence, proposal.lacking, whose)
            costs = planned(proposal, self.me, self.setup.mechanism.event)
        except (ConfigError, AccountingError) as error:
            raise Refused(f"the proposal cannot be carried out: {error}") from None
        policy = self.setup.policy
        check_columns(policy, what_is_shown(proposal.method(), self.me), is_told(proposal.method()))
        check_run(policy, {**body, "numbers": training.wire.numbers})
        check_unit(policy, costs)
        others = [run for run in self.spent.runs(self.table) if run.proposal != proposal.digest]
        check_table(policy, self.table, others, costs)
        self.cost = whole_cost(costs, privacy.delta, privacy.neighbours)

    def agree(self, notice: Notice) -> Agreement:
        """Check the agreement against the proposal that was joined; it holds from `adopt` on.

        A party that was started again after it joined reads the proposal once more: nothing was stored yet.
        """
        if self.proposal is None:
            self.consider(self.read(proposal_within(notice)))
        proposal = self.proposal
        if proposal is None:
            raise Refused(f"party {self.me!r} has not joined a proposal of run {self.run!r}")
        agreement = read_agreement(notice, proposal, self._joined(proposal), self.credentials)
        self.encryption(agreement)  # the run's key was really meant for this party
        self.enter(proposal, limited=True)
        return agreement

    def enter(self, proposal: Proposal, limited: bool) -> None:
        """Charge the table with what was agreed on, once; `Refused`, if it is limited and the budget is used up."""
        costs, rows = tuple(planned(proposal, self.me, self.setup.mechanism.event)), int(proposal.body["rows"])
        entered = Entered(proposal.digest, self.run, self.me, self.table, self.columns.digest(), rows, costs)
        policy = self.setup.policy if limited else Policy()
        self.spent.enter(entered, lambda others: check_table(policy, self.table, others, costs))
        self.note_spent()

    def note_spent(self) -> None:
        """Leave what the table has cost for those who watch."""
        note_figures(self.spent, self.table, self.setup.policy)

    def spent_by(self, ledger: Ledger) -> list[Cost]:
        """What the agreed training has cost this party, when it is over."""
        if self.proposal is None:
            raise RunError(f"party {self.me!r} has not agreed to a run")
        return spent_by(self.proposal, ledger, self.me, self.setup.mechanism.event)

    def adopt(self, agreement: Agreement) -> str:
        """From now on this holds; the digest of the columns it holds for."""
        if self._columns is None:
            self._part = part_for(agreement.proposal, self.me, self.setup, self._folder)
            self._columns = self._read_columns(agreement.proposal)
        if self._introduction(agreement.proposal) != agreement.introductions[self.me]:
            raise RunError(
                f"the local model of {self.me!r} is not the one that run {self.run!r} began with; put it back, or "
                "begin a new run under another name"
            )
        self.proposal, self.agreement = agreement.proposal, agreement
        self._rows = OpenRows(str(agreement.proposal.body.get("alignment") or ""), len(self._columns.values))
        return self._columns.digest()

    @property
    def goes_on(self) -> bool:
        """Whether the run goes on without a party that stays away."""
        return self.agreement is not None and self.agreement.proposal.absence().then == "continue"

    @property
    def sums(self) -> bool:
        """Whether what this party sends opens only together with the others'."""
        return self.agreement is not None and self.agreement.proposal.privacy().secure_sum.use

    @property
    def masks_apart(self) -> bool:
        """Whether it does so under masks of keys that the table ledger keeps."""
        return self.agreement is not None and self.agreement.proposal.masks_apart

    def encryption(self, agreement: Agreement) -> RunEncryption:
        """The encryption that the agreement makes possible."""
        p = agreement.proposal
        try:
            secret = bytes.fromhex(agreement.secrets[self.me])
        except (KeyError, ValueError):
            raise WireError("the agreement has no key of the run for this party") from None
        return encryption_of_party(self.credentials, self.keys, p.key, secret, p.digest)

    # -- one's own part -----------------------------------------------------------------------

    def _read_columns(self, proposal: Proposal) -> Columns:
        rows = int(proposal.body["rows"])
        seen = rows_of("others" if proposal.privacy().by_row else "training", proposal.train, rows)
        plan = None if self._part is None else self._part.plans.get(self.me)
        columns = self.setup.columns_of(str(proposal.body.get("alignment") or ""), seen, rows, self.left_out, plan)
        held = columns.held[:rows]
        there = held | torch.isin(torch.arange(len(held)), self.left_out)
        enough = bool(held[proposal.train].any()) if proposal.lacking and len(held) == rows else bool(there.all())
        if len(columns.values) < rows or not enough:
            raise Refused(f"the proposal is about {rows} rows; this party has {int(columns.held.sum())}; align again")
        try:
            check_bins(proposal.method(), self.me, columns.plan is not None and columns.plan.cut)
            if proposal.lacking:
                check_lacking(proposal.method())
            check_sides(proposal.method(), self.me, columns.values[some_of(proposal.train[held[proposal.train]])])
        except ConfigError as error:
            raise Refused(str(error)) from None
        return columns

    @property
    def columns(self) -> Columns:
        """The party's columns, once they are read."""
        if self._columns is None:
            raise RunError("the columns are not read yet: there is no proposal")
        return self._columns

    def _joined(self, proposal: Proposal) -> Joined:
        mask = self.spent.mask_keys(proposal.digest, make=True).public if proposal.masks_apart else b""
        return Joined(self._introduction(proposal), self.keys.public, mask=mask)

    def _introduction(self, proposal: Proposal) -> Introduction:
        values, module = self.columns.values, self._module(proposal)
        reads = columns_dtype(module, not values.is_floating_point(), DTYPES[proposal.training().dtype])
        alone = in_a_group_alone(self.me, shown_by(proposal.method()))
        apart = proposal.model().apart(self._settings(proposal)) + alone
        return introduce(self.me, module, tuple(values.shape[1:]), reads, apart, portable_key)

    def _settings(self, proposal: Proposal) -> ModelSettings:
        """The proposal's settings for this party's local model, with what its own file says of it; or as they were."""
        if self._part is not None:
            return self._part.design.settings
        return proposal.model().of(self.me).with_own(self.setup.model or PartySettings())

    def _module(self, proposal: Proposal) -> Local:
        """This party's local model as it begins; the method must be able to train it."""
        training, shape = proposal.training(), tuple(self.columns.values.shape[1:])
        dtype, outputs = DTYPES[training.dtype], int(proposal.body["outputs"])
        model = self._settings(proposal)
        try:
            module = open_module(self.setup.encoders, model, self.me, shape, outputs, training.seed, dtype)
        except (RuntimeError, MemoryError, ValueError, TypeError) as error:  # larger than this machine, for one
            raise ModelError(f"the network of the proposal cannot be made here: {str(error).splitlines()[0]}") from None
        try:
            check_gradients(proposal.method(), self.me, isinstance(module, torch.nn.Module))
        except ConfigError as error:
            raise Refused(str(error)) from None
        check_classifiers(proposal.method(), self.me, [module], find_task(str(proposal.body["task"]))(outputs))
        return module

    def open_side(self, ledger: Ledger) -> PartySide:
        """The party side of the agreed run, with its first weights."""
        if self.agreement is None:
            raise RunError(f"party {self.me!r} has not agreed to a run")
        proposal, columns = self.agreement.proposal, self.columns
        model, method = self._settings(proposal), proposal.method()
        schema = self.agreement.schema(torch.device(self.setup.device))
        group = schema.groups[schema.position(self.me)[0]]
        stands, numbers = self._protection(schema), numbers_of(schema)
        gate = Gate(self.run, ledger, method.upload_arrays(schema, group), stands, numbers=numbers)
        scaling = frozenset({self.me} if model.scales(columns.scaled) else ())
        owner = Party(self.me, columns.values, columns.held if proposal.lacking else None)
        spares = proposal.privacy().by_row
        scales = {} if self._part is None else {self.me: self._part.tensors}
        builder = CohortBuilder({self.me: owner}, schema, {self.me: self._module(proposal)}, scaling, spares, scales)
        remembers = proposal.schedule().someone_may_be_silent or self.goes_on
        side = PartySide(method, builder.cohort((self.me,)), gate, remembers)
        if self._part is not None:
            side.load_models({self.me: self._part.tensors})
        return side

    def _protection(self, schema: Schema) -> Protection:
        """What stands before every upload of the agreed run."""
        agreement = self.agreement
        assert agreement is not None
        p = agreement.proposal
        keys = self.spent.mask_keys(p.digest, make=False) if p.masks_apart else self.keys
        return protection(p, schema, agreement.adders({self.me: keys}), self.setup.mechanism)

    def part(self, tensors: Mapping[str, Tensor]) -> Part:
        """This party's part of the model, given what it learned."""
        if self.agreement is None:
            raise RunError(f"party {self.me!r} has not agreed to a run")
        body, columns = self.agreement.proposal.body, self.columns
        plans = {} if columns.plan is None else {self.me: columns.plan}
        shape, noisy = tuple(columns.values.shape[1:]), not kind_of(body["mechanism"]).bare
        tokens = () if columns.values.is_floating_point() else (self.me,)
        design = replace(Design.proposed(body), settings=self._settings(self.agreement.proposal), tokens=tokens)
        former = self._part and self._part.trained  # the rows that it learned from, also those that are no rows here
        trained = (former or self._training_rows) if noisy else None
        return Part(design, self.me, shape, tensors, plans, self.setup.encoders, noisy, trained)

    @cached_property
    def _training_rows(self) -> TrainingRows:
        """What the part knows its training rows by; computed once, because every prediction writes the part again."""
        if self.agreement is None:
            raise RunError(f"party {self.me!r} has not agreed to a run")
        train = self.agreement.proposal.train
        return TrainingRows.of_one(self.me, self.columns.values, train[self.columns.held[train]])

    # -- limits -------------------------------------------------------------------------------

    def extend(self, request: Request) -> int | None:
        """Read further rows, if a request names an extension of the run's alignment; how many warnings they have."""
        if (found := self._rows.extend(request, self.setup, self.columns)) is None:
            return None
        self.setup, self._columns = found
        return self._rows.doubts

    def check_request(self, request: Request) -> None:
        """A request keeps to what was agreed on and what the operator allows; `Refused` or `WireError` otherwise."""
        check_withdrawn(request, self.me, self.setup.left_out())
        held, count = self.columns.held, self._rows.count(request)
        purposes = self.agreement.proposal.body["purposes"] if self.agreement else []
        if any(not 0 <= count <= MOST_STEPS for _, count in request.steps):
            raise WireError(
                f"request {request.number} needs a number of local steps that is not between 0 and {MOST_STEPS:,}"
            )
        for query in request.queries:
            if query.purpose.value not in purposes:
                raise Refused(f"the run did not agree on purpose {query.purpose.value}")
            if len(query.rows) and (int(query.rows.min()) < 0 or int(query.rows.max()) >= count):
                raise WireError(f"request {request.number} asks about row {int(query.rows.max())}; there are {count}")
            if self.me not in query.senders:
                continue
            if query.purpose in (Purpose.PREDICT, Purpose.EXPLAIN):
                check_prediction(self.setup.policy, len(query.rows), query.purpose.value)
                check_training_rows(self.setup.policy, self._trained_with_noise(query.rows))
            lacking = query.purpose is Purpose.TRAIN and self.agreement is not None and self.agreement.proposal.lacking
            if not lacking and not bool(held[query.rows].all()):
                raise Refused(f"request {request.number} asks about rows that {self.me!r} does not have")
        if self.agreement is not None:
            check_training(request, self.agreement.proposal, self.me, len(held))
        if self.setup.policy.most_predictions_per_row and (rows := self.asked_to_predict(request)):
            asked = Counter(self.names_of(rows))
            check_repeats(self.setup.policy, self.spent.most_predicted(self.table, asked) + max(asked.values()) - 1)

    def asked_to_predict(self, request: Request) -> list[int]:
        """The rows that this party is asked to predict; one that is asked for twice, twice."""
        bare = (Purpose.PREDICT, Purpose.EXPLAIN)
        mine = [query.rows for query in request.queries if query.purpose in bare and self.me in query.senders]
        return [row for rows in mine for row in rows.tolist()]

    def names_of(self, rows: Sequence[int]) -> Sequence[str]:
        """What rows are called in the table ledger: numbers mean nothing beyond one alignment."""
        return self.setup.names_of(torch.tensor(rows)) if rows else ()

    def _trained_with_noise(self, rows: Tensor) -> int:
        """How many of some rows trained, where the run agreed on noise for them; also in a run that is taken over."""
        if self.agreement is None or kind_of(self.agreement.proposal.body["mechanism"]).bare:
            return 0
        trained = torch.isin(rows, self.agreement.proposal.train)
        if self._part is not None and self._part.trained is not None:
            trained |= self._part.trained.among({self.me: self.columns.values[rows]})[self.me]
        return int(trained.sum())
