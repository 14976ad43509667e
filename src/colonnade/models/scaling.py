"""Column scaling: each party puts its own columns on a common scale before its network sees them.

Step sizes that suit columns of size one fail on raw ones (salaries beside ages, pixels up to
255). Statistics come from the party's training rows, stay with its part of the model, and never
travel. Tables are scaled column by column; images keep one mean and one deviation per party,
since a pixel that is almost always black says little about the scale of the others.
"""

from __future__ import annotations

import torch
from torch import Tensor

from colonnade.mapped import is_mapped

LIMIT = 10.0  # deviations: a value further out than this is an outlier, not information
BLOCK = 1 << 15  # rows of mapped columns that are read at once
CONSTANT = 1e-6  # deviation relative to the size of the values under which a column counts as constant


def statistics(columns: Tensor, train: Tensor) -> tuple[Tensor, Tensor]:
    """(shift, scale) for `(columns - shift) * scale`, shaped like one row; constant columns become zero."""
    shift, spread, size = (_in_blocks if is_mapped(columns) else _at_once)(columns, train)
    scale = torch.where(spread > CONSTANT * size, 1 / spread.clamp(min=1e-30), 0.0)
    shape, dtype = columns.shape[1:], columns.dtype if columns.is_floating_point() else torch.float32
    return shift.expand(shape).to(dtype).contiguous(), scale.expand(shape).to(dtype).contiguous()


def _at_once(columns: Tensor, train: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, deviation and largest size of the training rows, in float64."""
    rows = columns[train].double()
    over = _over(columns)
    return rows.mean(dim=over), rows.std(dim=over, unbiased=False), rows.abs().amax(dim=over).clamp(min=1e-30)


def _in_blocks(columns: Tensor, train: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The same, of columns that do not fit into memory."""
    over, parts = _over(columns), train.split(BLOCK)
    count = len(train) * (1 if columns.dim() == 2 else columns[0].numel())
    mean = torch.stack([columns[part].double().sum(dim=over) for part in parts]).sum(dim=0) / count
    squares = torch.stack([(columns[part].double() - mean).square().sum(dim=over) for part in parts]).sum(dim=0)
    size = torch.stack([columns[part].double().abs().amax(dim=over) for part in parts]).amax(dim=0)
    return mean, (squares / count).sqrt(), size.clamp(min=1e-30)


def _over(columns: Tensor) -> tuple[int, ...]:
    """Tables are scaled column by column, images as a whole."""
    return (0,) if columns.dim() == 2 else tuple(range(columns.dim()))


def apply_scaling(columns: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    """Columns (P, N, ...) with per-party shift and scale (P, ...)."""
    return ((columns - shift.unsqueeze(1)) * scale.unsqueeze(1)).clamp_(-LIMIT, LIMIT)
