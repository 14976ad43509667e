"""The audit of one finished run: a short recorded retraining, the game, the attacks, the ledger.

Messages are not stored, so the first rounds are trained again from the run's own configuration, with its own seed,
noise and schedule. That costs no privacy: it is a simulation by whoever holds all columns anyway.
"""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypedDict

import torch

from colonnade.audit.attacks import attack
from colonnade.audit.books import AuditedRun, Books, check_books, replayed
from colonnade.audit.bound import Bound, runs_for
from colonnade.audit.table import Finding
from colonnade.audit.through_gate import ThroughGate
from colonnade.audit.transcript import Transcript, record
from colonnade.audit.trial import Trial, plan
from colonnade.engines.coordinator import CoordinatorSide
from colonnade.errors import AccountingError, RunError
from colonnade.federation import Federation
from colonnade.fit import Trainer
from colonnade.methods.base import BringsNoise
from colonnade.privacy.accounting import Neighbours, exact_epsilon, mean_shift
from colonnade.privacy.ledger import Entry
from colonnade.privacy.mechanism import Mechanism
from colonnade.privacy.promise import Circumstances
from colonnade.privacy.statement import Statement
from colonnade.progress import Watcher
from colonnade.run import Run
from colonnade.wire.messages import COORDINATOR, Purpose

ROUNDS = 20  # of the retraining, unless the run had fewer
DRAWS = 120_000  # messages of one game: about twenty seconds


@dataclass(frozen=True)
class Claim:
    """What the ledger says that training cost the party it cost most, and what a game showed."""

    party: str | None  # None: nobody uploaded, or the ledger cannot be accounted for
    releases: int
    epsilon: float  # of all of them; infinite without noise
    delta: float
    neighbours: Neighbours
    bound: Bound | None = None  # None: there was nothing to play for
    played: float = 0.0  # what the ledger says of as many releases as one game plays
    needed: int = 0  # games that would show half the noise
    accountant: str = "exact"
    unit: str = "PARTY"  # or ROW: of one row at all parties
    untried: str = ""  # the mechanism, where it is noise of the method's own: the game is for clipped Gaussian noise

    @property
    def contradicted(self) -> bool:
        """Whether the bound is above the ledger's figure; without any noise it is above every figure."""
        if self.bound is None:
            return self.party is not None and math.isfinite(self.epsilon) and not self.untried
        return self.bound.above(self.played)

    @property
    def sentence(self) -> str:
        """What it means."""
        if self.bound is None:
            return self._nothing_to_play()
        if self.contradicted:
            return "ABOVE the ledger's figure: the noise, the clipping or the ledger is wrong"
        found = "below the ledger's figure: nothing was found, which is no proof"
        if self.bound.runs < self.needed:
            return f"{found}; too few games to see even half the noise, --game {self.needed} would"
        return f"{found}; half the noise would have shown"

    def _nothing_to_play(self) -> str:
        if self.untried:
            return f"NOT TRIED: the method's own noise ({self.untried}) has no game; attacks on it are below"
        if self.party is None:
            return "no party sent anything in training that could be accounted for: there is no game to play"
        if self.contradicted:
            return "the ledger claims an epsilon, but the run's settings put no noise before uploads"
        return "no noise, so there is no epsilon to check: every upload leaves as it is, and everything in it leaks"


@dataclass(frozen=True)
class Retrained:
    """How much of the run was trained again."""

    rounds: int
    of: int  # rounds of the run
    rows: int  # different training rows that were uploaded about
    uploads: int  # training uploads of the retraining,
    found: int  # and how many of them stand in the run's ledger, bit by bit


class AuditRecord(TypedDict):
    """What an audit found, for machines."""

    retrained: Mapping[str, int]
    claim: Mapping[str, object]
    attacks: list[Mapping[str, object]]
    ledger: Mapping[str, object]
    passed: bool


@dataclass(frozen=True)
class Examination:
    """Everything an audit found."""

    retrained: Retrained
    claim: Claim
    findings: Sequence[Finding]
    books: Books

    @property
    def passed(self) -> bool:
        """Whether the ledger stands: not contradicted by the game, complete, and consistent."""
        return not self.claim.contradicted and not self.books.problems

    def to_json(self) -> AuditRecord:
        """Plain values; no epsilon without what belongs to it."""
        c, bound = self.claim, self.claim.bound
        game = None if bound is None else {**vars(bound), "ledger_epsilon": c.played, "above": c.contradicted}
        facts = {"unit": c.unit, "neighbours": c.neighbours, "delta": c.delta, "accountant": c.accountant}
        counts = [[owner, purpose.value, count] for (owner, purpose), count in self.books.counts.items()]
        return {
            "retrained": vars(self.retrained),
            "claim": {**facts, "party": c.party, "releases": c.releases, "epsilon": c.epsilon, "game": game},
            "attacks": [{**vars(finding), "advantage": finding.advantage} for finding in self.findings],
            "ledger": {"events": self.books.events, "releases": counts, "problems": list(self.books.problems)},
            "passed": self.passed,
        }


