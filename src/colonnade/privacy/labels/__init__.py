"""What training may see of the labels. Plain labels now; label mechanisms take their place here."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from colonnade.federation import Task


class Labels(Protocol):
    """The label holder's labels, as the methods may use them."""

    @property
    def task(self) -> Task:
        """What kind of labels."""
        ...

    @property
    def outputs(self) -> int:
        """Width of a target row."""
        ...

    def targets(self, rows: Tensor, logits: Tensor) -> Tensor:
        """Targets (B, K) for some rows; a mechanism may use the current logits as a prior."""
        ...

    def state(self, dtype: torch.dtype) -> dict[str, Tensor]:
        """What prediction needs of the labels' scale; empty for classes."""
        ...

    def compact(self, rows: Tensor) -> Tensor:
        """Targets of some rows in the smallest form that can travel."""
        ...
