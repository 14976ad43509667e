"""A simulated clock: when each round of a finished run would have ended, on lines and machines of given speed.

Simulation computes all parties on one machine, so its own seconds say nothing about a federation. The bytes are real,
however, and so is who uploaded when. From these, a bandwidth, a latency and the speeds of the parties follow the times:

    a message of b bytes takes     latency + 8 b / bandwidth       each party has its own line, a message at a time
    n local steps take             n * step / speed of the party
    an answer takes                coordinate                      one at a time

Steps are those that were taken: the history of a run names the parties that took another number than the method's
`local_steps`, whether the schedule said so or the method chose. The common part of a reply goes to everybody, as in the
byte counts, also where one party learns: it takes its time on the lines of the others, and what comes next waits.

Rounds wait for each other only where the protocol does. With `order` "together" or "sequential" the coordinator answers
round t when all that were asked have uploaded; the reply and the next question go down together; a party first learns,
then uploads, and learns on while others do if it is not asked. With "asynchronous" nobody waits for a question: a
party uploads as soon as it has learnt. The coordinator takes uploads in the order of the run, because another would
have been another run. Looks at validation and test rows are left out, as in the byte counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import Field

from colonnade.config import Settings

BITS = 8 / 1e6  # a byte in Mbit


class ClockSettings(Settings):
    """Lines and machines of a federation that is only simulated."""

    up: float = Field(100.0, gt=0, description="bandwidth from a party to the coordinator, in Mbit/s")
    down: float = Field(100.0, gt=0, description="bandwidth from the coordinator to a party, in Mbit/s")
    latency: float = Field(20.0, ge=0, allow_inf_nan=False, description="one way, in milliseconds")
    step: float = Field(
        0.01, ge=0, allow_inf_nan=False, description="seconds per local step of a party whose speed is 1"
    )
    coordinate: float = Field(
        0.01, ge=0, allow_inf_nan=False, description="seconds the coordinator needs for an answer"
    )


@dataclass(frozen=True)
class Work:
    """What a run's parties do in its rounds, as plain values."""

    parties: tuple[str, ...]
    order: str = "together"
    steps: int = 1  # local steps per round
    special: Mapping[str, int] = field(default_factory=dict)  # of parties that take another number
    speeds: Mapping[str, float] = field(default_factory=dict)  # 1 where not named
    silent_learn: bool = True  # who did not upload learns all the same
    taken: Mapping[int, Mapping[str, int]] = field(default_factory=dict)  # round -> `special` of that round

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Work:
        """The work of a run, from its record."""
        schedule = record["training"].get("schedule", {})
        return cls(
            tuple(party["name"] for party in record["about"]["parties"]),
            schedule.get("order", "together"),
            record["method"]["settings"].get("local_steps", 1),
            schedule.get("steps", {}),
            schedule.get("speeds", {}),
            schedule.get("silent_learn", True),
            {int(entry["round"]): entry["steps"] for entry in record["history"] if "steps" in entry},
        )

    def seconds(self, settings: ClockSettings, number: int) -> list[float]:
        """How long each party learns from the reply to round `number`."""
        special = self.taken.get(number, self.special)
        steps = [special.get(party, self.steps) for party in self.parties]
        return [n * settings.step / self.speeds.get(p, 1.0) for n, p in zip(steps, self.parties, strict=True)]


Bytes = Sequence[Sequence[int]]  # per round, per party in federation order


@dataclass
class _Lines:
    """The lines to the parties: on each one message after the other."""

    settings: ClockSettings
    free: list[float]  # when the last message has left

    def deliver(self, sent: float, counts: Sequence[int]) -> list[float]:
        """When each party has its message of so many bytes, if all are ready to be sent at one time."""
        starts = [max(sent, free) for free in self.free]
        self.free = [at + BITS * count / self.settings.down for at, count in zip(starts, counts, strict=True)]
        return [free + self.settings.latency / 1000 for free in self.free]


def run_ends(settings: ClockSettings, record: Mapping[str, Any]) -> list[float]:
    """`round_ends` of a run, from its record."""
    rounds = record["traffic"]["rounds"]
    return round_ends(settings, Work.of(record), [x["up"] for x in rounds], [x["down"] for x in rounds])


def round_ends(settings: ClockSettings, work: Work, up: Bytes, down: Bytes) -> list[float]:
    """Entry n: the simulated second at which everybody has learnt from rounds 1 to n.

    Args:
        settings: lines and machines.
        work: who does how much.
        up: training bytes that each party sent in round 1, 2, ...
        down: training bytes that each received in it; round n + 1 brings the reply to round n.

    Returns:
        As many entries as there are rounds: entry 0 is the opening.
    """
    if work.order == "asynchronous" and any(any(sent) for sent in up):
        return _unasked(settings, work, up, down)
    return _asked(settings, work, up, down)


def _asked(settings: ClockSettings, work: Work, up: Bytes, down: Bytes) -> list[float]:
    """Rounds in which the coordinator asks and waits for all that it asked."""
    everyone = range(len(work.parties))
    free = [0.0] * len(work.parties)  # when each has learnt all that it was told to
    lines = _Lines(settings, list(free))
    answered = 0.0  # when the coordinator had its last answer ready
    learners: set[int] = set()  # nobody learns from a round before the first
    ends = []
    for number, (sent, received) in enumerate(zip(up, down, strict=True)):  # this brings the reply to round `number`
        came, seconds = lines.deliver(answered, received), work.seconds(settings, number)
        free = [max(free[k], came[k]) + (seconds[k] if k in learners else 0.0) for k in everyone]
        ends.append(max(free))
        senders = {k for k in everyone if sent[k]}
        arrived = [free[k] + _up(settings, sent[k]) for k in senders]
        answered = max([answered, *arrived]) + settings.coordinate
        learners = set(everyone) if work.silent_learn and work.order == "together" else senders
        if not senders:  # nobody has an uplink: all learn by themselves
            learners = set(everyone)
    return ends


def _unasked(settings: ClockSettings, work: Work, up: Bytes, down: Bytes) -> list[float]:
    """Rounds of parties that upload as soon as they have learnt."""
    lines = _Lines(settings, [0.0] * len(work.parties))
    ready = lines.deliver(0.0, down[0])
    answered = 0.0
    ends = [max(ready)]
    for number, (sent, replies) in enumerate(zip(up, down[1:], strict=False), start=1):
        senders = [k for k, count in enumerate(sent) if count]
        for k in senders:
            answered = max(answered, ready[k] + _up(settings, sent[k])) + settings.coordinate
        came, seconds = lines.deliver(answered, replies), work.seconds(settings, number)
        for k in senders:
            ready[k] = came[k] + seconds[k]
        ends.append(max(ends[-1], *ready))
    return ends


def _up(settings: ClockSettings, count: int) -> float:
    """How long an upload of so many bytes is on its way."""
    return settings.latency / 1000 + BITS * count / settings.up