@dataclass(frozen=True)
class Wishes:
    """How an audit is to be done."""

    rounds: int = ROUNDS
    seed: int = 0  # of canaries, games and rows that attackers know; the retraining keeps the run's own
    games: int | None = None  # in each of the two worlds; None: as many as half the noise needs, up to `DRAWS`


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
        coordinator, mechanism = trainer.coordinator, trainer.engine.parties()[0].gate.protection.training
        _shorten(coordinator, min(wishes.rounds, run.result["rounds"]))
        transcript = record(trainer, watching.training)
        books = check_books(run, AuditedRun(coordinator.schedule, federation.split, mechanism), _counts(saved))
        found, holes = replayed(run.ledger, _digests(transcript))
        claim = _claim(run, mechanism, wishes, watching)
        findings = attack(transcript, wishes.seed, finished=run)
    books = replace(books, problems=(*books.problems, *transcript_problems(transcript), *holes))
    return Examination(_retrained(run, transcript, found), claim, findings, books)


def refuse(run: Run) -> None:
    """Say in one sentence why a run cannot be audited, if so."""
    where = run.path or run.id
    if run.about["engine"] == "nats":
        raise RunError(
            f"{where} is a run of separate organisations, whose columns are not here; audit a simulation of it: "
            "`colonnade train` with the same settings on data like theirs"
        )
    if run.privacy.secure_sum.use:
        raise RunError(
            f"{where} used a secure sum, whose uploads open only together; audit the same settings without it: "
            "--set privacy.secure_sum.use=false"
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


def _counts(saved: Mapping[str, Any]) -> dict[tuple[str, Purpose], int]:
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


def _claim(run: Run, mechanism: Mechanism, wishes: Wishes, watching: Watching) -> Claim:
    """The ledger's figure, and a game against the mechanism that stands in the gate."""
    promise = run.privacy
    by_party = _training_releases(run)
    try:
        shifts = {party: mean_shift(mine, promise.neighbours) for party, mine in by_party.items()}
    except AccountingError:
        shifts = {}  # the check of the ledger says what is wrong with it
    event = mechanism.event
    if (isinstance(run.method, BringsNoise) or promise.by_row) and not event.bare and event.clipped is None:
        return _untried(run, event.name)
    if not shifts:
        return Claim(None, 0, 0.0, promise.delta, promise.neighbours)
    party = max(shifts, key=lambda name: shifts[name])
    epsilon = exact_epsilon(shifts[party], promise.delta)
    claim = Claim(party, len(by_party[party]), epsilon, promise.delta, promise.neighbours)
    trial = plan(mechanism, claim.releases, promise.delta, promise.neighbours, DRAWS)
    if trial is None:
        return claim
    if wishes.games is not None:
        trial = replace(trial, runs=wishes.games)
    told = exact_epsilon(mean_shift(by_party[party][: trial.releases], promise.neighbours), promise.delta)
    return replace(claim, bound=_play(trial, wishes.seed, watching), played=told, needed=runs_for(trial.mu))


def _untried(run: Run, mechanism: str) -> Claim:
    """The figure of noise that a method brings itself, as the privacy page has it."""
    told = Statement.of(run.ledger, run.privacy, Circumstances(run.label_exposure, uploaded=True, own=mechanism))
    party, releases = (told.worst.party, told.worst.releases) if told.worst else (None, 0)
    unit = "ROW" if told.by_row else "PARTY"
    claim = Claim(party, releases, told.epsilon, run.privacy.delta, told.neighbours, untried=mechanism)
    return replace(claim, accountant=told.accountant, unit=unit)


def _play(trial: Trial, seed: int, watching: Watching) -> Bound:
    steps = 2 * trial.releases * -(-trial.runs // 100)
    return trial.bound(seed, ThroughGate(trial.mechanism, tick=watching.game(steps)))


def _training_releases(run: Run) -> dict[str, list[Entry]]:
    by_party: dict[str, list[Entry]] = defaultdict(list)
    for release in run.ledger:
        if release.purpose is Purpose.TRAIN and release.owner != COORDINATOR:
            by_party[release.owner].append(release)
    return dict(by_party)
