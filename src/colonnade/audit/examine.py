"""The audit of one finished run: a short recorded retraining, games, attacks, the ledger.

Messages are not stored, so the first rounds are trained again from the run's own configuration, with its own seed,
noise and schedule. That costs no privacy: it is a simulation by whoever holds all columns anyway.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch

from colonnade.audit.at_home import check_at_home, check_gradients
from colonnade.audit.attacks import attack
from colonnade.audit.books import AuditedRun, check_books, replayed
from colonnade.audit.checks import BOUND, Check, not_tried
from colonnade.audit.claims import Additive, claim_of
from colonnade.audit.label_game import LabelTrial
from colonnade.audit.row_game import RowGame
from colonnade.audit.shapes import Layout
from colonnade.audit.target import Target
from colonnade.audit.transcript import Transcript, record
from colonnade.audit.verdict import Examination, Figure, Retrained
from colonnade.engines.base import DEPLOYED
from colonnade.engines.coordinator import CoordinatorSide
from colonnade.errors import RunError
from colonnade.federation import Federation
from colonnade.fit import Trainer
from colonnade.methods.base import brings
from colonnade.models.row_gradients import is_chain
from colonnade.privacy import sampled
from colonnade.privacy.events import Hides
from colonnade.privacy.ledger import Ledger
from colonnade.privacy.mechanism import Hiding
from colonnade.progress import Watcher
from colonnade.run import Run
from colonnade.tasks import Task
from colonnade.wire.messages import COORDINATOR, Purpose

ON_DEVICE = "noise on the GPU", "games are played on the CPU, and the run computed norms and sums on its GPU"
ROUNDS = 20  # of the retraining, unless the run had fewer


@dataclass(frozen=True)
class Wishes:
    """How an audit is to be done."""

    rounds: int = ROUNDS
    seed: int = 0  # of canaries, games and rows that attackers know; the retraining keeps the run's own
    games: int | None = None  # in each of the two worlds; None: as many as noise at 0.8 needs, up to some seconds


@dataclass(frozen=True)
class Watching:
    """Who looks on: at the retraining, and at the game (called with the number of steps, gives one step)."""

    training: Watcher | None = None
    game: Callable[[int], Callable[[], None]] = lambda steps: lambda: None


def examine(
    run: Run,
    federation: Federation,
    saved: Mapping[str, Any],
    wishes: Wishes | None = None,
    watching: Watching | None = None,
) -> Examination:
    """Audit a finished run; `saved` is its record, `federation` the data it was trained on."""
    refuse(run)
    wishes, watching = wishes or Wishes(), watching or Watching()
    with _threads_of(run):
        trainer = open_again(run, federation)
        coordinator, figure = trainer.coordinator, figure_of(run)
        target = target_of(trainer, run, figure)
        _shorten(coordinator, min(wishes.rounds, run.result["rounds"]))
        transcript = record(trainer, watching.training)
        books = check_books(run, AuditedRun(coordinator.schedule, federation.split, target.mechanism), counts_of(saved))
        found, holes = replayed(run.ledger, _digests(transcript))
        rows = len(federation.split.train) + len(federation.split.validation)
        checks = [*play_target(target, figure, wishes, watching), *play_labels(run, federation.task, rows, wishes)]
        if coordinator.schema.device.type != "cpu" and target.mechanism.event.kind.hides is Hides.COLUMNS:
            checks.append(not_tried(*ON_DEVICE))
        checks += play_at_home(transcript, run.privacy.delta, wishes, watching)
        findings = attack(transcript, wishes.seed, finished=run)
    books = replace(
        books, problems=(*books.problems, *figure.beyond(run.privacy), *transcript_problems(transcript), *holes)
    )
    return Examination(figure, checks, findings, books, _retrained(run, transcript, found))


def refuse(run: Run) -> None:
    """Say in one sentence why a run cannot be audited by training again, if so."""
    where = run.path or run.id
    if run.about["engine"] == DEPLOYED:
        raise RunError(
            f"{where} is a run of separate organisations, whose columns are not here; `colonnade audit` plays against "
            "what is here: give it the folder of the label holder or of a party"
        )
    if run.about.get("partial"):
        raise RunError(
            f"{where} was trained on rows that lack a party's columns or a label, which no attack knows how to count; "
            "audit a run on the matched rows: Federation.matched(), or keep = 'all'"
        )
    if run.method.pools:
        raise RunError(
            f"{where} was trained with {run.method.name}, which puts all columns in one place: nothing is sent, "
            "so there is nothing to attack; audit another method"
        )


def figure_of(run: Run) -> Figure:
    """What the ledger says, of columns and of labels."""
    return Figure.of(list(run.ledger), run.privacy, run.label_exposure, brings(run.method))


def target_of(trainer: Trainer, run: Run, figure: Figure) -> Target:
    """The gate of the party that uploads most numbers, with the largest batch of the run."""
    schema = trainer.coordinator.schema
    rows = _most_rows(run.ledger) or trainer.coordinator.schedule.batch
    sides = [(Layout.agreed(side.gate.agreed, rows, schema.dtype), side.gate) for side in trainer.engine.parties()]
    layout, gate = max(sides, key=lambda side: side[0].cells)
    mechanism = gate.protection.training
    summed = isinstance(mechanism, Hiding)
    return Target(
        mechanism,
        layout,
        gate.numbers,
        max(1, figure.releases),
        run.privacy.delta,
        run.privacy.neighbours,
        schema.parties if summed else (),
        trainer.coordinator.opener if summed else None,
        schema.parties,
        int(run.result["rounds"]),
    )


def _most_rows(ledger: Ledger) -> int:
    return max((r.rows for r in ledger if r.purpose is Purpose.TRAIN and r.owner != COORDINATOR), default=0)


def play_target(target: Target, figure: Figure, wishes: Wishes, watching: Watching) -> Iterator[Check]:
    """Everything that can be played against the mechanism before uploads; or why nothing can."""
    event = target.mechanism.event
    if sampled.supports(event):
        return  # nothing is uploaded about training rows: `play_at_home`
    claim = claim_of(event)
    if figure.releases or claim is not None:
        yield from target.at_full_shape(wishes.seed)
    if claim is not None and figure.releases:
        tick = watching.game(_steps(target, claim, wishes)) if isinstance(claim, Additive) else lambda: None
        yield from target.in_games(wishes.seed, wishes.games, tick)
    elif figure.claims:
        means = "the ledger claims an epsilon, but the run's settings put no noise before uploads"
        yield Check(BOUND, means, "no noise", f"{figure.epsilon:.3f} ledger", failed=True)
    elif not event.bare:
        yield not_tried(BOUND, f"of {event.name!r} no accountant says an epsilon that a game could contradict")


def play_at_home(transcript: Transcript, delta: float, wishes: Wishes, watching: Watching) -> Iterator[Check]:
    """The game, noise, draws and gradients of parties that train at home, if they do."""
    local, cohorts = transcript.sides[0].gate.protection.local, [side.cohort for side in transcript.sides]
    if local is None:
        return
    schema, method = transcript.schema, transcript.run.method
    game = RowGame(local, method, schema.parties, schema.task, schema.dtype, delta, chained=all(map(is_chain, cohorts)))
    yield game.check(wishes.seed, wishes.games, watching.game)
    yield from check_at_home(local, schema.parties, game.local_steps)
    yield check_gradients(cohorts, local)


def _steps(target: Target, claim: Additive, wishes: Wishes) -> int:
    trial = target.trial(claim, wishes.games)
    return 2 * trial.releases * -(-trial.runs // 100)


def play_labels(run: Run, task: Task, rows: int, wishes: Wishes) -> Iterator[Check]:
    """The game against label noise, if there is any."""
    if run.privacy.labels.protects:
        yield from LabelTrial(run.privacy.labels, task, rows).checks(wishes.seed)


def open_again(run: Run, federation: Federation) -> Trainer:
    """A fresh trainer that will do exactly what the run did: same seed, noise, order of summation and name."""
    about = {"id": run.id, "ways": run.about["ways"], "config": run.config}
    training = run.training
    if not torch.cuda.is_available():
        training = training.model_copy(update={"device": "cpu"})
    return Trainer.open(
        federation, run.method, training, run.model_settings, run.encoders, None, about, privacy=run.privacy
    )


def _shorten(coordinator: CoordinatorSide, rounds: int) -> None:
    """Stop early. Only now: noise that was calibrated for all rounds must not be calibrated for fewer."""
    coordinator.training_plan = replace(coordinator.training_plan, rounds=rounds, end="the audit has seen enough")


@contextmanager
def _threads_of(run: Run) -> Iterator[None]:
    """As many threads as the run had: sums come out the same only in the same order."""
    before = torch.get_num_threads()
    torch.set_num_threads(int(run.about["machine"]["threads"]))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def transcript_problems(transcript: Transcript) -> tuple[str, ...]:
    """Messages of the retraining that its own ledger does not know: the code that is installed forgets some."""
    senders = transcript.unlogged()
    if not senders:
        return ()
    return (
        f"{len(senders)} messages of the retraining not in its own ledger; senders: {', '.join(sorted(set(senders)))}",
    )


def counts_of(saved: Mapping[str, Any]) -> dict[tuple[str, Purpose], int]:
    """How often everybody had released something when the result was saved."""
    return {(owner, Purpose(purpose)): int(count) for owner, purpose, count in saved["releases"]}


def _digests(transcript: Transcript) -> dict[str, list[str]]:
    """Of the training uploads, by party, in order."""
    digests: dict[str, list[str]] = defaultdict(list)
    for message in (
        m for e in transcript.recorded_rounds for h in e.uploads if h.purpose is Purpose.TRAIN for m in h.messages
    ):
        digests[message.sender].append(hashlib.sha256(message.payload).hexdigest())
    return dict(digests)


def _retrained(run: Run, transcript: Transcript, found: int) -> Retrained:
    trained = [h for e in transcript.recorded_rounds for h in e.uploads if h.purpose is Purpose.TRAIN]
    rows = len(torch.cat([h.rows for h in trained]).unique()) if trained else 0
    uploads = sum(len(mine) for mine in _digests(transcript).values())
    return Retrained(transcript.run.result["rounds"], run.result["rounds"], rows, uploads, found)
