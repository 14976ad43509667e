"""Opening a run at the label holder: labels behind their mechanism, schedule, budget, and the coordinator's side."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from colonnade.engines.base import known_rows, numbers_of
from colonnade.engines.coordinator import CoordinatorSide
from colonnade.engines.plan import SMALL, USUAL, TrainingPlan
from colonnade.engines.taken_over import TakenOver
from colonnade.errors import ConfigError
from colonnade.evaluate.decision import check_decision
from colonnade.evaluate.metrics import choose_metric
from colonnade.federation import Federation, RowSplit, Task
from colonnade.methods._guest import check_guest, check_shown, guest_of
from colonnade.methods.base import (
    BringsNoise,
    FitsAtHome,
    Method,
    brings,
    check_absence,
    check_labels,
    check_numbers,
    check_participation,
)
from colonnade.methods.by_row import check_by_row, check_columns, local_steps_of
from colonnade.methods.rounds import AddsIncrements, HasUsual, schedule_of
from colonnade.methods.without import check_party_dropout
from colonnade.models.schema import Schema
from colonnade.privacy.gate import CoordinatorGate
from colonnade.privacy.gaussian import SeededNoise
from colonnade.privacy.labels import Labels
from colonnade.privacy.labels.known import KnownLabels
from colonnade.privacy.labels.settings import LabelSettings, check_counted, check_split_alone, open_labels
from colonnade.privacy.labels.weighted import weigh
from colonnade.privacy.ledger import Ledger
from colonnade.privacy.mechanism import Budget, Mechanism, Protection
from colonnade.privacy.settings import PrivacySettings, last_affordable
from colonnade.randomness import key
from colonnade.run import Training
from colonnade.schedule import Schedule
from colonnade.wire.traffic import Traffic


@dataclass(frozen=True)
class Terms:
    """What a run promises, and what it does when somebody stays away."""

    privacy: PrivacySettings = field(default_factory=PrivacySettings)
    goes_on: bool = False  # without a party that does not answer
    label_key: int | None = field(default=None, repr=False)  # of the label noise; None: the seed's, for simulations
    may_evaluate: bool = True  # something may leave for evaluation, if the settings allow it
    short_rows: bool = True  # parties read requests that leave out row numbers which they know
    taken: TakenOver | None = None  # parts of a former run, with the labels as they were drawn then


def check_facts(  # one argument per fact
    task: Task, truth: Tensor, split: RowSplit, training: Training, privacy: PrivacySettings, may_evaluate: bool
) -> None:
    """Refuse settings that do not fit the labels and their split, which the label holder knows before anybody agrees.

    Raises:
        ConfigError: protected labels were counted, the task has no such metric, or a decision cannot be fitted.
    """
    check_counted(task.positive, privacy.labels)
    check_split_alone(split.stratified, privacy.labels)
    choose_metric(task, training.metric)
    evaluates = privacy.evaluates() and may_evaluate and training.evaluate_every != 0
    seen = truth[split.validation.to(truth.device)]
    check_decision(training.decision, task, seen, privacy.labels.protects, evaluates)


def open_coordinator(
    federation: Federation,
    schema: Schema,
    method: Method,
    training: Training,
    ledger: Ledger,
    run: str,
    terms: Terms,
) -> CoordinatorSide:
    """The label holder's side of a run; of the federation's columns it needs none."""
    privacy = terms.privacy
    truth, split = federation.labels.to(schema.device), federation.split
    schedule = schedule_of(method, training.schedule, split.train, schema.parties, training.seed)
    noise = key(training.seed, "label noise") if terms.label_key is None else terms.label_key
    known = federation.labelled
    train = split.train if known is None else split.train[known[split.train]]
    weighted = federation.weights is not None or training.class_weights is not None
    check_labels(method, federation.task, privacy.labels, weighted)
    check_by_row(method, privacy, federation.task, schedule, training.computing, weighted)
    check_columns(privacy, bool(federation.plans) and federation.columns_from == "training")
    check_guest(method, schema.parties)
    check_shown(method, privacy.protects, privacy.secure_sum.use)
    check_facts(federation.task, truth, split, training, privacy, terms.may_evaluate)
    labels = terms.taken.labels if terms.taken is not None else None
    if labels is None:
        labels = open_labels(truth, federation.task, train, privacy.labels, noise, split.validation)
    labels = weigh(labels, federation.weights, training.class_weights, truth, train, privacy.labels)
    if known is not None:
        labels = KnownLabels(labels, known.to(schema.device))
    check_absence(method, terms.goes_on)
    check_participation(method, training.schedule.participation)
    check_party_dropout(method, training.schedule.party_dropout, terms.goes_on, schema.head.layers)
    check_numbers(method, training.wire.numbers, privacy.secure_sum.use)
    silence = schedule.someone_may_be_silent or schedule.leaves_out or terms.goes_on
    privacy.check_sum(len(schema.parties), method.needs_uploads, silence, schema.held is not None)
    rounds, spent = _affordable(schedule, training.rounds, privacy)
    may_evaluate = training.evaluate_every if privacy.evaluates() and terms.may_evaluate else 0
    home: Labels | None = None
    if isinstance(method, FitsAtHome):
        plain = open_labels(truth, federation.task, train, LabelSettings(), noise)
        home = weigh(plain, federation.weights, training.class_weights, truth, train, LabelSettings())
        if privacy.labels.protects and may_evaluate != 0:
            may_evaluate = rounds  # once: keep and stop would tell parties of the true labels
    return CoordinatorSide(
        method=method,
        schema=schema,
        labels=labels,
        truth=truth,
        validation=split.validation,
        schedule=schedule,
        training_plan=TrainingPlan(
            rounds,
            may_evaluate,
            training.stopping,
            terms.goes_on,
            training.metric,
            spent or "all rounds done",
            training.decision,
            SMALL if len(split.validation) <= schedule.batch else USUAL,
            by_loss=isinstance(method, HasUsual) and method.usual.by_loss and training.metric is None,
            always=isinstance(method, AddsIncrements),
        ),
        gate=CoordinatorGate(
            run,
            ledger,
            schema.parties,
            tuple(g.parties for g in schema.groups),
            labels,
            numbers_of(schema),
            guest_of(method),
            known_rows(schema) if terms.short_rows else None,
        ),
        traffic=Traffic(schema.parties),
        row_weights=federation.weights,
        home=home,
        taken=terms.taken,
    )


def _affordable(schedule: Schedule, rounds: int, privacy: PrivacySettings) -> tuple[int, str]:
    """How many of the rounds every party's budget pays for, and the reason to stop there."""
    if not privacy.protects or privacy.sigma is None or privacy.epsilon is None:
        return rounds, ""  # calibrated noise affords all rounds it was calibrated for
    budget = Budget(privacy.epsilon, privacy.delta, privacy.neighbours)
    plans = ((n, schedule.plan(n).senders) for n in range(1, rounds + 1))
    last = last_affordable(plans, budget.releases(privacy.sigma))
    return (rounds, "") if last == rounds else (last, f"budget: round {last + 1} would pass {budget}")


