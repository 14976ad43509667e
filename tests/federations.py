"""Small federations that the tests share: random ones, a trivial one, and one with several architectures."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from colonnade.data.sets import load_set
from colonnade.federation import Federation, RowSplit
from colonnade.testing.federations import normed_encoder, small, trivial

__all__ = ["digits", "images", "mixed_encoder", "normed_encoder", "small", "trivial"]


def images(parties: int = 2, rows: int = 12, size: int = 8, seed: int = 0) -> Federation:
    """Tiny colour images of three classes, one per party."""
    rng = np.random.default_rng(seed)
    columns = {f"camera_{k}": rng.normal(size=(rows, 3, size, size)).astype(np.float32) for k in range(parties)}
    half = torch.arange(rows)
    split = RowSplit(half[: rows * 2 // 3], half[rows * 2 // 3 :], half[:0])
    return Federation.from_arrays(columns, np.arange(rows) % 3, task="multiclass", split=split, name="images")


def digits(parties: int = 4) -> Federation:
    """The bundled digits."""
    return load_set("digits", parties=parties)


def mixed_encoder(party: str, shape: tuple[int, ...]) -> nn.Module:
    """Two architectures of equal shapes, and so two groups: even parties Tanh, odd parties ReLU."""
    bend = nn.ReLU() if party[-1] in "13579" else nn.Tanh()
    return nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(shape)), 6), bend, nn.Linear(6, 4))
