"""Which way a party's term pulls the rows of each class."""

from __future__ import annotations

import torch
from torch import Tensor


def evidence(terms: Tensor, truth: Tensor) -> list[list[float]]:
    """By party and class: how far its term lifts the right class above the mean of all, on that class's rows."""
    lifted = terms - terms.mean(dim=2, keepdim=True)  # (M, B, K)
    found = []
    for c in range(terms.shape[2]):
        rows = lifted[:, truth == c, c]
        found.append(rows.mean(dim=1) if rows.shape[1] else torch.zeros(len(terms), dtype=terms.dtype))
    table: list[list[float]] = torch.stack([column.cpu() for column in found], dim=1).tolist()
    return table
