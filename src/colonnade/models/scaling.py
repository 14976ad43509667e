"""Column scaling: each party puts its own columns on a common scale before its network sees them.

Step sizes that suit columns of size one fail on raw ones (salaries beside ages, pixels up to
255). Statistics come from the party's training rows, stay with its part of the model, and never
travel. Tables are scaled column by column; images keep one mean and one deviation per party,
since a pixel that is almost always black says little about the scale of the others.
"""

from __future__ import annotations

import torch
from torch import Tensor

LIMIT = 10.0  # deviations: a value further out than this is an outlier, not information
CONSTANT = 1e-6  # deviation relative to the size of the values under which a column counts as constant


def statistics(columns: Tensor, train: Tensor) -> tuple[Tensor, Tensor]:
    """(shift, scale) for `(columns - shift) * scale`, shaped like one row; constant columns become zero."""
    rows = columns[train].double()
    over = 0 if columns.dim() == 2 else tuple(range(rows.dim()))
    shift = rows.mean(dim=over)
    spread = rows.std(dim=over, unbiased=False)
    size = rows.abs().amax(dim=over).clamp(min=1e-30)
    scale = torch.where(spread > CONSTANT * size, 1 / spread.clamp(min=1e-30), 0.0)
    shape, dtype = columns.shape[1:], columns.dtype if columns.is_floating_point() else torch.float32
    return shift.expand(shape).to(dtype).contiguous(), scale.expand(shape).to(dtype).contiguous()


def apply_scaling(columns: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    """Columns (P, N, ...) with per-party shift and scale (P, ...)."""
    return ((columns - shift.unsqueeze(1)) * scale.unsqueeze(1)).clamp_(-LIMIT, LIMIT)
