"""Columns of parties that are larger than memory: they stay in their files, and rows are read when they are needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from colonnade.models.scaling import apply_scaling


@dataclass(frozen=True)
class ColumnsOnDisk:
    """What a cohort has in place of a tensor (P, N, ...): rows of it are the rows that such a tensor would have."""

    parts: tuple[Tensor, ...] = field(repr=False)  # by party (N, ...), mapped
    device: torch.device  # where rows are put
    dtype: torch.dtype
    scaling: Mapping[str, Tensor] = field(default_factory=dict, repr=False)  # shift and scale (P, ...), if any
    held: Tensor | None = field(default=None, repr=False)  # (P, N) which rows they hold; None: all

    @property
    def shape(self) -> torch.Size:
        """(P, N, ...)."""
        return torch.Size((len(self.parts), *self.parts[0].shape))

    def is_floating_point(self) -> bool:
        """As a tensor says it."""
        return self.dtype.is_floating_point

    def rows(self, rows: Tensor) -> Tensor:
        """(P, B, ...) of rows (B,), or of rows (P, B) of each party's own."""
        each = rows.expand(len(self.parts), -1)
        found = torch.stack(
            [part.index_select(0, mine.to(part.device)) for part, mine in zip(self.parts, each, strict=True)]
        )
        found = found.to(self.device, self.dtype)
        if self.scaling:
            found = apply_scaling(found, self.scaling["shift"], self.scaling["scale"])
        if self.held is not None:
            found[~self.held.gather(1, each.to(self.device))] = 0
        return found

    def pick(self, index: Sequence[int]) -> ColumnsOnDisk:
        """Those of some of the parties."""
        chosen = list(index)
        return replace(
            self,
            parts=tuple(self.parts[place] for place in chosen),
            scaling={name: value[chosen] for name, value in self.scaling.items()},
            held=None if self.held is None else self.held[chosen],
        )

    def blank(self) -> ColumnsOnDisk:
        """Zeros in place of all numbers, which take no room."""
        parts = tuple(torch.zeros((), dtype=part.dtype).expand(part.shape) for part in self.parts)
        return replace(self, parts=parts, scaling={})
