"""When to stop, and why: every rule returns its reason in words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NotRequired, TypedDict

from pydantic import Field

from colonnade.config import Settings


class Stopping(Settings):
    """Stop when the score stays well below its best, or no longer rises.

    The paper stops at the first score below; networks that take large steps fall that far now and then, and recover.
    """

    drop: float = Field(0.02, gt=0, description="stop when the validation score is this far below its best")
    in_a_row: int = Field(3, ge=1, description="evaluations in a row that must be that far below; 1: paper")
    grace: int = Field(10, ge=0, description="evaluations before the drop rule applies: early rounds wander")
    patience: int = Field(0, ge=0, description="stop after this many evaluations without a rise; 0: never")
    rise: float = Field(0.0, ge=0, description="what counts as a rise for patience")


UNTOUCHED = float("-inf")  # the best of nothing


class WatchFacts(TypedDict):
    """A watch as plain values; None: nothing was seen yet."""

    best: float | None
    best_round: int
    seen: int
    last_rise: int
    reference: float | None
    low: NotRequired[int]  # runs that began before it was counted have none


@dataclass
class Watch:
    """The score so far: best value, its round, and how long ago it last rose."""

    rules: Stopping
    best: float = UNTOUCHED
    best_round: int = -1
    seen: int = 0
    last_rise: int = 0
    reference: float = UNTOUCHED  # the best at the last rise that counted
    low: int = 0  # how many of the last evaluations were far below the best

    @property
    def judged(self) -> bool:
        """Whether there was an evaluation."""
        return self.seen > 0 or self.best_round >= 0

    def see(
        self,
        score: float,
        number: int,
        may_stop: bool = True,
        value: Callable[[float], float] = float,
        name: str = "",
    ) -> tuple[bool, str | None]:
        """(is it the best so far, the reason to stop or None); the rules count only evaluations that may stop.

        `value` makes a score what the reason tells: in the unit of its metric, which has a `name` where it is not the
        one that is told otherwise.
        """
        better = score > self.best
        if better:
            self.best, self.best_round = score, number
        if not may_stop:
            return better, None
        self.seen += 1
        if score > self.reference + self.rules.rise:
            self.reference, self.last_rise = score, self.seen
        self.low = self.low + 1 if score < self.best - self.rules.drop else 0
        return better, self._reason(score, value, name or "validation score")

    def _reason(self, score: float, value: Callable[[float], float], name: str) -> str | None:
        best = f"best {value(self.best):.4f}, round {self.best_round}"
        rules, no_better = self.rules, "no better" if name == "validation score" else f"{name} no better"
        if self.seen > rules.grace and self.low >= rules.in_a_row:
            worse = abs(value(rules.drop) - value(0.0))
            often = f", {rules.in_a_row} times in a row" if rules.in_a_row > 1 else ""
            return f"{name} {value(score):.4f} is worse by more than {worse:.3g}{often} ({best})"
        if rules.patience and self.seen - self.last_rise >= rules.patience:
            return f"converged: {no_better} in {rules.patience} evaluations ({best})"
        return None

    def to_json(self) -> WatchFacts:
        """Plain values (an untouched watch has no best yet)."""
        return {
            "best": _unless_untouched(self.best),
            "best_round": self.best_round,
            "seen": self.seen,
            "last_rise": self.last_rise,
            "reference": _unless_untouched(self.reference),
            "low": self.low,
        }

    def load(self, values: WatchFacts) -> None:
        """The inverse of `to_json`."""
        best, reference = values["best"], values["reference"]
        self.best = UNTOUCHED if best is None else best
        self.reference = UNTOUCHED if reference is None else reference
        self.best_round, self.seen, self.last_rise = values["best_round"], values["seen"], values["last_rise"]
        self.low = values.get("low", 0)


def _unless_untouched(value: float) -> float | None:
    return None if value == UNTOUCHED else value
