"""What the label holder undertakes, before anybody agreed to it, and the text of the proposal that it becomes."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from colonnade.deploy.agreement import Agreement
from colonnade.deploy.by_row import agreed_mechanism
from colonnade.deploy.taken_run import TakenRun
from colonnade.engines.remote import Absence
from colonnade.errors import ConfigError
from colonnade.federation import Federation, Party, RowSplit, Task
from colonnade.methods.base import (
    Method,
    brings,
    check_absence,
    check_lacking,
    check_numbers,
    check_participation,
)
from colonnade.methods.by_row import check_by_row, local_steps_of
from colonnade.methods.rounds import schedule_of
from colonnade.methods.without import check_party_dropout
from colonnade.models.encoders import ModelSettings
from colonnade.models.ridge import RidgeSettings
from colonnade.models.trees import TreeSettings
from colonnade.privacy.events import PlainEvent
from colonnade.privacy.gaussian import SystemNoise
from colonnade.privacy.settings import PrivacySettings
from colonnade.record import Sections
from colonnade.rows import Grouping
from colonnade.run import Training
from colonnade.wire.messages import Purpose
from colonnade.wire.numbers import WireSettings

PURPOSES = (Purpose.TRAIN, Purpose.EVALUATE, Purpose.PREDICT)


@dataclass(frozen=True)
class Undertaking:
    """What the label holder needs: labels and rows, method, networks, length, and patience."""

    parties: tuple[str, ...]
    labels: torch.Tensor = field(repr=False)  # (N,) or (N, K), by row number
    task: Task
    split: RowSplit
    method: Method
    model: ModelSettings
    training: Training
    absence: Absence = field(default_factory=Absence)
    privacy: PrivacySettings = field(default_factory=PrivacySettings)
    mechanism: str = PlainEvent.kind.name  # where privacy asks for none: a protection of the parties' own, by name
    alignment: str = ""  # digest of the rows everybody aligned
    former: tuple[str, ...] = ()  # digests of the alignments that it extends: their row numbers hold, too
    purposes: tuple[Purpose, ...] = PURPOSES
    config: Sections | None = None
    weights: torch.Tensor | None = field(default=None, repr=False)  # (N,) how much each row counts; None: all alike
    by: Grouping | None = field(default=None, repr=False)  # groups that the test rows are also measured by
    held: torch.Tensor | None = field(default=None, repr=False)  # (N, M) who holds which row; None: all hold all
    own: tuple[str, ...] = ()  # parties of the label holder's organisation
    withdrawn: tuple[int, ...] = ()  # rows of people who had withdrawn when it began: they are in no part of the split
    taken: TakenRun | None = None  # a finished run whose parts are taken over; None: everybody trains

    @property
    def may_evaluate(self) -> bool:
        """Whether anything leaves for evaluation on validation or test rows; with noise nothing does."""
        return self.privacy.evaluates() and not brings(self.method)

    @property
    def named_mechanism(self) -> str:
        """What stands between columns and wire, by name."""
        return agreed_mechanism(self.privacy) if self.privacy.noised else brings(self.method) or self.mechanism

    def body(self, run: str) -> dict[str, object]:
        """The text of the proposal."""
        ours = {"device", "engine", "checkpoint_every", "decision", "epochs"}  # what the label holder does at home
        if self.training.wire == WireSettings():
            ours.add("wire")  # as before there was a choice: a run that began then goes on
        if self.training.class_weights is None:
            ours.add("class_weights")  # the same
        training = self.training.model_dump(exclude=ours)
        if not self.training.schedule.party_dropout:
            del training["schedule"]["party_dropout"]  # the same
        usual = {"ridge": RidgeSettings(), "trees": TreeSettings()}
        unsaid = {name for name, settings in usual.items() if getattr(self.model, name) == settings}  # likewise
        return {
            "run": run,
            "parties": list(self.parties),
            "method": {"name": self.method.name, "settings": self.method.model_dump()},
            "model": self.model.model_dump(exclude=unsaid),
            "training": training,
            "rows": len(self.labels),
            "task": self.task.name,
            "outputs": self.task.outputs,
            "label_exposure": self.privacy.exposure(self.method.exposes).value,
            "purposes": [p.value for p in self.purposes if p is not Purpose.EVALUATE or self.may_evaluate],
            "privacy": self.privacy.model_dump(exclude=set() if self.privacy.by_row else {"unit"}),  # the same
            "mechanism": self.named_mechanism,
            "absence": self.absence.model_dump(),
            "alignment": self.alignment,
            **({} if self.held is None else {"lacking": True}),
            **({"own": list(self.own)} if self.own else {}),
            **({} if self.taken is None else {"takes_over": self.taken.former.to_json()}),
        }

    def federation(self, agreement: Agreement) -> Federation:
        """The label holder's view: labels and shapes, nobody's columns."""
        shapes = {p: i.shape for p, i in agreement.introductions.items()}
        whose = [None] * len(self.parties) if self.held is None else self.held.T.unbind()
        parties = tuple(
            Party(name, torch.empty(0, *shapes[name]), held) for name, held in zip(self.parties, whose, strict=True)
        )
        name = agreement.proposal.body["run"]
        return Federation(parties, self.labels, self.task, self.split, name=name, weights=self.weights, by=self.by)


def in_full(u: Undertaking) -> PrivacySettings:
    """The promise with its noise as a number, so that every party sees it before it agrees."""
    privacy = u.privacy
    if privacy.protects and privacy.evaluation == "simulated":
        raise ConfigError(
            "privacy.evaluation = 'simulated' sends validation rows without noise, which is for simulations only; "
            "separate organisations use 'none'"
        )
    if u.held is not None:
        check_lacking(u.method)
    check_absence(u.method, u.absence.then == "continue")
    check_numbers(u.method, u.training.wire.numbers, privacy.secure_sum.use)
    schedule = schedule_of(u.method, u.training.schedule, u.split.train, u.parties, u.training.seed)
    check_participation(u.method, u.training.schedule.participation)
    goes_on = u.absence.then == "continue"
    check_party_dropout(u.method, u.training.schedule.party_dropout, goes_on, u.model.head.layers)
    silence = schedule.someone_may_be_silent or schedule.leaves_out or u.absence.then == "continue"
    privacy.check_sum(len(u.parties), u.method.needs_uploads, silence, u.held is not None, u.own)
    if privacy.by_row:
        weighted = u.weights is not None or u.training.class_weights is not None
        check_by_row(u.method, privacy, u.task, schedule, u.training.computing, weighted)
        plan = local_steps_of(u.method, schedule, u.training.rounds)
        privacy.row_noise(plan, SystemNoise())  # whether it can be carried out
        return privacy.model_copy(update={"sigma": privacy.sigma_by_row(plan)})
    if not privacy.protects or privacy.sigma is not None:
        return privacy
    return privacy.model_copy(update={"sigma": privacy.noise(schedule.most_releases(u.training.rounds))})
