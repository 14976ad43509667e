"""How much a candidate's score adds to the label holder's own, on rows whose labels it was never told.

    alone    the stack of the label holder's own score s_0
    joined   the stack of s_0 and the candidate's score s_1
    gain     metric(joined) - metric(alone), the mean over folds; more is better, whatever the metric

Each stack is fitted on the other folds with true labels. A metric is taken within a fold: scores of different models
have different levels, and pooling them would rank rows by their fold where scores are tied. The interval comes from a
bootstrap over the rows, both stacks on the same resamples.

The candidate's scores are bytes of a stranger. Whatever they are, they can only rank rows: noise gets hardly any
weight, a constant none. What a candidate did to make them cannot be seen from here, and need not be: no label of these
rows was sent to it, so that repeating labels it got is no better than noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from colonnade.errors import DataError
from colonnade.evaluate.chance import Interval, percentiles, resamples
from colonnade.evaluate.metrics import METRICS, Metric
from colonnade.joining.scores import FOLDS
from colonnade.models.stacking import fit_stack
from colonnade.randomness import stream
from colonnade.tasks import Task

FEWEST = 20  # rows of a fold


@dataclass(frozen=True)
class Gain:
    """What a score adds on these rows."""

    metric: Metric
    alone: float
    joined: float
    value: float  # positive: better, also where a lower metric is
    interval: Interval | None  # 95 %; None where the rows do not define the metric often enough
    rows: int

    @property
    def sure(self) -> bool:
        """Whether the whole interval is above 0."""
        return self.interval is not None and self.interval[0] > 0


def balanced_folds(truth: Tensor, seed: int) -> Tensor:
    """(B,) a fold for each row, each with as many of every label; they stay with the label holder."""
    mixed = torch.from_numpy(stream(seed, "worth own folds").permutation(len(truth)))
    order = mixed[truth.reshape(len(truth), -1)[mixed, 0].argsort(stable=True)]
    folds = torch.empty(len(truth), dtype=torch.int64)
    folds[order] = torch.arange(len(truth)) % FOLDS
    return folds


def gain_of(
    task: Task, truth: Tensor, own: Tensor | None, theirs: Tensor, folds: Tensor, weights: Tensor | None = None
) -> Gain:
    """What `theirs` (B, D) adds to the `own` scores (B, K) on rows with these labels; None: the holder has no score.

    Raises:
        DataError: there are too few rows, or the metric is undefined on them.
    """
    if len(truth) < FOLDS * FEWEST:
        raise DataError(f"a gain needs at least {FOLDS * FEWEST} rows to be judged by; there are {len(truth)}")
    metric = METRICS[task.metric]
    mine = [] if own is None else [_standard(own)]
    alone = _stacked(task, truth, mine, folds, weights)
    news = _standard(theirs)
    if task.label_noise is None:  # a number's score says on which side of the median it is: let the stack bend it
        news = torch.cat([news, _standard(news.square())], dim=1)
    joined = alone if not bool(news.any()) else _stacked(task, truth, [*mine, news], folds, weights)

    def measured(outputs: Tensor, heavy: Tensor) -> Tensor:
        each = [metric.values(task, outputs[at], truth[at], heavy[:, at]) for at in _each(folds)]
        return torch.stack(each).nanmean(dim=0)

    once = torch.ones(1, len(truth), dtype=torch.float64) if weights is None else weights.double()[None]
    before, after = float(measured(alone, once)), float(measured(joined, once))
    if not math.isfinite(after - before):
        raise DataError(f"{metric.title} is undefined on the {len(truth)} rows that judge: they are all alike")
    apart = [metric.sign() * (measured(joined, h) - measured(alone, h)) for h in resamples(len(truth), weights)]
    around = percentiles(torch.cat(apart))
    if around is not None:
        around = around[0], max(around[1], 0.0)  # nobody has to use a score that does harm
    return Gain(metric, before, after, metric.sign() * (after - before), around, len(truth))


def _standard(scores: Tensor) -> Tensor:
    """(B, D) with mean 0 and variance 1; a column that never changes is 0."""
    wide = scores.double()
    spread = wide.std(dim=0, unbiased=False)
    return torch.where(spread > 0, (wide - wide.mean(dim=0)) / spread.clamp(min=1e-300), torch.zeros_like(wide))


def _stacked(task: Task, truth: Tensor, scores: list[Tensor], folds: Tensor, weights: Tensor | None) -> Tensor:
    """(B, K) the outputs of stacks of these scores, each fitted without the row's fold."""
    z = torch.cat(scores, dim=1) if scores else torch.zeros(len(truth), 0, dtype=torch.float64)
    targets = task.expand(truth, torch.float64)
    found = torch.zeros_like(targets)
    for fold, at in enumerate(_each(folds)):
        rest = (folds != fold).nonzero()[:, 0]
        stack = fit_stack(task, z[rest], targets[rest], None if weights is None else weights[rest])
        found[at] = z[at] @ stack.weight + stack.bias
    return found


def _each(folds: Tensor) -> list[Tensor]:
    return [(folds == fold).nonzero()[:, 0] for fold in range(FOLDS)]
