"""Which rows, which parties, how many local steps: a pure function of seed and round number.

Participation, sequential and asynchronous methods differ in the plans of their rounds, not in
special rounds. Nothing here is stored: a resumed run asks for the same plan and gets it.

Together: everybody (or a drawn share) uploads about the same rows. Sequential: the parties take turns with the same
rows, one after the other, then all go on to the next rows. Asynchronous: parties wake at their own pace, each with the
next rows of an order of its own (or all of one order); who wakes when is simulated from their speeds. In the last two
the one that uploads is the only one that learns, and the others' last uploads about these rows are remembered.

This is the one place for order, speeds and steps. A method that chooses local steps by speed reads `RoundPlan.speeds`
and says its choice in the reply; a number given here wins over it. The simulated clock reads the same settings, and the
steps that were really taken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor

from colonnade.config import Settings, unknown_key
from colonnade.errors import ConfigError
from colonnade.randomness import permutation, stream

JITTER = 0.05  # a round of an asynchronous party takes up to this share longer: equal speeds need an order, too


@dataclass(frozen=True)
class RoundPlan:
    """Who takes part in a round, with which rows and steps; made by the coordinator."""

    number: int
    rows: Tensor = field(repr=False)  # (B,) row numbers
    senders: tuple[str, ...]  # who is asked about these rows
    learners: tuple[str, ...]  # who learns from the reply
    steps: tuple[tuple[str, int], ...] = ()  # local steps of parties that differ from the method's
    speeds: tuple[tuple[str, float], ...] = ()  # of learners whose speed is not 1; the coordinator's, does not travel


class ScheduleSettings(Settings):
    """Batches and participation."""

    batch: int = Field(1024, ge=1, description="rows per round")
    participation: float = Field(1.0, gt=0, le=1, description="share of the parties that upload in a round")
    party_dropout: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="how often a party is left out of a round, as if it were not there, so that the others learn to "
        "answer without it",
    )
    silent_learn: bool = Field(True, description="parties that did not upload learn from the reply all the same")
    shuffle: Literal["epoch", "once", "never"] = Field(
        "epoch", description="new row order every epoch, one for all, or as they are numbered"
    )
    order: Literal["together", "sequential", "asynchronous"] = Field(
        "together",
        description="who has a round: all that participate; one after the other; whoever wakes, at its own pace",
    )
    speeds: dict[str, Annotated[float, Field(gt=0, allow_inf_nan=False)]] = Field(
        {},
        description="relative speed of parties, 1 where not named; paces asynchronous rounds, the steps of flex_vfl "
        "and adavfl, and simulated time",
    )
    staleness: int = Field(
        0, ge=0, description="asynchronous: rounds a party may be ahead of the slowest before it waits; 0: no bound"
    )
    rows: Literal["own", "shared"] = Field(
        "own", description="asynchronous: every party goes through the rows in an order of its own, or all in one"
    )
    steps: dict[str, Annotated[int, Field(ge=1)]] = Field(
        {}, description="local steps of parties that take another number than the method says"
    )

    @model_validator(mode="after")
    def _whole(self) -> ScheduleSettings:
        if self.order != "together" and self.participation < 1:
            raise ValueError(f"order = {self.order!r} has one party a round: it goes with participation = 1 only")
        if self.party_dropout and (self.order != "together" or self.participation < 1):
            raise ValueError(
                "party_dropout leaves parties out of rounds that all of them have: it goes with order = 'together' and "
                "participation = 1"
            )
        return self


@dataclass
class _Wakes:
    """Who wakes in which round of an asynchronous run: a simulation of parties that need 1 / speed for a round each."""

    parties: tuple[str, ...]
    settings: ScheduleSettings
    seed: int
    past: list[tuple[int, int]] = field(default_factory=list)  # per round: the party's place, its rounds before
    now: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * len(self.parties)
        self.ready = [self._pace(place) for place in range(len(self.parties))]  # when each would like to wake next

    def plan(self, number: int) -> tuple[int, int]:
        """The place of the party that wakes in turn `number`, and how many turns it had before."""
        while len(self.past) < number:
            self._wake()
        return self.past[number - 1]

    def _wake(self) -> None:
        """The first that is ready and not too far ahead; one that had to wait wakes as soon as it may."""
        bound, least = self.settings.staleness, min(self.counts)
        free = [k for k, count in enumerate(self.counts) if not bound or count - least < bound]
        first = min(free, key=lambda k: (self.ready[k], k))
        self.now = max(self.now, self.ready[first])
        self.past.append((first, self.counts[first]))
        self.counts[first] += 1
        self.ready[first] = self.now + self._pace(first)

    def _pace(self, place: int) -> float:
        name = self.parties[place]
        late = JITTER * float(stream(self.seed, "pace", name, self.counts[place]).random())
        return (1 + late) / self.settings.speeds.get(name, 1.0)


@dataclass(frozen=True)
class Schedule:
    """The plans of rounds 1, 2, 3, ... of a run."""

    settings: ScheduleSettings
    train: Tensor = field(repr=False)
    parties: tuple[str, ...]
    seed: int
    has_uplink: bool = True  # False for methods without an uplink
    whole: bool = False  # every round is about all training rows, whatever the batch is
    _orders: dict[str, tuple[int, Tensor]] = field(default_factory=dict, repr=False, compare=False)  # last epoch's
    _wakes: list[_Wakes] = field(default_factory=list, repr=False, compare=False)  # simulated as far as was asked

    def __post_init__(self) -> None:
        if self.has_uplink:  # a method without an uplink may know no parties: all columns are in one place
            self._check("speeds", self.settings.speeds)
            self._check("steps", self.settings.steps)

    def _check(self, key: str, names: Iterable[str]) -> None:
        for name in names:
            if name not in self.parties:
                raise ConfigError(unknown_key(name, list(self.parties), f"training.schedule.{key}"))

    def most_releases(self, rounds: int) -> int:
        """How often the party that uploads most uploads in so many rounds."""
        if not self.has_uplink:
            return 0
        if not self.someone_may_be_silent:
            return rounds
        passed = Counter(party for number in range(1, rounds + 1) for party in self.plan(number).senders)
        return max(passed.values())

    @property
    def rounds_per_epoch(self) -> int:
        """Rounds that visit every training row once.

        The last one may be short, but a single left-over row joins the round before: batch statistics need two.
        """
        whole, left = divmod(len(self.train), self.batch)
        return whole + (left > 1)

    @property
    def rounds_per_pass(self) -> int:
        """Rounds in which every party visits every training row once; one at a time, they take turns."""
        return self.rounds_per_epoch * (len(self.parties) if self.alone else 1)

    def shortfall(self, rounds: int) -> str:
        """A sentence about rounds that do not visit every training row once; nothing where they do."""
        if self.whole:
            return self._not_used()
        visits = len(self.parties) if self.alone else 1  # rounds until everybody has had a batch
        needed = self.rounds_per_pass
        if rounds >= needed:
            return ""
        rows, alone = len(self.train), ", one party at a time," if self.alone else ""
        seen = min(rows, rounds * self.batch // visits)
        return (
            f"{rounds:,} rounds of {self.batch:,} rows{alone} visit {seen:,} of the {rows:,} training rows, and the "
            f"others never; set rounds = {needed:,} for one pass over all of them, or a larger schedule.batch"
        )

    def _not_used(self) -> str:
        """A sentence about a batch that somebody asked for and does not get."""
        asked, rows = self.settings.batch, len(self.train)
        if asked == ScheduleSettings().batch or asked >= rows:
            return ""
        return (
            f"schedule.batch = {asked:,} is not used: every round of this method is about all {rows:,} training rows; "
            "leave it out"
        )

    @property
    def batch(self) -> int:
        """Rows per round, at most all of them."""
        return len(self.train) if self.whole else min(self.settings.batch, len(self.train))

    @property
    def alone(self) -> bool:
        """Whether one party at a time uploads and learns."""
        return self.has_uplink and self.settings.order != "together"

    @property
    def someone_may_be_silent(self) -> bool:
        """Whether uploads must be remembered."""
        return self.alone or (self.has_uplink and self.settings.participation < 1)

    @property
    def leaves_out(self) -> bool:
        """Whether rounds lack parties, of which then nothing counts."""
        return self.has_uplink and self.settings.party_dropout > 0

    def plan(self, number: int) -> RoundPlan:
        """The plan of round `number`, counted from 1."""
        if self.alone:
            return self._plan_of_one(number)
        senders = self._senders(number)
        everybody = self.settings.silent_learn and not self.leaves_out
        learners = self.parties if everybody or not self.has_uplink else senders
        return self._plan(number, self._batch(number - 1), senders, learners)

    def _plan_of_one(self, number: int) -> RoundPlan:
        """One party and its next rows; in sequence all have the same ones, so that each sees the others' uploads."""
        if self.settings.order == "sequential":
            before, place = divmod(number - 1, len(self.parties))
            rows = self._batch(before)
        else:
            if not self._wakes:
                self._wakes.append(_Wakes(self.parties, self.settings, self.seed))
            place, before = self._wakes[0].plan(number)
            rows = self._batch(before, self.parties[place] if self.settings.rows == "own" else "")
        awake = (self.parties[place],)
        return self._plan(number, rows, awake, awake)

    def _plan(self, number: int, rows: Tensor, senders: tuple[str, ...], learners: tuple[str, ...]) -> RoundPlan:
        """With what the settings say of the learners."""
        special, speeds = self.settings.steps, self.settings.speeds
        steps = tuple((party, special[party]) for party in learners if party in special)
        paces = tuple((party, speeds[party]) for party in learners if speeds.get(party, 1.0) != 1)
        return RoundPlan(number, rows, senders, learners, steps, paces)

    def _batch(self, before: int, owner: str = "") -> Tensor:
        """The rows after so many batches, in the order of all or of one owner."""
        epoch, place = divmod(before, self.rounds_per_epoch)
        order = self._order(epoch if self.settings.shuffle == "epoch" else 0, owner)
        last = place == self.rounds_per_epoch - 1
        return order[place * self.batch : None if last else (place + 1) * self.batch]

    def _order(self, epoch: int, owner: str) -> Tensor:
        known = self._orders.get(owner)
        if known is None or known[0] != epoch:
            purpose = f"rows of {owner}" if owner else "rows"
            never = self.whole or self.settings.shuffle == "never"  # rows in their order take fewer bytes
            order = self.train.sort().values if never else permutation(self.train, self.seed, purpose, epoch)
            known = self._orders[owner] = (epoch, order)
        return known[1]

    def _senders(self, number: int) -> tuple[str, ...]:
        if not self.has_uplink:
            return ()
        if self.leaves_out:
            drawn = stream(self.seed, "party dropout", number=number).random(len(self.parties))
            least = min(self.settings.party_dropout, drawn.max())  # somebody is always there
            return tuple(party for party, own in zip(self.parties, drawn, strict=True) if own >= least)
        count = max(1, round(self.settings.participation * len(self.parties)))
        if count == len(self.parties):
            return self.parties
        chosen = stream(self.seed, "speakers", number=number).choice(len(self.parties), count, replace=False)
        return tuple(self.parties[i] for i in sorted(chosen.tolist()))


def chunked(rows: Tensor, size: int) -> list[Tensor]:
    """Rows in pieces of at most `size`."""
    return list(torch.split(rows, size)) if len(rows) else []