def simulated_protection(coordinator: CoordinatorSide, run: str, privacy: PrivacySettings) -> Protection:
    """What stands before the uploads of a simulation: everything is drawn from its seed, so that it can be repeated."""
    schema, adders, rounds = coordinator.schema, None, coordinator.training_plan.rounds
    most = coordinator.schedule.most_releases(rounds)
    if privacy.secure_sum.use:
        from colonnade.privacy.secure_sum.adders import simulated  # needs a library that not everybody installs

        adders = simulated(run, schema.parties, schema.seed, privacy)
        coordinator.opener = adders.opener(most)
    source, method = SeededNoise(schema.seed), coordinator.method
    if privacy.by_row:
        return privacy.row_protection(local_steps_of(method, coordinator.schedule, rounds), source)
    own = method.mechanism(source, schema) if isinstance(method, BringsNoise) else None
    return privacy.protection(most, source, adders, own)


def one_protection(privacy: PrivacySettings, mechanism: Mechanism | None, method: Method) -> PrivacySettings:
    """The settings, unless they, the method and a mechanism of the caller's own would stand before the same uploads."""
    if mechanism is not None and (own := brings(method)):
        raise ConfigError(f"{method.name} brings noise of its own ({own}); leave the mechanism out, or switch it off")
    if mechanism is not None and (privacy.noised or privacy.secure_sum.use):
        raise ConfigError("give either privacy settings with a mechanism, or a mechanism of your own, not both")
    return privacy
