"""How long a run trains, after which rounds it is evaluated, and what of where it is survives a restart."""

from __future__ import annotations

from dataclasses import dataclass, field

from colonnade.admm.stopping import Stopping
from colonnade.evaluate.decision import DecisionSettings

USUAL = 5  # rounds between evaluations where nobody said how many, after as many rounds with one each,
SMALL = 20  # or so many, where validation rows are so few that an evaluation costs no more than a round


@dataclass(frozen=True)
class TrainingPlan:
    """How long, and how often to evaluate."""

    rounds: int
    evaluate_every: int | None  # 0: never; None: after each of the first rounds, then as usual
    stopping: Stopping
    goes_on: bool = False  # with remembered uploads, when a party stays away
    metric: str | None = None  # that chooses the kept round; None: the task's own
    end: str = "all rounds done"  # the reason to stop after the last round
    decision: DecisionSettings = field(default_factory=DecisionSettings)  # what is fitted on validation rows
    early: int = USUAL  # first rounds that are all evaluated, where `evaluate_every` is None
    by_loss: bool = False  # the task's loss chooses the kept round, in place of the metric
    always: bool = False  # parties are asked about validation rows in every round, whether or not it is evaluated

    def evaluates_after(self, done: int) -> bool:
        """Whether validation rows are evaluated after so many rounds."""
        if self.evaluate_every == 0:
            return False
        return self.may_stop_after(done) or (self.evaluate_every is None and 0 < done <= self.early)

    def asks_after(self, done: int) -> bool:
        """Whether parties are asked about validation rows after so many rounds."""
        return self.evaluates_after(done) or (self.always and self.evaluate_every != 0)

    def may_stop_after(self, done: int) -> bool:
        """Whether the rules of stopping count an evaluation after so many rounds; early ones only choose a round."""
        every = USUAL if self.evaluate_every is None else self.evaluate_every
        return done == self.rounds or (done > 0 and every > 0 and done % every == 0)
