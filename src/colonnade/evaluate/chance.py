"""What a test score is worth: its 95 % interval, and the score of a constant guess beside it.

accuracy of rows   exact binomial interval (Clopper and Pearson 1934)
AUC of yes/no      score interval (Newcombe 2006, method 5)
all others         percentiles of a bootstrap over the rows; of weighted rows every metric

The first two have no bootstrap because it fails where they are needed most: a model that is right on all of 30 rows
would get an interval from 100 % to 100 %. The constant guess knows how often the training rows have each label.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from colonnade.evaluate.answers import Answers
from colonnade.evaluate.decision import Decision, calibration_error
from colonnade.evaluate.judge import in_common, that_differ
from colonnade.evaluate.metrics import METRICS, Metric, metrics_of
from colonnade.randomness import stream
from colonnade.record import Decisions, DecisionTold, Measured, OnTest
from colonnade.rows import Grouping
from colonnade.tasks import Task

TAIL = 0.025  # on either side of a 95 % interval
Z = 1.959964  # the normal distribution's
RESAMPLES = 500
CELLS = 2 * 10**7  # row weights that a bootstrap draws at most, but for
FEWEST = 100  # resamples
TOGETHER = 500_000  # of them that are counted at a time: what a metric makes of more leaves a processor's cache
FEW = 1000  # rows whose resamples are kept for as many as four numbers of rows; of more, those of the last number
Interval = tuple[float, float]


def measured(
    task: Task,
    outputs: Tensor,
    truth: Tensor,
    shares: Tensor,
    by: Metric | None = None,
    weights: Tensor | None = None,
    decision: Decision | None = None,
    groups: Grouping | None = None,
) -> OnTest:
    """What a result says of the test rows.

    Args:
        task: what kind of labels.
        outputs: (B, K) of the kept model.
        truth: (B,) classes or (B, K) numbers.
        shares: (K,) of the training rows, as `Task.shares` gives them.
        by: the metric that the run is judged by; None: the task's own.
        weights: (B,) how much each row counts in every metric; None: all alike. The confusion matrix counts rows.
        decision: of the kept model, where one was fitted.
        groups: that the rows are also measured by.

    Returns:
        `metric`, `test_score` (None where it is undefined), `test_interval`, `baseline_score`, `warnings`; `metrics`
        with `test`, `interval` and `baseline` of every metric of the task; where there are decisions also
        `test_accuracy`, `baseline_accuracy`, and for classes `baseline_class` and the confusion matrix.
    """
    by = METRICS[task.metric] if by is None else by
    outputs, truth, shares = outputs.detach().cpu(), truth.detach().cpu(), shares.cpu()
    answers = Answers.of_outputs(task, outputs, decision)
    guess = task.constant(shares).expand(len(truth), -1)
    every = dict.fromkeys((by, *metrics_of(task)))
    scores = {metric.name: score_of(metric, task, answers.to(metric), truth, guess, weights) for metric in every}
    own = scores[by.name]
    found: OnTest = {
        "metric": by.name,
        "test_score": own["test"],
        "test_interval": own["interval"],
        "baseline_score": own["baseline"],
        "metrics": scores,
    }
    if "accuracy" in scores:
        found["test_accuracy"] = scores["accuracy"]["test"]
        found["baseline_accuracy"] = scores["accuracy"]["baseline"]
    if len(task.classes) == (2 if task.outputs == 1 else task.outputs) and not task.several():
        found["baseline_class"] = int(task.codes(guess[:1]).flatten()[0])
        decided = class_report(task.codes(answers.decided), truth, len(task.classes))
        found["confusion"], found["class_accuracy"] = decided["confusion"], decided["class_accuracy"]
        found["class_accuracy_std"] = decided["class_accuracy_std"]
    if decision is not None:
        found["decision"] = _told(task, outputs, truth, decision, weights)
    if groups is not None:
        from colonnade.evaluate.groups import by_group  # which takes intervals from here

        found["by_group"] = by_group(every, task, answers, truth, groups, weights)
    found["warnings"] = [*_warnings(task, by, own, len(truth)), *filter(None, [task.known(truth, shares)])]
    return found


def _told(task: Task, outputs: Tensor, truth: Tensor, decision: Decision, weights: Tensor | None) -> DecisionTold:
    """A decision, and what calibration did to the errors of the probabilities."""
    sides = [outputs.double(), decision.calibrated(outputs).double()]
    return {
        "decide_by": decision.by,
        "threshold": decision.threshold,
        "calibration": decision.calibration,
        "validation_rows": decision.rows,
        "brier": [METRICS["brier"](task, side, truth, weights) for side in sides],
        "calibration_error": [calibration_error(task.mean(side), truth, weights) for side in sides],
    }


def score_of(
    metric: Metric, task: Task, outputs: Tensor, truth: Tensor, guess: Tensor, weights: Tensor | None = None
) -> Measured:
    """A metric's value, interval and constant guess; None where the rows do not define it."""
    value, constant = metric(task, outputs, truth, weights), metric(task, guess, truth, weights)
    around = interval(metric, task, outputs, truth, value, weights)
    return {
        "test": None if math.isnan(value) else value,
        "interval": around and list(around),  # as it is read back from JSON
        "baseline": None if math.isnan(constant) else constant,
    }


