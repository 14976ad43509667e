"""Schema: what all sides of a run agree on before the first message."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from colonnade.models.augment import Augment
from colonnade.models.computing import Computing
from colonnade.models.heads import HeadSettings
from colonnade.tasks import Task


@dataclass(frozen=True)
class Group:
    """Parties whose networks and columns have one shape; the same grouping in every engine."""

    parties: tuple[str, ...]
    width: int  # of an embedding
    parameters: tuple[int, ...] = ()  # how many numbers each learning tensor of a network holds, in its order
    columns: int = 0  # numbers in a row of a party's columns


@dataclass(frozen=True)
class Schema:
    """The frame of a run: who, how wide, what task, which numbers."""

    parties: tuple[str, ...]  # federation order
    groups: tuple[Group, ...]
    task: Task
    rows: int
    train: Tensor = field(repr=False)  # training row numbers
    head: HeadSettings
    seed: int
    dtype: torch.dtype
    device: torch.device
    held: Tensor | None = field(default=None, repr=False)  # (N, M) which party holds which row; None: all hold all
    labelled: Tensor | None = field(default=None, repr=False)  # (N,) whose label is known; None: of all rows
    computing: Computing = field(default_factory=Computing)
    numbers: str = "full"  # in which uploads and replies travel (`wire/numbers.py`)
    augment: Augment = field(default_factory=Augment)  # how pictures are changed in training

    @property
    def outputs(self) -> int:
        """Width of a row of outputs."""
        return self.task.outputs

    def position(self, party: str) -> tuple[int, int]:
        """(group, place in the group) of a party."""
        for g, group in enumerate(self.groups):
            if party in group.parties:
                return g, group.parties.index(party)
        raise KeyError(party)

    def zeros(self, *shape: int) -> Tensor:
        """Zeros in the run's dtype, on its device."""
        return torch.zeros(shape, dtype=self.dtype, device=self.device)
