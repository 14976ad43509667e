"""What yes/no tasks and tasks with several labels share: outputs are logits, each on its own.

loss = log(1 + exp(o)) - y o        mean = sigmoid(o)
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def losses(outputs: Tensor, targets: Tensor) -> Tensor:
    """The logistic loss of every cell."""
    return F.binary_cross_entropy_with_logits(outputs, targets.expand_as(outputs), reduction="none")


def spread(outputs: Tensor) -> Tensor:
    """p (1 - p)."""
    p = outputs.sigmoid()
    return p * (1 - p)


def notes(total: Tensor, targets: Tensor) -> dict[str, Tensor]:
    """The share of labels that agree with their targets."""
    return {"batch_accuracy": ((total > 0) == (targets > 0.5)).double().mean()}


def pseudo(outputs: Tensor) -> tuple[Tensor, Tensor]:
    """The likelier answer to each label, and the probability of the least sure of them."""
    p = outputs.sigmoid()
    return (p > 0.5).to(p.dtype), torch.maximum(p, 1 - p).min(dim=1).values


def right(outputs: Tensor, truth: Tensor) -> Tensor:
    """Which labels (B, K) are decided right."""
    return (outputs > 0) == (truth > 0.5)


def log_odds(shares: Tensor) -> Tensor:
    """Outputs whose sigmoid are these shares."""
    p = shares.double().clamp(1e-12, 1 - 1e-12)
    return p.log() - (1 - p).log()
