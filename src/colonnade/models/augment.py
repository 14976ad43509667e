"""Random changes of pictures in training: mirrored, or moved by a few pixels, anew in each round.

A party changes its own pictures, of the rows of a round, before it computes its upload, and takes its local steps on
the same ones; so a reply is about what was uploaded. Draws are addressed by seed, party and round: engines agree, and a
resumed run repeats them. Evaluation and prediction see pictures as they are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from colonnade.config import Settings
from colonnade.errors import ConfigError
from colonnade.gpu import to_device
from colonnade.randomness import stream

PICTURE = 3  # dimensions of one: channels, height, width


class Augment(Settings):
    """How pictures are changed in training; by default not at all."""

    flip: bool = Field(False, description="in training, mirror about every second picture, drawn anew in each round")
    shift: int = Field(
        0, ge=0, description="in training, move pictures by up to so many pixels, drawn anew in each round"
    )

    @property
    def active(self) -> bool:
        """Whether anything is changed."""
        return self.flip or self.shift > 0

    def check(self, party: str, shape: Sequence[int]) -> None:
        """Refuse columns of one row's `shape` that are no pictures, or smaller than a shift.

        Raises:
            ConfigError: naming the party.
        """
        if not self.active:
            return
        if len(shape) != PICTURE:
            raise ConfigError(
                f"training.augment changes pictures, with columns of shape (channels, height, width); those of party "
                f"{party!r} are {tuple(shape)}: leave augment out"
            )
        if self.shift >= min(shape[1:]):
            raise ConfigError(
                f"training.augment.shift = {self.shift} moves the pictures of party {party!r}, {shape[1]} x {shape[2]} "
                "pixels, out of sight; it needs to be smaller than both"
            )

    def changed(self, x: Tensor, parties: Sequence[str], seed: int, round_number: int) -> Tensor:
        """The pictures (P, B, C, H, W) of a round as they train; what a shift uncovers is zero."""
        count, (height, width) = x.shape[1], x.shape[-2:]
        drawn = to_device(torch.stack([self._draws(count, seed, party, round_number) for party in parties]), x.device)
        mirrored, down, right = (drawn[:, :, place, None].long() for place in range(3))
        across = torch.arange(width, device=x.device)
        across = torch.where(mirrored.bool(), width - 1 - across, across) + right  # (P, B, W): where a pixel comes from
        along = torch.arange(height, device=x.device) + down
        x = _taken(x, along, -2)
        return _taken(x, across, -1)

    def _draws(self, count: int, seed: int, party: str, round_number: int) -> Tensor:
        """Mirrored or not, and moves down and right, of each picture: (B, 3)."""
        source = stream(seed, "augment", party, round_number)
        mirrored = source.integers(0, 2, count) if self.flip else np.zeros(count, dtype=np.int64)
        moves = source.integers(-self.shift, self.shift + 1, (count, 2))
        return torch.from_numpy(np.concatenate([mirrored[:, None], moves], axis=1).astype(np.int16))


def _taken(x: Tensor, places: Tensor, dim: int) -> Tensor:
    """The rows or columns of pixels at `places` (P, B, n), of every picture its own; zero where there are none."""
    size = x.shape[dim]
    inside = (places >= 0) & (places < size)
    shape = (*places.shape[:2], 1, -1, 1) if dim == -2 else (*places.shape[:2], 1, 1, -1)
    taken = x.gather(x.dim() + dim, places.clamp(0, size - 1).view(shape).expand(x.shape))
    return taken.masked_fill(~inside.view(shape), 0)
