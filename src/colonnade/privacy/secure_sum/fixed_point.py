"""Floats as whole numbers modulo 2^64, so that adding is exact and masks cancel to the last bit.

A `Grid` follows from three numbers that all parties know: how many they are, the largest absolute value, and the
standard deviation of one noise share. Its step g is a power of two, so that scaling is exact.

    without noise   g is the finest step with  M x largest <= 2^44 steps
    with noise      g is between deviation/2^21 and deviation/2^20

Values are cut towards zero: an array that was clipped to norm C has at most norm C on the grid, whatever its size.
Noise is rounded *on its own*. So the data only shift a fixed law of whole numbers, and the holes between
floating-point numbers near x + n cannot tell x (Mironov 2012). What the rounding costs: `noise.rounding_distance`.

A sum has at most 2^52 steps. So it cannot wrap, it is exact as a float64, and a sum whose masks did not cancel,
which is uniform modulo 2^64, looks valid with probability below 2^-11 per cell (2^-19 without noise).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from colonnade.errors import ConfigError, WireError

Cells: TypeAlias = NDArray[np.uint64]
Floats: TypeAlias = NDArray[np.float64]

PLAIN_BITS = 44  # of a sum without noise: far finer than float32, and an open sum is told from a masked one
NOISE_BITS = 20  # steps per deviation: far below the noise, far above the 2^-52 of the generator's own grid
EXACT_BITS = 52  # of any sum: exact as a float64
TAIL = 16.0  # deviations; a Gaussian is further out with probability 1e-57
_SLACK = 1 + 2.0**-40  # scaling to norm C in floating point may end a hair above C; it is cut back to C
_SMALLEST, _LARGEST = 2.0**-900, 2.0**900  # so that neither a step nor a product leaves the normal numbers


@dataclass(frozen=True)
class Grid:
    """The whole numbers that a run adds.

    Args:
        parties: how many arrays are added at most.
        largest: absolute value that no number exceeds; the clipping norm, where there is one.
        deviation: standard deviation of one party's noise share; 0 without noise.
    """

    parties: int
    largest: float
    deviation: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what leaves no room."""
        if self.parties < 1:
            raise ConfigError(f"a grid is for at least 1 party; what came is {self.parties}")
        if not _SMALLEST < self.largest < _LARGEST:
            raise ConfigError(f"the largest value of a secure sum is a positive number; what came is {self.largest}")
        if self.deviation != 0 and not _SMALLEST < self.deviation < _LARGEST:
            raise ConfigError(f"the noise of a secure sum has a deviation of 0 or more; what came is {self.deviation}")
        if self.most > 2**EXACT_BITS:
            raise ConfigError(
                f"noise of deviation {self.deviation:g} is too small beside {self.parties} values of up to "
                f"{self.largest:g}: their sum has more than {EXACT_BITS} bits; use more noise, a smaller norm or none"
            )

    @property
    def step(self) -> float:
        """The distance g of two grid points, a power of two."""
        if self.deviation == 0:
            return math.ldexp(1.0, math.frexp(self.parties * self.largest)[1] - PLAIN_BITS)
        return math.ldexp(1.0, math.frexp(self.deviation)[1] - 1 - NOISE_BITS)

    @property
    def most(self) -> int:
        """The largest absolute value of a sum, in steps."""
        noise = math.ceil(TAIL * self.deviation / self.step)
        return self.parties * (self._largest + noise)

    @property
    def _largest(self) -> int:
        return math.floor(self.largest / self.step)

    @property
    def error(self) -> float:
        """How far a decoded sum may be from the sum of what was encoded: one step per value, half per noise."""
        return self.parties * self.step * (1.0 if self.deviation == 0 else 1.5)

    def encode(self, values: NDArray[Any], noise: Floats | None = None) -> Cells:
        """One party's values, and its noise share, as whole numbers modulo 2^64.

        Args:
            values: finite floats, at most `largest` in absolute value.
            noise: of the same shape; must be there exactly if the grid is made for noise.

        Raises:
            ConfigError: out of range (the message does not say by how much: it may travel), or noise is
                missing or not expected.
        """
        if (noise is None) != (self.deviation == 0):
            given = "none" if noise is None else "some"
            raise ConfigError(f"this secure sum is for noise of deviation {self.deviation:g}; {given} was given")
        cut = np.trunc(_within(values, self.largest * _SLACK, "a value") / self.step)
        cells = np.clip(cut, -self._largest, self._largest).astype(np.int64)
        if noise is not None:
            if noise.shape != cells.shape:
                raise ConfigError(f"noise has shape {noise.shape}; needed that of the values, {cells.shape}")
            cells += np.rint(_within(noise, TAIL * self.deviation, "noise") / self.step).astype(np.int64)
        return np.asarray(cells, order="C").view(np.uint64)

    def decode(self, total: Cells) -> Floats:
        """The sum, from the sum of the encoded arrays.

        Raises:
            WireError: no such sum is possible, so masks are left in it.
        """
        steps = np.asarray(total, order="C").view(np.int64)
        if np.any((steps > self.most) | (steps < -self.most)):
            raise WireError(
                "the masks of a secure sum do not cancel: a party used another key, another roster or another "
                "array; nothing was opened"
            )
        decoded: Floats = np.asarray(steps * np.float64(self.step))
        return decoded


def to_wire(cells: Cells) -> Tensor:
    """Cells as an int64 tensor with the same bits: the codec knows no unsigned 64-bit numbers."""
    return torch.from_numpy(np.asarray(cells, order="C").view(np.int64))


def from_wire(array: Tensor) -> Cells:
    """The inverse of `to_wire`."""
    if array.dtype != torch.int64:
        raise WireError(f"a masked array travels as torch.int64; this one is {array.dtype}")
    return array.detach().cpu().contiguous().numpy().view(np.uint64)


def _within(values: NDArray[Any], bound: float, what: str) -> Floats:
    floats: Floats = np.asarray(values, dtype=np.float64)
    if not np.all(np.abs(floats) <= bound):  # a NaN is not
        raise ConfigError(f"{what} of a secure sum is not finite or above {bound:g}; clip before the sum")
    return floats
