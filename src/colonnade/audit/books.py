"""Is a finished run's ledger whole? Held against the bytes that were counted, the schedule and the settings.

A ledger that lacks a release promises too much. Messages are not kept, but the traffic of every round is: a party
that sent training bytes must stand in the ledger for that round. The other way round, a release that nobody asked
for must not be there. Every rule gives sentences; none means that nothing was found.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from colonnade.federation import RowSplit
from colonnade.methods._guest import guest_of, shown_by
from colonnade.methods.base import BringsNoise, Method
from colonnade.privacy import accounting, pbm, sampled
from colonnade.privacy.events import PlainEvent
from colonnade.privacy.ledger import Entry, Ledger
from colonnade.privacy.mechanism import Mechanism
from colonnade.privacy.settings import PrivacySettings
from colonnade.schedule import Schedule
from colonnade.wire.messages import COORDINATOR, Purpose
from colonnade.wire.traffic import RoundTraffic, Traffic

AFTERWARDS = (Purpose.PREDICT, Purpose.EXPLAIN)  # released after the training was counted and saved
Counts = dict[tuple[str, Purpose], int]
Rules = tuple[Callable[["Kept", "AuditedRun"], Iterator[str]], ...]
SOME_DELTA = 1e-5  # whether there is a figure at all does not depend on it


@dataclass(frozen=True)
class AuditedRun:
    """What the run's own configuration says about who uploads when, about how many rows, behind what."""

    schedule: Schedule = field(repr=False)
    split: RowSplit = field(repr=False)
    mechanism: Mechanism  # before training uploads


@dataclass(frozen=True)
class Books:
    """A ledger in numbers, and what is wrong with it."""

    events: int
    counts: Counts
    problems: tuple[str, ...]


class Kept(Protocol):
    """What is kept of a run, and its ledger is held against; a `Run` is one."""

    @property
    def method(self) -> Method:
        """What trained it."""

    @property
    def privacy(self) -> PrivacySettings:
        """What was promised."""

    @property
    def ledger(self) -> Ledger:
        """What is to be checked."""

    @property
    def traffic(self) -> Traffic:
        """The bytes that were counted, of the parties that it has a column for."""

    @property
    def result(self) -> Mapping[str, Any]:
        """Among others, how many `rounds` were trained."""


def check_books(run: Kept, audited: AuditedRun, saved: Counts | None = None, rules: Rules | None = None) -> Books:
    """Hold a run's ledger against its traffic, its schedule, its settings and the counts saved with its result."""
    problems = [problem for rule in rules or RULES for problem in rule(run, audited)]
    counts = run.ledger.counts()
    if saved is not None:
        problems += _saved(counts, saved)
    return Books(len(run.ledger), counts, tuple(problems))


def _unknown(run: Kept, audited: AuditedRun) -> Iterator[str]:
    """Events that no accountant knows what to make of."""
    strange: Counter[str] = Counter()
    guest = guest_of(run.method) or None  # to its own party the label holder may send true labels
    for release in run.ledger:
        if release.owner == COORDINATOR:
            known = (*run.privacy.labels.events, *((PlainEvent,) if release.audience == guest else ()))
            if not isinstance(release.event, known):
                strange[f"the coordinator passed the mechanism {release.mechanism!r}"] += 1
        elif release.owner not in audited.schedule.parties:
            strange[f"{release.owner!r} is no party of the run"] += 1
        elif not _accountable(release) and not _own(release, run, audited):
            strange[f"{release.owner!r} passed the mechanism {release.mechanism!r} with no usable parameters"] += 1
    for what, count in strange.items():
        yield f"{_releases(count)} that no accountant knows: {what}"


def _own(release: Entry, run: Kept, audited: AuditedRun) -> bool:
    """Noise in a method's model, for which nobody claims an epsilon; `_undeclared` compares its parameters."""
    return isinstance(run.method, BringsNoise) and release.event.kind == audited.mechanism.event.kind


def _accountable(release: Entry) -> bool:
    if sampled.supports(release.event):
        return True  # its parameters were checked when it was read; `_undeclared` compares them
    if pbm.supports(release.event):
        return pbm.counted_epsilon(pbm.Counted.of([release]), SOME_DELTA) > 0
    return accounting.supports(release.event) and accounting.mean_shift([release]) > 0


def _undeclared(run: Kept, audited: AuditedRun) -> Iterator[str]:
    """Training uploads that say another protection of themselves than the configuration gives."""
    told, wrong, older, shown = audited.mechanism.event, [], 0, shown_by(run.method)
    for release in _uploads(run.ledger):
        if release.event.off_grid and release.event == told.before_grids and not release.notes:
            older += 1
        elif release.event != told or (release.notes and release.owner != shown):  # whose columns are noted
            wrong.append(release)
    if older:
        yield (
            f"{_releases(older)} for TRAIN noised in floating point by an earlier version: the low bits may tell "
            "more than the claimed epsilon; train again"
        )
    if wrong:
        first = wrong[0]
        says = f"{first.mechanism} {dict(first.parameters)}".replace(" {}", "")
        yield f"{_releases(len(wrong))} for TRAIN claim another mechanism ({says}) than the run's settings ({told})"


def _unlogged_uploads(run: Kept, audited: AuditedRun) -> Iterator[str]:
    """Training bytes that a party sent in a round for which the ledger has nothing of it."""
    there = {(r.owner, r.number) for r in _uploads(run.ledger)}
    for place, party in enumerate(run.traffic.parties):
        lost = [t.number for t in run.traffic.rounds if t.up[place] and (party, t.number) not in there]
        yield from _unlogged(lost, f"TRAIN of {party!r}")


