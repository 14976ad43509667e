"""Bytes per party, round and direction, counted on encoded messages.

A message to everyone is counted once per recipient, as it would cross a network without
multicast; `multicast_down` counts it once. Evaluation traffic is kept apart from training
traffic, because the literature leaves it out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from colonnade.record import TrafficRecord, TrafficRound


@dataclass
class RoundTraffic:
    """One round: bytes per party, in federation order."""

    number: int
    up: np.ndarray  # (M,) training bytes sent by each party
    down: np.ndarray  # (M,) training bytes received by each party
    multicast_down: int = 0  # training bytes down if a common message is sent once
    evaluation_up: int = 0
    evaluation_down: int = 0

    @property
    def training(self) -> int:
        """Training bytes of all parties, both directions."""
        return int(self.up.sum() + self.down.sum())


@dataclass
class Traffic:
    """The byte counter of a run."""

    parties: tuple[str, ...]
    counted: list[RoundTraffic] = field(default_factory=list)
    _coming: deque[Callable[[], None]] = field(default_factory=deque, repr=False, compare=False)
    _settling: bool = field(default=False, repr=False, compare=False)

    @property
    def rounds(self) -> list[RoundTraffic]:
        """All rounds, with the messages that were still being sealed."""
        self.settle()
        return self.counted

    def later(self, count: Callable[[], None]) -> None:
        """Count messages when somebody looks: they may not be sealed yet."""
        self._coming.append(count)

    def settle(self) -> None:
        """Count what was put off, in its order."""
        if self._settling:  # who counts opens records
            return
        self._settling = True
        try:
            while self._coming:
                self._coming.popleft()()
        finally:
            self._settling = False

    def open(self, number: int) -> RoundTraffic:
        """The record of round `number`, made on first use."""
        if not self.rounds or self.rounds[-1].number != number:
            zeros = np.zeros(len(self.parties), dtype=np.int64)
            self.rounds.append(RoundTraffic(number, zeros.copy(), zeros.copy()))
        return self.rounds[-1]

    def begin(self, number: int) -> RoundTraffic:
        """A new record of round `number`; one that a restart interrupted begins again."""
        if self.rounds and self.rounds[-1].number == number:
            self.rounds.pop()
        return self.open(number)

    def until(self, number: int) -> int:
        """Training bytes of all parties, both directions, up to round `number`."""
        return sum(r.training for r in self.rounds if r.number <= number)

    @property
    def up(self) -> int:
        """Training bytes sent by all parties."""
        return int(sum(r.up.sum() for r in self.rounds))

    @property
    def down(self) -> int:
        """Training bytes received by all parties."""
        return int(sum(r.down.sum() for r in self.rounds))

    @property
    def multicast(self) -> int:
        """Training bytes, both directions, if common messages are sent once for all."""
        return self.up + sum(r.multicast_down for r in self.rounds)

    @property
    def evaluation(self) -> int:
        """Evaluation bytes of all parties, both directions."""
        return sum(r.evaluation_up + r.evaluation_down for r in self.rounds)

    def per_party(self) -> dict[str, dict[str, int]]:
        """Training bytes of each party, by direction."""
        zeros = np.zeros(len(self.parties), dtype=np.int64)
        up = sum((r.up for r in self.rounds), zeros)
        down = sum((r.down for r in self.rounds), zeros)
        return {p: {"up": int(u), "down": int(d)} for p, u, d in zip(self.parties, up, down, strict=True)}

    def record(self) -> TrafficRecord:
        """All of it as plain values."""
        return {
            "up": self.up,
            "down": self.down,
            "multicast": self.multicast,
            "evaluation": self.evaluation,
            "per_party": self.per_party(),
            "rounds": self.to_json(),
        }

    def to_json(self, start: int = 0, until: int | None = None) -> list[TrafficRound]:
        """One object per round, from the `start`-th on, up to round number `until`."""
        wanted = [r for r in self.rounds[start:] if until is None or r.number <= until]
        return [
            {
                "number": r.number,
                "up": r.up.tolist(),
                "down": r.down.tolist(),
                "multicast_down": r.multicast_down,
                "evaluation_up": r.evaluation_up,
                "evaluation_down": r.evaluation_down,
            }
            for r in wanted
        ]

    @classmethod
    def from_json(cls, parties: tuple[str, ...], rounds: Iterable[TrafficRound]) -> Traffic:
        """The inverse of `to_json`."""
        read = [
            RoundTraffic(
                r["number"],
                np.array(r["up"]),
                np.array(r["down"]),
                r["multicast_down"],
                r["evaluation_up"],
                r["evaluation_down"],
            )
            for r in rounds
        ]
        return cls(parties, read)
