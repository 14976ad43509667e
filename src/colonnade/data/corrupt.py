"""Damage on purpose, to see whether a method notices: a party whose columns are drowned in noise."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from colonnade.errors import ConfigError
from colonnade.federation import Federation
from colonnade.randomness import stream


def add_noise(
    federation: Federation, party: str, std: float, seed: int = 0, *, rows: Tensor | None = None
) -> Federation:
    """The federation with Gaussian noise on one party's columns.

    A row's noise depends on the seed, the party and the row, not on which rows are asked for. The columns
    before splitting (`whole`) are forgotten: they would still be clean.

    Args:
        federation: left as it is.
        party: whose columns.
        std: standard deviation of the noise, in the units of the columns.
        seed: chooses the noise.
        rows: only these rows (for example the test rows); all if None.

    Raises:
        ConfigError: there is no such party, or std is negative or not finite.
    """
    if party not in federation.names:
        raise ConfigError(f"no party called {party!r}; parties: {', '.join(federation.names)}")
    if not (math.isfinite(std) and std >= 0):
        raise ConfigError(f"std = {std}: needed a finite number from 0")

    def noisy(columns: Tensor) -> Tensor:
        chosen = torch.arange(len(columns)) if rows is None else rows
        noise = torch.from_numpy(stream(seed, "column noise", party).normal(0.0, std, tuple(columns.shape)))
        result = columns.clone() if columns.is_floating_point() else columns.to(torch.float32)
        result[chosen] += noise[chosen].to(result.dtype)
        return result

    parties = tuple(replace(p, columns=noisy(p.columns)) if p.name == party else p for p in federation.parties)
    return replace(federation, parties=parties, whole=None)
