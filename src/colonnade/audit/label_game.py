"""The game against label noise: which of two labels does a row have? Every row is a game of its own.

Each row gets one of two labels by a coin; which two is drawn for each row, so that every class is played. The player
sees what training sees, the belief under a uniform prior, and guesses where that is as clear as it can be: where the
log-odds of the two labels are epsilon or -epsilon, which is where a mechanism of pure epsilon is at its limit. Where it
is less clear, it does not guess. Given all that was seen, no guess about a row is right with more than
e^epsilon / (1 + e^epsilon), whatever is known of the others; so of G guesses the number of right ones is at most
Binomial(G, e^epsilon / (1 + e^epsilon)) (Steinke, Nasr, Jagielski 2023). The lower Clopper-Pearson limit of the rate,
as log-odds, is a lower bound on epsilon, without any assumption. The same holds for each row by itself, over all
openings: a row that is left out of the noise is always right.

Of K yes/no labels each is such a game, with epsilon/K: they are noised one by one, and K of them are a row's label.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from colonnade.audit.bound import CONFIDENCE, upper_limit
from colonnade.audit.checks import FALSE_ALARM, Check, judged, scipy, together, two_sided
from colonnade.privacy.labels import Labels
from colonnade.privacy.labels.settings import LabelSettings, open_labels
from colonnade.randomness import key, stream
from colonnade.tasks import Task

ENOUGH = 200_000  # rows, in as many openings of the run's own size as it takes
MOST_OPENINGS = 2000
TOP = 1e-6  # how near to the largest log-odds counts as there, relative
LABELS, UNIFORM, ONCE = "lower bound on label epsilon", "which labels replace", "label noise drawn once"
OpenLabels = Callable[[Tensor, Task, Tensor, LabelSettings, int], Labels]


@dataclass(frozen=True)
class LabelTrial:
    """Label noise as a run has it: its settings, task and number of rows."""

    settings: LabelSettings
    task: Task
    rows: int
    opened: OpenLabels = open_labels  # how labels get behind their mechanism
    enough: int = ENOUGH

    def checks(self, seed: int) -> Iterator[Check]:
        """The game; for classes, which ones replace a label; and whether noise is drawn once."""
        epsilon, each = float(self.settings.epsilon or 0.0), self._each
        right, wrong = torch.zeros(self.rows, dtype=torch.int64), torch.zeros(self.rows, dtype=torch.int64)
        kept = torch.zeros(self.task.outputs, dtype=torch.int64)
        for opening in range(self._openings):
            labels, truth, other = self._open(seed, opening)
            odds = self._odds(labels, truth, other).reshape(self.rows, -1)
            right += (odds >= each * (1 - TOP)).sum(dim=1)
            wrong += (odds <= -each * (1 - TOP)).sum(dim=1)
            if self.task.exclusive and self.settings.countable:
                kept += torch.bincount(self._offsets(labels, truth), minlength=self.task.outputs)
        yield self._bound(right, wrong, epsilon)
        if self.task.exclusive and self.settings.countable and self.task.outputs > 2:
            yield self._replaced(kept)
        yield self._once(seed)

    @property
    def _each(self) -> float:
        """Epsilon of one game: of a row's class, or of one of its yes/no labels."""
        return float(self.settings.epsilon or 0.0) / (1 if self.task.exclusive else self.task.outputs)

    @property
    def _openings(self) -> int:
        return max(1, min(MOST_OPENINGS, math.ceil(self.enough / self.rows)))

    def _open(self, seed: int, opening: int) -> tuple[Labels, Tensor, Tensor]:
        """Labels of all rows behind the mechanism, one of two by a coin: that one, and the other."""
        coin = stream(seed, "audit labels", number=opening)
        width = () if self.task.exclusive else (self.task.outputs,)
        truth = torch.from_numpy(coin.integers(0, 2, (self.rows, *width)))
        other = 1 - truth
        if self.task.exclusive and self.task.outputs > 2:
            first = torch.from_numpy(coin.integers(0, self.task.outputs, self.rows))
            second = (first + torch.from_numpy(coin.integers(1, self.task.outputs, self.rows))) % self.task.outputs
            truth, other = torch.where(truth == 1, second, first), torch.where(truth == 1, first, second)
        values = truth if self.task.exclusive else truth.double()
        secret = key(seed, "audit label noise", number=opening)
        return self.opened(values, self.task, torch.arange(self.rows), self.settings, secret), truth, other

    def _odds(self, labels: Labels, truth: Tensor, other: Tensor) -> Tensor:
        """Log-odds of each row's (or output's) true label against the other one."""
        belief = labels.held_out(torch.arange(self.rows)).double()
        if self.task.exclusive:
            return (belief.gather(1, truth[:, None]) / belief.gather(1, other[:, None])).log()[:, 0]
        return (belief / (1 - belief)).log() * (2 * truth - 1)

    def _offsets(self, labels: Labels, truth: Tensor) -> Tensor:
        """By how much each answer is another class than the true one."""
        return (labels.held_out(torch.arange(self.rows)).argmax(dim=1) - truth) % self.task.outputs

    def _bound(self, by_row: Tensor, wrong_by_row: Tensor, epsilon: float) -> Check:
        right, wrong = int(by_row.sum()), int(wrong_by_row.sum())
        guesses = right + wrong
        allowed = 1 / (1 + math.exp(-self._each))
        limit = 1 - upper_limit(wrong, guesses, FALSE_ALARM) if guesses else 0.0
        low = math.log(limit / (1 - limit)) if 0 < limit < 1 else 0.0
        found = max(0.0, low) * epsilon / self._each  # of the whole label
        binomial = scipy("stats").binom
        tests = [float(binomial.sf(right - 1, guesses, allowed)) if guesses else 1.0]
        of_rows = binomial.sf(by_row.numpy() - 1, (by_row + wrong_by_row).numpy(), allowed)
        tests.append(min(1.0, self.rows * float(of_rows.min())))
        p = together(tests)
        failed = p < FALSE_ALARM
        below = "below the ledger's figure: nothing was found, which is no proof"
        means = (
            "ABOVE the ledger's figure: the label noise is weaker than it says, for all rows or for one"
            if failed
            else below
        )
        told = (
            f"{means}; {guesses:,} guesses, {self._openings} x {self.rows:,} rows, {100 * CONFIDENCE:.2f} % confidence"
        )
        facts = {
            "epsilon": found,
            "claimed": epsilon,
            "unit": "LABEL",
            "delta": 0.0,
            "guesses": guesses,
            "right": right,
        }
        return Check(LABELS, told, f"{found:.3f} epsilon", f"{epsilon:.3f} ledger", p, failed, facts=facts)

    def _replaced(self, kept: Tensor) -> Check:
        """Of the labels that were replaced, each other class has the same chance: binomial, class by class."""
        others = kept[1:]
        total = int(others.sum())
        return judged(
            UNIFORM,
            (two_sided(int(count), total, 1 / len(others)) for count in others),
            "the classes that replace a label are NOT equally likely: some answers give labels away",
            f"all other classes replace a label alike ({total:,} replaced)",
        )

    def _once(self, seed: int) -> Check:
        one, two = (self._open(seed, 0)[0].held_out(torch.arange(self.rows)) for _ in range(2))
        same = torch.equal(one, two)
        means = "the same key gives the same noise" if same else "noise is drawn AGAIN each time: averages undo it"
        return Check(ONCE, means, "the same" if same else "another", "the same", failed=not same)