def _warnings(task: Task, metric: Metric, own: Measured, rows: int) -> list[str]:
    value, around, constant = own["test"], own["interval"], own["baseline"]
    if value is None:
        return [
            f"The {rows} test rows are all of one {in_common(task)}, so {metric.title} is undefined there; test on "
            f"rows of {that_differ(task)}."
        ]
    if around is None or constant is None:
        return []
    worst = around[0] if metric.better == "higher" else around[1]
    if metric.sign() * (worst - constant) > 0:
        return []
    better = "clearly better" if metric.sign() * (value - constant) > 0 else "better"
    low, high = (metric.told(one) for one in around)
    return [
        f"The model is not {better} than a constant guess: test {metric.title} {metric.told(value)} (95 % interval "
        f"{low} to {high}), constant guess {metric.told(constant)}. Train it longer, test it on more rows, or check "
        "labels and ids."
    ]


def interval(
    metric: Metric, task: Task, outputs: Tensor, truth: Tensor, value: float, weights: Tensor | None = None
) -> Interval | None:
    """The 95 % interval of a value over other rows of the same kind; None where there is no way to tell."""
    if not math.isfinite(value):
        return None
    if weights is not None:  # the closed forms count rows
        return bootstrap(metric, task, outputs, truth, weights)
    single = not task.several()
    if metric is METRICS["accuracy"] and single:
        return share_interval(round(value * len(truth)), len(truth))
    if metric is METRICS["auc"] and single and not task.exclusive:
        yes = int((truth > 0.5).sum())
        return auc_interval(value, yes, len(truth) - yes)
    return bootstrap(metric, task, outputs, truth)


def bootstrap(
    metric: Metric, task: Task, outputs: Tensor, truth: Tensor, weights: Tensor | None = None
) -> Interval | None:
    """Percentiles over resampled rows, each with its weight (B,), the same resamples for every metric.

    None for a single row.
    """
    if len(truth) < 2:
        return None
    values = [metric.values(task, outputs, truth, heavy) for heavy in resamples(len(truth), weights)]
    return percentiles(torch.cat(values))


def resamples(rows: int, weights: Tensor | None = None) -> Iterator[Tensor]:
    """How much each row counts in which resample, (some, rows) at a time: the same for every metric and model."""
    for times in _drawn(rows) if rows * FEWEST > CELLS else _kept(rows) if rows <= FEW else _kept_last(rows):
        yield times.double() if weights is None else times * weights.cpu().double()


@lru_cache(maxsize=4)
def _kept(rows: int) -> tuple[Tensor, ...]:
    """Drawing takes longer than most metrics do, and all of a result take the same draws; a byte for each cell."""
    return tuple(_drawn(rows))


@lru_cache(maxsize=1)
def _kept_last(rows: int) -> tuple[Tensor, ...]:
    return tuple(_drawn(rows))


def _drawn(rows: int) -> Iterator[Tensor]:
    """How often each row was drawn, (some, rows) at a time; in bytes: 256 times has a chance of 1/256!."""
    count = min(RESAMPLES, max(FEWEST, CELLS // rows))
    step = max(1, TOGETHER // rows)
    draw = stream(rows, "bootstrap")
    for first in range(0, count, step):
        lines = min(step, count - first)
        times = np.empty((lines, rows), dtype=np.uint8)
        for line, picked in zip(times, draw.integers(0, rows, (lines, rows)), strict=True):
            line[:] = np.bincount(picked, minlength=rows)
        yield torch.from_numpy(times)


def percentiles(values: Tensor) -> Interval | None:
    """The 95 % interval of the values of resamples; None where most resamples lack a class."""
    found = values[torch.isfinite(values)]
    if len(found) < FEWEST // 2:
        return None
    low, high = torch.quantile(found, torch.tensor([TAIL, 1 - TAIL], dtype=torch.float64)).tolist()
    return low, high


def class_report(decided: Tensor, truth: Tensor, classes: int) -> Decisions:
    """Confusion matrix (true x predicted), accuracy per class, and its standard deviation; one class per row each."""
    pairs = truth.to(torch.int64).flatten() * classes + decided.flatten()
    confusion = torch.bincount(pairs, minlength=classes**2).view(classes, classes)
    rows = confusion.sum(dim=1)
    per_class = (confusion.diagonal() / rows.clamp(min=1)).double()
    return {
        "confusion": confusion.tolist(),
        "class_accuracy": per_class.tolist(),
        "class_accuracy_std": float(per_class[rows > 0].std(unbiased=False)),
    }


def share_interval(right: int, rows: int) -> Interval:
    """Clopper and Pearson's interval of a share: `right` of `rows`."""
    from scipy.special import betaincinv  # slow to import

    low = 0.0 if right == 0 else float(betaincinv(right, rows - right + 1, TAIL))
    high = 1.0 if right == rows else float(betaincinv(right + 1, rows - right, 1 - TAIL))
    return low, high


def auc_interval(value: float, yes: int, no: int) -> Interval:
    """Newcombe's interval of an AUC: the values t whose own deviation, at t, reaches from t to `value`."""
    half = (yes + no) / 2 - 1

    def distance(t: float) -> float:
        variance = t * (1 - t) * (1 + half * ((1 - t) / (2 - t) + t / (1 + t))) / (yes * no)
        return abs(value - t) - Z * math.sqrt(variance)

    return _cross(distance, 0.0, value), _cross(distance, 1.0, value)


def _cross(distance: Callable[[float], float], outside: float, inside: float) -> float:
    """Where a function that is positive outside the interval and negative inside changes its sign."""
    if distance(outside) <= 0:
        return outside
    for _ in range(60):
        middle = (outside + inside) / 2
        outside, inside = (middle, inside) if distance(middle) > 0 else (outside, middle)
    return (outside + inside) / 2
