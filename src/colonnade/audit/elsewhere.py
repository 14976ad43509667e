"""The audit of a run between organisations, from the folder of one of them: the label holder or a party.

Nobody there has all columns, so nothing is trained again and no attack is made. What can be played is played: the
mechanism that was agreed on, at the run's own shape, with noise of the kind that organisations draw; the label noise;
and the rules for the ledger that is here. The rest is named, with where it can be tried.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from colonnade.audit.at_home import GRADIENTS, check_at_home
from colonnade.audit.books import AT_HOLDER, AT_PARTY, AuditedRun, Counts, check_books
from colonnade.audit.checks import BOUND, Check, not_tried
from colonnade.audit.examine import Watching, Wishes, play_target
from colonnade.audit.full_shape import CLIPPING
from colonnade.audit.label_game import LabelTrial
from colonnade.audit.row_game import RowGame
from colonnade.audit.shapes import Layout
from colonnade.audit.target import Target
from colonnade.audit.verdict import Examination, Figure
from colonnade.engines.base import numbers_of
from colonnade.federation import RowSplit
from colonnade.methods.base import BringsNoise, Method, brings
from colonnade.methods.by_row import local_steps_of
from colonnade.models.schema import Schema
from colonnade.privacy.by_row import RowNoise
from colonnade.privacy.declared import Declared
from colonnade.privacy.gaussian import Gaussian, GaussianEvent, NoiseSource, SeededNoise, SystemNoise
from colonnade.privacy.ledger import Entry, Ledger
from colonnade.privacy.mechanism import Hiding, Mechanism, Opener, Unchanged
from colonnade.privacy.settings import PrivacySettings
from colonnade.schedule import Schedule
from colonnade.wire.messages import COORDINATOR, Purpose
from colonnade.wire.traffic import Traffic

ATTACKS = (
    "attacks", "labels, columns and membership can be attacked only where all columns are; audit a simulation with the "
    "same settings",
)  # fmt: skip
AGAIN = "training again", "the other organisations' columns are not here"
BYTES = "ledger against bytes", "traffic is counted by the label holder"
LEDGERS = "ledgers of the other parties", "each is with its party: run `colonnade audit` on that party's folder"
ROWS = GRADIENTS, "they are checked where a simulation is audited"
OTHER_NOISE = "the noise is set at this party alone, and cannot be made again from what its ledger says"


@dataclass(frozen=True)
class OwnView:
    """What one organisation has of a run: what everybody agreed on, and its own ledger."""

    name: str  # the party, or the coordinator
    method: Method
    privacy: PrivacySettings
    schema: Schema = field(repr=False)
    schedule: Schedule = field(repr=False)
    ledger: Ledger = field(repr=False)
    traffic: Traffic = field(repr=False)  # of no party, where none is counted
    result: Mapping[str, Any]  # how many `rounds` were trained
    label_rows: int  # for how many rows label noise was drawn, as far as this place knows
    saved: Counts | None = None  # releases when the result was saved
    planned: int = 0  # rounds that were agreed on: training at home stands in ledgers with the steps of all of them

    @property
    def at_holder(self) -> bool:
        """Whether it is the label holder's."""
        return self.name == COORDINATOR

    @property
    def releases(self) -> int:
        """Training uploads of the party that uploaded most, as far as this place knows."""
        if self.at_holder:
            rounds = self.traffic.rounds
            return max((sum(bool(t.up[at]) for t in rounds) for at in range(len(self.traffic.parties))), default=0)
        return len(self.uploads)

    @property
    def uploads(self) -> list[Entry]:
        """What this party released for training; nothing, at the label holder: the parties' ledgers are with them."""
        return [] if self.at_holder else [r for r in self.ledger if r.owner == self.name and r.purpose is Purpose.TRAIN]


def examine_place(place: OwnView, wishes: Wishes | None = None, watching: Watching | None = None) -> Examination:
    """Audit what one organisation has of a run."""
    wishes, watching = wishes or Wishes(), watching or Watching()
    mechanism, opener = _agreed(place, SystemNoise())
    figure = _figure(place, mechanism)
    checks = list(_played(place, mechanism, opener, figure, wishes, watching))
    none = torch.empty(0, dtype=torch.int64)
    split = RowSplit(place.schema.train, none, none)
    rules = AT_HOLDER if place.at_holder else AT_PARTY
    books = check_books(place, AuditedRun(place.schedule, split, mechanism), place.saved, rules)
    books = replace(books, problems=(*books.problems, *figure.beyond(place.privacy)))
    missing = (ATTACKS, AGAIN, LEDGERS) if place.at_holder else (ATTACKS, AGAIN, BYTES, LEDGERS)
    return Examination(figure, (*checks, *(not_tried(*what) for what in missing)), (), books)


