"""Which rows, which parties, how many local steps: a pure function of seed and turn number.

Participation, sequential and asynchronous methods differ in their turns, not in special
exchanges. Nothing here is stored: a resumed run asks for the same turn and gets it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from colonnade.config import Settings
from colonnade.randomness import permutation, stream


@dataclass(frozen=True)
class Turn:
    """One exchange, chosen by the coordinator."""

    number: int
    rows: Tensor = field(repr=False)  # (B,) row numbers
    speakers: tuple[str, ...]  # who is asked about these rows
    learners: tuple[str, ...]  # who learns from the reply
    steps: tuple[tuple[str, int], ...] = ()  # local steps of parties that differ from the method's


class ScheduleSettings(Settings):
    """Batches and participation."""

    batch: int = Field(1024, ge=1, description="rows per round")
    participation: float = Field(1.0, gt=0, le=1, description="share of the parties that speak in a round")
    silent_learn: bool = Field(True, description="parties that did not speak learn from the reply all the same")
    shuffle: Literal["epoch", "once"] = Field("epoch", description="new row order every epoch, or one for all")


@dataclass(frozen=True)
class Schedule:
    """Turns 1, 2, 3, ... of a run."""

    settings: ScheduleSettings
    train: Tensor = field(repr=False)
    parties: tuple[str, ...]
    seed: int
    speaks: bool = True  # False for methods without an uplink
    _orders: dict[int, Tensor] = field(default_factory=dict, repr=False, compare=False)  # of the current epoch

    def most_releases(self, rounds: int) -> int:
        """How often the party that speaks most speaks in so many rounds."""
        if not self.speaks:
            return 0
        if not self.someone_may_be_silent:
            return rounds
        spoken = Counter(party for number in range(1, rounds + 1) for party in self.turn(number).speakers)
        return max(spoken.values())

    @property
    def rounds_per_epoch(self) -> int:
        """Rounds that visit every training row once.

        The last one may be short, but a single left-over row joins the round before: batch statistics need two.
        """
        whole, left = divmod(len(self.train), self.batch)
        return whole + (left > 1)

    @property
    def batch(self) -> int:
        """Rows per round, at most all of them."""
        return min(self.settings.batch, len(self.train))

    @property
    def someone_may_be_silent(self) -> bool:
        """Whether uploads must be remembered."""
        return self.speaks and self.settings.participation < 1

    def turn(self, number: int) -> Turn:
        """Turn `number`, counted from 1."""
        epoch, place = divmod(number - 1, self.rounds_per_epoch)
        order = self._order(epoch if self.settings.shuffle == "epoch" else 0)
        last = place == self.rounds_per_epoch - 1
        rows = order[place * self.batch : None if last else (place + 1) * self.batch]
        speakers = self._speakers(number)
        learners = self.parties if self.settings.silent_learn or not self.speaks else speakers
        return Turn(number, rows, speakers, learners)

    def _order(self, epoch: int) -> Tensor:
        if epoch not in self._orders:
            self._orders.clear()
            self._orders[epoch] = permutation(self.train, self.seed, "rows", epoch)
        return self._orders[epoch]

    def _speakers(self, number: int) -> tuple[str, ...]:
        if not self.speaks:
            return ()
        count = max(1, round(self.settings.participation * len(self.parties)))
        if count == len(self.parties):
            return self.parties
        drawn = stream(self.seed, "speakers", turn=number).choice(len(self.parties), count, replace=False)
        return tuple(self.parties[i] for i in sorted(drawn.tolist()))


def chunked(rows: Tensor, size: int) -> list[Tensor]:
    """Rows in pieces of at most `size`."""
    return list(torch.split(rows, size)) if len(rows) else []
