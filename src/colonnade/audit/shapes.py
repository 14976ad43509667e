"""The arrays of one upload as one vector, and back; and the same arrays, smaller, for games of which there are many."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from colonnade.errors import ConfigError
from colonnade.privacy.sealed import Array

Shape = Mapping[str, Sequence[int]] | Sequence[int]


@dataclass(frozen=True)
class Layout:
    """Named arrays of one party's upload, and the same cells as one vector of length D."""

    shapes: tuple[tuple[str, tuple[int, ...]], ...]
    dtype: torch.dtype = torch.float32  # in which the run computes uploads

    @classmethod
    def of(cls, shape: Shape, dtype: torch.dtype = torch.float32) -> Layout:
        """From shapes by name, or from one shape (the array is then called h)."""
        named = shape if isinstance(shape, Mapping) else {"h": shape}
        layout = cls(tuple((name, tuple(int(n) for n in sizes)) for name, sizes in named.items()), dtype)
        if layout.cells < 2:
            raise ConfigError(f"the game needs an upload of at least 2 cells; got {dict(layout.shapes)}")
        return layout

    @classmethod
    def agreed(cls, arrays: Mapping[str, Array], rows: int, dtype: torch.dtype) -> Layout:
        """As a run agreed on them, about so many rows."""
        return cls(tuple((name, array.shape(rows)) for name, array in arrays.items()), dtype)

    @property
    def cells(self) -> int:
        """How many numbers one party uploads."""
        return sum(math.prod(sizes) for _, sizes in self.shapes)

    @property
    def rows(self) -> int:
        """How many rows an upload is about; 1, where no array has any."""
        return max((sizes[0] for _, sizes in self.shapes if len(sizes) > 1), default=1)

    def __str__(self) -> str:
        each = ", ".join(f"{name} {' x '.join(map(str, sizes))}" for name, sizes in self.shapes)
        return f"{each} ({str(self.dtype).removeprefix('torch.')})"

    def split(self, flat: Tensor) -> dict[str, Tensor]:
        """(P, D) -> named arrays (P, ...), in the run's numbers."""
        parts = flat.to(self.dtype).split([math.prod(sizes) for _, sizes in self.shapes], dim=1)
        return {name: part.reshape(len(flat), *sizes) for (name, sizes), part in zip(self.shapes, parts, strict=True)}

    def join(self, named: Mapping[str, Tensor]) -> Tensor:
        """The inverse, in float64."""
        return torch.cat([named[name].flatten(1).double() for name, _ in self.shapes], dim=1)

    def tables(self, flat: Tensor) -> list[Tensor]:
        """(P, D) -> one (P, rows, width) for each array; an array without rows is a single one."""
        parts = flat.split([math.prod(sizes) for _, sizes in self.shapes], dim=1)
        sized = [(sizes[0] if len(sizes) > 1 else 1) for _, sizes in self.shapes]
        return [part.reshape(len(flat), rows, -1) for part, rows in zip(parts, sized, strict=True)]

    def smaller(self, rows: int, width: int | None = None) -> Layout:
        """The same arrays about fewer rows, and no wider than `width`."""

        def cut(sizes: tuple[int, ...]) -> tuple[int, ...]:
            own = sizes[-1] if width is None else min(sizes[-1], width)
            return (min(sizes[0], rows), *sizes[1:-1], own) if len(sizes) > 1 else (own,)

        smaller = Layout(tuple((name, cut(sizes)) for name, sizes in self.shapes), self.dtype)
        return smaller if smaller.cells > 1 else self