def _played(
    place: OwnView,
    mechanism: Mechanism,
    opener: Opener | None,
    figure: Figure,
    wishes: Wishes,
    watching: Watching,
) -> Iterator[Check]:
    """Games against the noise that was agreed on, and against label noise."""
    if place.privacy.by_row:
        how, schema = _row_noise(place, SystemNoise()), place.schema
        game = RowGame(how, place.method, schema.parties, schema.task, schema.dtype, place.privacy.delta)
        yield game.check(wishes.seed, wishes.games, watching.game)
        names = place.schema.parties if place.at_holder else (place.name,)
        yield from check_at_home(how, names, game.local_steps)
        yield not_tried(*ROWS)
    elif figure.claims and mechanism.event.bare:
        yield not_tried(BOUND, OTHER_NOISE)
    elif figure.releases:
        target = _target(place, mechanism, opener)
        seeded = {c.name: c for c in replace(target, mechanism=_agreed(place, SeededNoise(0))[0]).at_full_shape()}
        for check in play_target(target, figure, wishes, watching):
            # Noise that can be drawn again can be taken off: lengths are then exact.
            yield seeded[CLIPPING] if check.name == CLIPPING and not check.failed else check
    if figure.label_epsilon is not None:
        yield from LabelTrial(place.privacy.labels, place.schema.task, place.label_rows).checks(wishes.seed)


def _agreed(place: OwnView, source: NoiseSource) -> tuple[Mechanism, Opener | None]:
    """What stands before training uploads by agreement, and what opens it; a party's own noise as its ledger has it."""
    privacy, schema, adders = place.privacy, place.schema, None
    if privacy.by_row:
        return Declared(_row_noise(place, source).event), None
    most = place.schedule.most_releases(int(place.result["rounds"]))
    if privacy.secure_sum.use:
        from colonnade.privacy.secure_sum.adders import simulated  # needs a library that not everybody installs

        adders = simulated("audit", schema.parties, 0, privacy)  # keys of the audit's own: nobody's are needed
    own = place.method.mechanism(source, schema) if isinstance(place.method, BringsNoise) else None
    if own is None and adders is None and not privacy.protects:
        events = {r.event for r in place.uploads}
        one = next(iter(events)) if len(events) == 1 else None
        return Gaussian(one.clip, one.sigma, source) if isinstance(one, GaussianEvent) else Unchanged(), None
    training = privacy.protection(most, source, adders, own).training
    return training, adders.opener(most) if adders is not None else None


def _row_noise(place: OwnView, source: NoiseSource) -> RowNoise:
    """Unit ROW: what training at home was agreed to be."""
    return place.privacy.row_noise(local_steps_of(place.method, place.schedule, place.planned), source)


def _figure(place: OwnView, mechanism: Mechanism) -> Figure:
    """What the ledger says; at the label holder, what the parties' ledgers should say."""
    exposure = place.privacy.exposure(place.method.exposes)
    releases = place.uploads
    if place.at_holder:
        party, rows = "each party", place.schedule.batch
        releases = [
            Entry(party, COORDINATOR, mechanism.event, Purpose.TRAIN, n, rows, f"agreed {n}")
            for n in range(1, (1 if place.privacy.by_row else place.releases) + 1)
        ]
    return Figure.of(releases, place.privacy, exposure, brings(place.method))


def _target(place: OwnView, mechanism: Mechanism, opener: Opener | None) -> Target:
    schema = place.schema
    rows = max((r.rows for r in place.uploads), default=place.schedule.batch)
    groups = schema.groups if place.at_holder else [g for g in schema.groups if place.name in g.parties]
    layouts = [Layout.agreed(place.method.upload_arrays(schema, g), rows, schema.dtype) for g in groups]
    return Target(
        mechanism,
        max(layouts, key=lambda layout: layout.cells),
        numbers_of(schema),
        max(1, place.releases),
        place.privacy.delta,
        place.privacy.neighbours,
        schema.parties if isinstance(mechanism, Hiding) else (),
        opener,
        schema.parties if place.at_holder or opener is not None else (place.name,),
        int(place.result["rounds"]),
    )
