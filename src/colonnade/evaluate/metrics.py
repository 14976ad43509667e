"""Scores: one number per task for choosing a model, and the details for a report."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from colonnade.federation import Task

# What `score` is called, per task; always higher is better.
SCORE_NAME = {
    Task.MULTICLASS: "accuracy",
    Task.BINARY: "accuracy",
    Task.MULTILABEL: "accuracy",
    Task.REGRESSION: "R2",
}


def score(task: Task, logits: Tensor, truth: Tensor) -> float:
    """The number a run is judged by: accuracy (per label for multi-label tasks), or R2 for regression."""
    if task is Task.MULTICLASS:
        return (logits.argmax(dim=1) == truth).double().mean().item()
    if task is Task.REGRESSION:
        y, p = truth.double(), logits.double()
        spread = (y - y.mean(dim=0)).square().sum()
        return float(1 - (y - p).square().sum() / spread.clamp(min=1e-300))
    return ((logits > 0) == (truth > 0.5)).double().mean().item()


def believed_score(task: Task, logits: Tensor, beliefs: Tensor) -> float:
    """The score by noisy labels: what is believed (B, K) of the predictions, on average.

    Linear in the true accuracy, with a smaller slope: the best round by one is the best by the other.
    """
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


def class_report(logits: Tensor, truth: Tensor) -> dict[str, Any]:
    """Confusion matrix (true x predicted), accuracy per class, and its standard deviation."""
    classes = logits.shape[1]
    pairs = truth.to(torch.int64) * classes + logits.argmax(dim=1)
    confusion = torch.bincount(pairs, minlength=classes**2).view(classes, classes)
    rows = confusion.sum(dim=1)
    per_class = (confusion.diagonal() / rows.clamp(min=1)).double()
    return {
        "confusion": confusion.tolist(),
        "class_accuracy": per_class.tolist(),
        "class_accuracy_std": float(per_class[rows > 0].std(unbiased=False)),
    }
