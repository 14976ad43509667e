"""What yes/no tasks and tasks with several labels share: outputs are logits, each on its own.

loss = log(1 + exp(o)) - y o        mean = sigmoid(o)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from colonnade.tasks.base import Family, Task
from colonnade.tasks.prox import prox_logistic


@dataclass(frozen=True)
class Flags(Task):
    """Truth is (N, K) zeros and ones; each output is the logit of a yes."""

    loss_metric: ClassVar[str] = "log_loss"
    family: ClassVar[Family] = "bernoulli"
    label_noise: ClassVar[Literal["classes", "flags"] | None] = "flags"

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The logistic loss of each label."""
        return losses(outputs, targets)

    def mean(self, outputs: Tensor) -> Tensor:
        """The probability of each yes."""
        return outputs.sigmoid()

    def spread(self, outputs: Tensor) -> Tensor:
        """p (1 - p)."""
        return spread(outputs)

    def curvature_of(self, gap: Tensor) -> Tensor:
        """p (1 - p): the gap is 1 - p or - p."""
        return gap.abs() * (1 - gap.abs())

    def prox(self, total: Tensor, dual: Tensor, targets: Tensor, rho: float | Tensor) -> Tensor:
        """Newton's method in a bracket, for each label."""
        return prox_logistic(total, dual, targets, rho)

    def compact(self, values: Tensor) -> Tensor:
        """A byte per label."""
        return values.to(torch.uint8)

    def notes(self, total: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """The share of labels that agree with their targets."""
        return {"batch_accuracy": ((total > 0) == (targets > 0.5)).double().mean()}

    def pseudo(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """The likelier answer to each label, and the probability of the least sure of them."""
        p = outputs.sigmoid()
        return (p > 0.5).to(p.dtype), torch.maximum(p, 1 - p).min(dim=1).values

    def codes(self, outputs: Tensor) -> Tensor:
        """(B, K): 1 where a yes is likelier."""
        return (outputs > 0).to(torch.int64)

    def constant(self, shares: Tensor) -> Tensor:
        """The log odds."""
        return log_odds(shares)


def losses(outputs: Tensor, targets: Tensor) -> Tensor:
    """The logistic loss of every cell."""
    return F.binary_cross_entropy_with_logits(outputs, targets.expand_as(outputs), reduction="none")


def spread(outputs: Tensor) -> Tensor:
    """p (1 - p)."""
    p = outputs.sigmoid()
    return p * (1 - p)


def right(outputs: Tensor, truth: Tensor) -> Tensor:
    """Which labels (B, K) are decided right."""
    return (outputs > 0) == (truth > 0.5)


def log_odds(shares: Tensor) -> Tensor:
    """Outputs whose sigmoid are these shares."""
    p = shares.double().clamp(1e-12, 1 - 1e-12)
    return p.log() - (1 - p).log()
