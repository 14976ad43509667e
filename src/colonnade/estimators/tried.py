"""How good local models are on the validation rows that were trained with one or several splits, and which is best."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from colonnade.estimators.kinds import KINDS, Try
from colonnade.evaluate.metrics import choose_metric
from colonnade.run import Run


@dataclass(frozen=True)
class Tried:
    """One kind of local model.

    With several splits the round with the best mean over them counts, for all splits the same: the best rounds of each
    split by itself would be chosen by the same few rows that they are judged by.
    """

    tried: Try
    run: Run  # with the first split
    round: int | None  # the best one; None: no validation rows, or a training that came to nothing
    scores: tuple[float, ...]  # in that round, by the metric that chose it, of each split
    sign: float  # 1: higher scores are better, -1: lower ones
    tie: float  # by the loss, where metrics are equal

    @classmethod
    def of(cls, tried: Try, runs: Sequence[Run]) -> Tried:
        """From a training with each split."""
        first = runs[0]
        number, score = first.result["best_round"], first.result["validation_score"]
        if score is None or any(run.result["best_round"] is None for run in runs):
            return cls(tried, first, None, (), 1.0, 0.0)
        sign = choose_metric(first.task, first.result["validation_metric"]).sign()
        losses = [run.result["validation_metrics"].get("log_loss") or 0.0 for run in runs]
        if len(runs) == 1:
            return cls(tried, first, number, (score,), sign, -losses[0])
        number, scores = max(_common(runs).items(), key=lambda one: sign * fmean(one[1]))
        return cls(tried, first, number, scores, sign, -fmean(losses))

    @property
    def kind(self) -> str:
        """By name."""
        return self.tried.kind

    @property
    def score(self) -> float | None:
        """The mean over the splits."""
        return fmean(self.scores) if self.scores else None

    @property
    def gain(self) -> float:
        """The same, higher is better; what has no score loses against whatever has one."""
        return -math.inf if self.score is None else self.sign * self.score


def best_of(tried: Sequence[Tried]) -> Tried:
    """The one with the best mean; of several splits the simplest one that is behind by no more than a standard error.

    What bends more has more rounds and more ways to fit some validation rows by chance.
    """
    best = max(tried, key=lambda found: (found.gain, found.tie))
    near = [found for found in tried if found is best or (len(best.scores) > 1 and _about_as_good(found, best))]
    return min(near, key=lambda found: KINDS[found.kind].bends if found.kind in KINDS else 0)


def _about_as_good(one: Tried, best: Tried) -> bool:
    if len(one.scores) != len(best.scores):
        return False
    ahead = [best.sign * (b - a) for a, b in zip(one.scores, best.scores, strict=True)]
    return bool(fmean(ahead) <= stdev(ahead) / len(ahead) ** 0.5)


def _common(runs: Sequence[Run]) -> dict[int, tuple[float, ...]]:
    """The scores of every round that all of them evaluated."""
    curves = [{int(one["round"]): float(one["score"]) for one in run.history if "score" in one} for run in runs]
    common = set.intersection(*map(set, curves))
    return {number: tuple(curve[number] for curve in curves) for number in sorted(common)}
