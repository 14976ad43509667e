"""What a test score is worth: its 95 % interval, and the score of a constant guess beside it.

accuracy   exact binomial interval (Clopper and Pearson 1934); the most frequent class of the training rows
AUC        score interval (Newcombe 2006, method 5), which is right near 1 and for few rows too; 0.5
R2         normal interval with the variance of its linear part (delta method); 0, which is what a mean has
accuracy of several labels per row: normal interval over rows; each label's more frequent value
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from colonnade.evaluate.metrics import SCORE_NAME, accuracy, class_report, decide, has_auc, score
from colonnade.federation import Task

TAIL = 0.025  # on either side of a 95 % interval
Z = 1.959964  # the normal distribution's
Interval = tuple[float, float]


def measured(task: Task, logits: Tensor, truth: Tensor, shares: Tensor) -> dict[str, Any]:
    """What a result says of the test rows.

    Args:
        task: what kind of labels.
        logits: (B, K) of the kept model.
        truth: (B,) classes or (B, K) numbers.
        shares: (K,) of the training rows: how often each class, or each label, is a yes; not read for numbers.

    Returns:
        `metric`, `test_score` (None where it is undefined), `test_interval`, `baseline_score`, and `warnings`; for
        classes and yes/no also `baseline_class`, the confusion matrix, and for yes/no `test_accuracy` and
        `baseline_accuracy`.
    """
    logits, truth = logits.detach().cpu(), truth.detach().cpu()
    found: dict[str, Any] = {"metric": SCORE_NAME[task], "test_score": None, "test_interval": None}
    if task is not Task.BINARY or has_auc(truth):
        found["test_score"] = score(task, logits, truth)
        around = interval(task, found["test_score"], logits, truth)
        found["test_interval"] = around and list(around)  # as it is read back from JSON
    found |= _constant(task, truth, shares.cpu())
    if task is Task.BINARY:
        found["test_accuracy"] = accuracy(task, logits, truth)
    if task in (Task.MULTICLASS, Task.BINARY):
        found |= class_report(decide(task, logits), truth, max(2, logits.shape[1]))
    return {**found, "warnings": [*_warnings(found, len(truth)), *_untaught(task, truth, shares.cpu())]}


def _constant(task: Task, truth: Tensor, shares: Tensor) -> dict[str, Any]:
    """The scores of whoever always says the same."""
    if task is Task.REGRESSION:
        return {"baseline_score": 0.0}
    if task is Task.MULTILABEL:
        return {"baseline_score": accuracy(task, (shares - 0.5).expand_as(truth), truth)}
    guess = int(shares.argmax()) if task is Task.MULTICLASS else int(shares[0] > 0.5)
    right = (truth.flatten() == guess).double().mean().item()
    if task is Task.MULTICLASS:
        return {"baseline_score": right, "baseline_class": guess}
    return {"baseline_score": 0.5, "baseline_accuracy": right, "baseline_class": guess}


def _warnings(found: dict[str, Any], rows: int) -> list[str]:
    value, around, name = found["test_score"], found["test_interval"], found["metric"]
    if value is None:
        return [f"The {rows} test rows are all of one class, so AUC is undefined there; test on rows of both classes."]
    if around is not None and around[0] <= found["baseline_score"]:
        low, high, constant = (told(name, one) for one in (*around, found["baseline_score"]))
        better = "clearly better" if value > found["baseline_score"] else "better"
        return [
            f"The model is not {better} than a constant guess: test {name} {told(name, value)} (95 % interval {low} to "
            f"{high}), constant guess {constant}. Train it longer, test it on more rows, or check labels and ids."
        ]
    return []


def _untaught(task: Task, truth: Tensor, shares: Tensor) -> list[str]:
    """Classes that test rows have and no training row: a model cannot know them."""
    if task is not Task.MULTICLASS:
        return []
    rows = torch.bincount(truth, minlength=len(shares))
    missing = ((shares == 0) & (rows > 0)).nonzero().flatten().tolist()
    if not missing:
        return []
    return [
        f"{int(rows[missing].sum())} test rows have classes that no training row has (number "
        f"{', '.join(map(str, missing))}): the model cannot know them. Split the rows differently."
    ]


def told(name: str, value: float) -> str:
    """A score in words: per cent for accuracy, a plain number for AUC and R2."""
    return f"{100 * value:.1f} %" if name == "accuracy" else f"{value:.3f}"


def interval(task: Task, value: float, logits: Tensor, truth: Tensor) -> Interval | None:
    """The 95 % interval of a score over other rows of the same kind; None where there is no way to tell."""
    if not math.isfinite(value):
        return None
    if task is Task.MULTICLASS:
        return share_interval(round(value * len(truth)), len(truth))
    if task is Task.BINARY:
        yes = int((truth > 0.5).sum())
        return auc_interval(value, yes, len(truth) - yes)
    if task is Task.MULTILABEL:
        return _around(value, ((logits > 0) == (truth > 0.5)).double().mean(dim=1))
    y, p = truth.double(), logits.double()
    off, spread = (y - p).square().sum(dim=1), (y - y.mean(dim=0)).square().sum(dim=1)  # (B,) each
    return _around(value, (off - (1 - value) * spread) / spread.mean().clamp(min=1e-300))


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


def _around(value: float, parts: Tensor) -> Interval | None:
    """A normal interval; `parts` (B,) is what each row contributes to the mean. None for a single row."""
    if len(parts) < 2:
        return None
    error = Z * float(parts.std()) / math.sqrt(len(parts))
    return value - error, value + error


def shares_of(task: Task, outputs: int, truth: Tensor) -> Tensor:
    """(K,) how often each class or label is a yes among plain labels."""
    if task is Task.MULTICLASS:
        return torch.bincount(truth.to(torch.int64), minlength=outputs).double() / max(1, len(truth))
    return truth.double().mean(dim=0)