def _unlogged_evaluations(run: Kept, audited: AuditedRun) -> Iterator[str]:
    """Evaluations that travelled: every party must stand there with all rows that were asked about."""
    rows: dict[tuple[str, int], int] = defaultdict(int)
    for release in run.ledger:
        if release.purpose is Purpose.EVALUATE:
            rows[release.owner, release.number] += release.rows
    asked = {len(audited.split.validation), len(audited.split.test)}
    looks = [t.number for t in run.traffic.rounds if t.evaluation_up]
    for party in run.traffic.parties:
        yield from _unlogged([n for n in looks if rows[party, n] not in asked], f"EVALUATE of {party!r}")


def _unlogged_replies(run: Kept, audited: AuditedRun) -> Iterator[str]:
    """Replies that went down: the common one, and each party's own where the bytes show that there was one."""
    sent = {(r.audience, r.number) for r in run.ledger if r.owner == COORDINATOR}
    common = [t.number for t in run.traffic.rounds if t.down.any() or t.evaluation_down]
    yield from _unlogged([n for n in common if ("*", n) not in sent], "the coordinator to everyone")
    for place, party in enumerate(run.traffic.parties):
        own = [t.number for t in run.traffic.rounds if _own_bytes(t, place)]
        yield from _unlogged([n for n in own if (party, n) not in sent], f"the coordinator to {party!r}")


def _own_bytes(traffic: RoundTraffic, place: int) -> float:
    """What only this party was sent: a common message is counted once per recipient, and once in `multicast_down`."""
    others = len(traffic.down) - 1
    if not others:
        return 0.0
    common = (int(traffic.down.sum()) - traffic.multicast_down) / others
    return float(traffic.down[place]) - common


def _beyond(run: Kept, audited: AuditedRun) -> Iterator[str]:
    """Training releases that the schedule does not have: another round, another party, other rows, twice."""
    plans = {n: audited.schedule.plan(n) for n in sorted({r.number for r in _uploads(run.ledger)}) if n >= 1}
    seen: set[tuple[str, int]] = set()
    wrong: Counter[str] = Counter()
    for release in _uploads(run.ledger):
        if sampled.supports(release.event):  # no upload: the training at home, which stands there once
            wrong[f"of {release.owner!r}, whose training at home is counted twice"] += (release.owner, 0) in seen
            seen.add((release.owner, 0))
            continue
        plan = plans.get(release.number)
        if plan is None or release.number > run.result["rounds"]:
            wrong[f"after round {run.result['rounds']}, the last one"] += 1
        elif release.owner not in plan.senders:
            wrong[f"of {release.owner!r} in rounds in which it was not asked"] += 1
        elif release.rows != len(plan.rows):
            wrong["about another number of rows than was asked about"] += 1
        elif (release.owner, release.number) in seen:
            wrong[f"of {release.owner!r} a second time in the same round"] += 1
        seen.add((release.owner, release.number))
    for what, count in (+wrong).items():
        yield f"{_releases(count)} for TRAIN beyond the schedule: {what}"


def _repeated(run: Kept, audited: AuditedRun) -> Iterator[str]:
    """Two events with one digest: every message names its run, round and sender, so no two are alike."""
    again = sum(count - 1 for count in Counter(r.digest for r in run.ledger).values() if count > 1)
    if again:
        yield f"{_releases(again)} with the digest of another one"


RULES: Rules = (
    _unknown, _undeclared, _unlogged_uploads, _unlogged_evaluations, _unlogged_replies, _beyond, _repeated,
)  # fmt: skip
AT_HOLDER: Rules = (_unknown, _unlogged_replies, _repeated)  # of the label holder of separate organisations
AT_PARTY: Rules = (_unknown, _undeclared, _beyond, _repeated)  # of one party of them: traffic is counted elsewhere


def _saved(counts: Counts, saved: Counts) -> Iterator[str]:
    """The result was saved with how often everybody had uploaded; only predictions may have come since."""
    for owner, purpose in {**saved, **counts}:
        then, now = saved.get((owner, purpose), 0), counts.get((owner, purpose), 0)
        if now < then or (now > then and purpose not in AFTERWARDS):
            yield f"{owner!r} has {_releases(now)} for {purpose.value}; {then} when the run was saved"


def replayed(ledger: Ledger, digests: Mapping[str, Sequence[str]]) -> tuple[int, tuple[str, ...]]:
    """How many training uploads of a retraining, by party in order, are in the ledger; and what that proves wrong.

    On another machine numbers differ in their last bits from some round on, and that proves nothing. But an upload
    that is missing while a later one of the same party is there was sent and not written down.
    """
    found = {party: [ledger.holds(digest) for digest in mine] for party, mine in digests.items()}
    holes = {
        party: "".join("x" if there else "-" for there in mine).rstrip("-").count("-") for party, mine in found.items()
    }
    problems = (
        f"{_releases(count)} for TRAIN of {party!r} in the retraining, but not in the ledger, which has later ones"
        for party, count in holes.items()
        if count
    )
    return sum(map(sum, found.values())), tuple(problems)


def _uploads(ledger: Iterable[Entry]) -> Iterator[Entry]:
    """What parties released for training."""
    return (r for r in ledger if r.purpose is Purpose.TRAIN and r.owner != COORDINATOR)


def _unlogged(numbers: Sequence[int], what: str) -> Iterator[str]:
    if numbers:
        yield f"{_releases(len(numbers))} travelled and not in the ledger: {what} (first: round {numbers[0]})"


def _releases(count: int) -> str:
    return f"{count} release{'' if count == 1 else 's'}"
