"""Scores: one number per task for choosing a model, and the details for a report."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from colonnade.errors import DataError
from colonnade.federation import Task

# What `score` is called, per task; always higher is better.
SCORE_NAME = {
    Task.MULTICLASS: "accuracy",
    Task.BINARY: "AUC",
    Task.MULTILABEL: "accuracy",
    Task.REGRESSION: "R2",
}
FORMER_NAME = {**SCORE_NAME, Task.BINARY: "accuracy"}  # in runs of version 0.1, which do not name it
INSTEAD = "negative log loss"  # chooses the round of a yes/no task where AUC is undefined


def score(task: Task, logits: Tensor, truth: Tensor) -> float:
    """The number a run is judged by: accuracy (of all labels for multi-label tasks), AUC for yes/no, R2 for numbers.

    Raises:
        DataError: the task is yes/no and the rows are all of one class, so that there is no AUC.
    """
    if task is Task.REGRESSION:
        y, p = truth.double(), logits.double()
        spread = (y - y.mean(dim=0)).square().sum()
        return float(1 - (y - p).square().sum() / spread.clamp(min=1e-300))
    if task is not Task.BINARY:
        return accuracy(task, logits, truth)
    if not has_auc(truth):
        raise DataError(f"the {len(truth)} rows are all of one class, so AUC is undefined; choose rows with both")
    return auc(logits, truth)


def accuracy(task: Task, logits: Tensor, truth: Tensor) -> float:
    """The share of right decisions: of the rows, for multi-label tasks of all labels."""
    if task is Task.MULTICLASS:
        return (logits.argmax(dim=1) == truth).double().mean().item()
    return ((logits > 0) == (truth > 0.5)).double().mean().item()


def has_auc(yes: Tensor) -> bool:
    """Whether rows differ in how much they are a yes: if they do not, every model has the same AUC."""
    return bool(len(yes)) and bool(yes.min() < yes.max())


def auc(scores: Tensor, yes: Tensor) -> float:
    """The chance that a yes gets a higher score than a no, ties counting half (area under the ROC curve).

    Args:
        scores: one per row.
        yes: one per row, 0 or 1; or between them: a row is then a yes with this weight and a no with the rest.
    """
    s, w = (values.detach().cpu().double().flatten() for values in (scores, yes))  # on the CPU sums have one order
    if bool(s.isnan().any()):
        return math.nan
    _, place = s.unique(return_inverse=True)  # ascending; equal scores share a place
    ayes = torch.zeros(int(place.max()) + 1, dtype=torch.float64).index_add_(0, place, w)
    noes = torch.zeros_like(ayes).index_add_(0, place, 1 - w)
    below = noes.cumsum(0) - noes
    return float((ayes * (below + noes / 2)).sum() / (ayes.sum() * noes.sum()))


@dataclass(frozen=True)
class Judge:
    """What gives the validation score, by which a round is kept and training stops early.

    Keep and stop go down to the parties, so where labels are protected, `believed` holds what their noisy form lets
    one believe of each row, and nothing here knows a plain label.
    """

    task: Task
    name: str  # of the score: that of the task, or what stands in for it
    wanted: Tensor = field(repr=False)  # (B,) classes or (B, K) numbers; beliefs (B, K) where `noisy`
    noisy: bool = False

    @classmethod
    def of(cls, task: Task, wanted: Tensor, noisy: bool = False) -> Judge:
        """By the task's score; by the log loss where the rows of a yes/no task cannot tell models apart by AUC."""
        undefined = task is Task.BINARY and bool(len(wanted)) and not has_auc(wanted)
        return cls(task, INSTEAD if undefined else SCORE_NAME[task], wanted, noisy)

    def __call__(self, logits: Tensor) -> float:
        """The validation score of logits (B, K)."""
        if self.name == INSTEAD:
            wanted = self.wanted.to(logits.device, torch.float64).view_as(logits)
            return -F.binary_cross_entropy_with_logits(logits.double(), wanted).item()
        judged = believed_score if self.noisy else score
        return judged(self.task, logits, self.wanted)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a user must know about the validation score; nothing where it is what the task is judged by."""
        if self.name != INSTEAD:
            return ()
        return (
            f"The {len(self.wanted)} validation rows are all of one class, so AUC is undefined there: the kept round "
            "was chosen by the log loss. Give the validation rows both classes.",
        )


def believed_score(task: Task, logits: Tensor, beliefs: Tensor) -> float:
    """The score by noisy labels: what is believed (B, K) of the predictions.

    For classes and several labels: the mean belief in what is predicted. For yes/no: the AUC in which a row is a yes
    with the weight of its belief and a no with the rest. Expected over the noise, both rise linearly with the true
    score, with a smaller slope: the best round by one is the best by the other. For AUC, with beliefs of mean a on
    no-rows and b on yes-rows: pairs of two no-rows or two yes-rows add a constant, all others add
    n1 n0 (b (1 - a) AUC + a (1 - b) (1 - AUC)), whose slope is n1 n0 (b - a); the divisor is the same for all rounds.
    """
    if task is Task.BINARY:
        return auc(logits, beliefs)
    if task is Task.MULTICLASS:
        return beliefs.gather(1, logits.argmax(dim=1, keepdim=True).to(beliefs.device)).double().mean().item()
    yes = (logits > 0).to(beliefs.device).view_as(beliefs)
    return torch.where(yes, beliefs, 1 - beliefs).double().mean().item()


def decide(task: Task, logits: Tensor) -> Tensor:
    """Predictions from logits: class numbers, zeros and ones, or the numbers themselves."""
    if task is Task.MULTICLASS:
        return logits.argmax(dim=1)
    return logits if task is Task.REGRESSION else (logits > 0).to(torch.int64)


def probabilities(task: Task, logits: Tensor) -> Tensor:
    """Class or label probabilities; for regression the predictions."""
    if task is Task.MULTICLASS:
        return logits.softmax(dim=1)
    return logits if task is Task.REGRESSION else torch.sigmoid(logits)


def class_report(decided: Tensor, truth: Tensor, classes: int) -> dict[str, Any]:
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
