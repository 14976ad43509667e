"""What each party has released, counted from a ledger: little enough to stand in a run's record."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypedDict

from colonnade.errors import AccountingError
from colonnade.privacy import accounting, pbm, sampled
from colonnade.privacy.accounting import Neighbours, mean_shift
from colonnade.privacy.events import Unit
from colonnade.privacy.ledger import Entry
from colonnade.privacy.pbm import Counted
from colonnade.privacy.sampled import SampledGaussianEvent, sampled_events
from colonnade.wire.messages import COORDINATOR, Purpose


class CountedRecord(TypedDict):
    """`Counted`, in a run's record."""

    trials: int
    theta: float
    among: int
    cells: int


class FirstTallyRecord(TypedDict):
    """A tally in a run's record, as the first version wrote it."""

    party: str
    releases: int
    shift: float | None
    bare: dict[str, int]
    unknown: list[str]
    simulated: bool


class TallyRecord(FirstTallyRecord, total=False):
    """The same with what came later; stored, so no key ever changes."""

    counts: list[CountedRecord]
    bounded: bool
    off_grid: bool
    sampled: list[dict[str, float]]


@dataclass(frozen=True)
class Tally:
    """The releases of one party."""

    party: str
    releases: int  # in training
    shift: float  # mu of these, in the run's neighbouring relation; infinite: some left without noise
    bare: tuple[tuple[str, int], ...]  # purpose, releases that left without noise
    unknown: tuple[str, ...]  # mechanisms of training that no accountant here knows; then `shift` is infinite
    simulated: bool  # whoever knows the seed can draw the noise of some again
    counts: tuple[Counted, ...] = ()  # where training released counts only; then `shift` is infinite
    bounded: bool = False  # numbers were bounded, not norms clipped
    off_grid: bool = False  # noise was added in floating point, by an earlier version
    sampled: tuple[SampledGaussianEvent, ...] = ()  # where training stayed at home; then `shift` is infinite

    def to_json(self) -> TallyRecord:
        """Plain values; JSON has no infinity, so there it is none at all."""
        return {
            "party": self.party,
            "releases": self.releases,
            "shift": self.shift if math.isfinite(self.shift) else None,
            "bare": dict(self.bare),
            "unknown": list(self.unknown),
            "simulated": self.simulated,
            "counts": [{"trials": c.trials, "theta": c.theta, "among": c.among, "cells": c.cells} for c in self.counts],
            "bounded": self.bounded,
            "off_grid": self.off_grid,
            "sampled": [dict(event.parameters) for event in self.sampled],
        }

    @classmethod
    def from_json(cls, values: TallyRecord) -> Tally:
        """The inverse of `to_json`."""
        shift = math.inf if values["shift"] is None else float(values["shift"])
        return cls(
            values["party"],
            values["releases"],
            shift,
            tuple((str(purpose), int(number)) for purpose, number in values["bare"].items()),
            tuple(values["unknown"]),
            values["simulated"],
            tuple(Counted(**count) for count in values.get("counts", ())),
            values.get("bounded", False),
            bool(values.get("off_grid", 0 < shift < math.inf)),  # a record that does not say is from before grids
            tuple(SampledGaussianEvent.read(facts, Unit.ROW)[0] for facts in values.get("sampled", ())),
        )


def tally(ledger: Iterable[Entry], neighbours: Neighbours) -> tuple[Tally, ...]:
    """One line per party that released anything, in the order of their names."""
    by_party: dict[str, list[Entry]] = {}
    for release in ledger:
        if release.owner != COORDINATOR:
            by_party.setdefault(release.owner, []).append(release)
    return tuple(_of(party, by_party[party], neighbours) for party in sorted(by_party))


def _of(party: str, releases: Sequence[Entry], neighbours: Neighbours) -> Tally:
    train = [r for r in releases if r.purpose is Purpose.TRAIN]
    bare = Counter(r.purpose.value for r in releases if r.event.bare)
    events = {r.event for r in train}
    shift, unknown = math.inf, set[str]()
    counts = Counted.of(train) if events and all(map(pbm.supports, events)) else ()
    at_home = sampled_events(train) if events and all(map(sampled.supports, events)) else ()
    try:
        shift = math.inf if counts or at_home else mean_shift(train, neighbours)
    except AccountingError:
        unknown = {event.name for event in events if not accounting.supports(event)}
    return Tally(
        party,
        len(train),
        shift,
        tuple(sorted(bare.items())),
        tuple(sorted(unknown)),
        any(event.repeatable for event in events),
        counts,
        any(event.bounded for event in events),
        any(event.off_grid for event in events),
        at_home,
    )
