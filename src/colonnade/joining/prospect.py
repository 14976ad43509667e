"""What is told of candidates: the gain of each with its interval, what it cost in bytes and in label privacy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypedDict

from colonnade.joining.gain import Gain
from colonnade.joining.question import Question
from colonnade.numerals import fixed
from colonnade.privacy.ledger import Ledger


class ProspectLine(TypedDict):
    """A candidate, for machines."""

    candidate: str
    metric: str
    alone: float
    joined: float
    gain: float
    interval: list[float] | None
    clear: bool
    bytes_down: int
    bytes_up: int
    interaction: float | None
    interaction_interval: list[float] | None


@dataclass(frozen=True)
class Prospect:
    """One candidate."""

    candidate: str
    gain: Gain
    down: int  # bytes of the question
    up: int  # bytes of the answer
    interaction: Gain | None = None  # what both organisations' columns say only together; None: it was not asked for

    def to_json(self) -> ProspectLine:
        """Plain values."""
        g = self.gain
        return {
            "candidate": self.candidate,
            "metric": g.metric.name,
            "alone": g.alone,
            "joined": g.joined,
            "gain": g.value,
            "interval": None if g.interval is None else list(g.interval),
            "clear": g.sure,
            "bytes_down": self.down,
            "bytes_up": self.up,
            "interaction": None if self.interaction is None else self.interaction.value,
            "interaction_interval": None if (i := self.interaction) is None or not i.interval else list(i.interval),
        }

    def warning(self) -> str:
        """What no sum of scores can say, where something of it was seen; empty: nothing was, or nobody asked."""
        i = self.interaction
        if i is None or i.interval is None or not i.sure:
            return ""
        low, high = (_signed(end) for end in i.interval)
        return (
            f"{self.candidate}: its columns and the label holder's say something together that no sum of scores can "
            f"say: {i.metric.title} {_signed(i.value)} (95 % interval {low} to {high}); what helps: "
            'documentation, page "Interactions"'
        )

    def sentence(self) -> str:
        """The answer, in one sentence."""
        g = self.gain
        better = f"{g.metric.title} {g.metric.told(g.alone)} alone, {g.metric.told(g.joined)} with its score"
        if g.interval is None:
            return f"{self.candidate}: cannot be judged by these rows ({better})"
        low, high = (_signed(end) for end in g.interval)
        verdict = "adds something" if g.sure else "no gain can be seen"
        more = " of this score; a training mostly gains more" if g.sure else ""
        if self.interaction is not None:  # the label and every side share the epsilon
            more += "; much too low, since interactions were asked with it: ask again without them"
        return f"{self.candidate}: {verdict}: {better} (gain {_signed(g.value)}, 95 % interval {low} to {high}{more})"


@dataclass(frozen=True)
class Prospects:
    """The candidates that were asked, and what the question released."""

    holder: str
    prospects: tuple[Prospect, ...]
    epsilon: float  # of one row's whole label, for this question
    spent: float  # together with earlier questions about the same labels
    told: int  # rows whose noisy labels were sent
    judged: int
    released: str  # what was released of the labels, and what the epsilon does not cover
    ledger: Ledger = field(repr=False)
    failed: Mapping[str, str] = field(default_factory=dict)  # candidates without an answer, and why

    def __getitem__(self, candidate: str) -> Prospect:
        """Of one candidate, by name."""
        return {one.candidate: one for one in self.prospects}[candidate]

    def to_json(self) -> Mapping[str, object]:
        """Plain values."""
        return {
            "holder": self.holder,
            "candidates": [one.to_json() for one in self.prospects],
            "epsilon": self.epsilon,
            "epsilon_spent": self.spent,
            "delta": 0.0,
            "unit": "LABEL",
            "accountant": "none needed: noise of each question is drawn once, and epsilons add up",
            "rows_told": self.told,
            "rows_judged": self.judged,
            "released": self.released,
            "failed": dict(self.failed),
        }

    def lines(self) -> list[str]:
        """For people."""
        found = [line for one in self.prospects for line in (one.sentence(), one.warning()) if line]
        found += [f"{name}: no answer: {reason}" for name, reason in self.failed.items()]
        down, up = (sum(getattr(one, way) for one in self.prospects) for way in ("down", "up"))
        found.append(f"{down:,} bytes down and {up:,} bytes up, counted on encoded messages.")
        more = self.spent > self.epsilon
        total = (
            f"Together with earlier questions about these labels: epsilon {self.spent:g} (unit LABEL, delta 0, added "
            "up, so no accountant is needed); trainings come on top."
        )
        return [*found, self.released, *([total] if more else [])]

    def __str__(self) -> str:
        """The lines."""
        return "\n".join(self.lines())


def _signed(value: float) -> str:
    return fixed(value, 4, "+")


def released_sentence(told: int, candidates: tuple[str, ...], question: Question, simulated: bool) -> str:
    """What a question releases of the labels; no epsilon without its unit, its accountant and what it leaves out."""
    cut, epsilon = question.cut, question.epsilon
    of = f" of {told:,} rows"
    what = f"Noisy answers whether the labels{of} are above the median" if cut else f"Noisy labels{of}"
    if question.sides:
        what += f", and whether they agree with the sides of {question.sides} columns,"
    median = ", the median that numbers were cut at, which was counted on the judged rows" if cut else ""
    seed = (
        " The noise was drawn from the seed of this simulation, and whoever knows that can take it away."
        if simulated
        else ""
    )
    return (
        f"{what} were released to {', '.join(candidates)} by randomised response: epsilon "
        f"{epsilon:g}, delta 0, unit LABEL (neighbours: one row's whole label replaced); the noise was drawn once, so "
        f"no accountant is needed.{seed} Not covered: which rows there are{median}, this estimate, if it is passed on "
        "(true labels of other rows made it, and they stayed), the candidate's columns, of which one score per row "
        "left without noise, and what a later training releases: epsilons add up."
    )
