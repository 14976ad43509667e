"""What a party does for each class: how many of its rows are lost without the party, and which way its term pulls."""

from __future__ import annotations

import torch
from torch import Tensor

from colonnade.federation import Task


def class_scores(task: Task, logits: Tensor, truth: Tensor) -> list[float]:
    """Accuracy on the rows of each class; per label for multi-label tasks, R2 per output for regression."""
    if task is Task.MULTICLASS:
        right = (logits.argmax(dim=1) == truth).double()
        return [_mean(right[truth == c]) for c in range(logits.shape[1])]
    if task is Task.BINARY:
        right = ((logits > 0) == (truth > 0.5)).double()[:, 0]
        return [_mean(right[truth[:, 0] == c]) for c in (0, 1)]
    if task is Task.MULTILABEL:
        return [float(share) for share in ((logits > 0) == (truth > 0.5)).double().mean(dim=0)]
    y, p = truth.double(), logits.double()
    left, spread = (y - p).square().sum(dim=0), (y - y.mean(dim=0)).square().sum(dim=0).clamp(min=1e-300)
    return [float(1 - part) for part in left / spread]


def evidence(terms: Tensor, truth: Tensor) -> list[list[float]]:
    """By party and class: how far its term lifts the right class above the mean of all, on that class's rows."""
    lifted = terms - terms.mean(dim=2, keepdim=True)  # (M, B, K)
    found = []
    for c in range(terms.shape[2]):
        rows = lifted[:, truth == c, c]
        found.append(rows.mean(dim=1) if rows.shape[1] else torch.zeros(len(terms), dtype=terms.dtype))
    table: list[list[float]] = torch.stack([column.cpu() for column in found], dim=1).tolist()
    return table


def _mean(values: Tensor) -> float:
    return float(values.mean()) if len(values) else 0.0
