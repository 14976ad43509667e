"""Random 64-bit words into normal numbers, by Box and Muller.

    u1 = (52 random bits + 1/2) / 2^52, never 0 nor 1;   u2 = 1 + 52 random bits / 2^52
    r = sqrt(-2 log u1);   r cos(2 pi u2), r sin(2 pi u2)

No number is further out than 8.6 deviations; a true one is with probability 1e-17, which is what a cell adds to delta
at most, far below any delta in use.

All of it is float64. In float32 it would be faster and wrong: 24 random bits and 24 more reach only some of the pairs
that are near each other, and which ones tells what was added (`grid.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

FRACTION, ONE = 2**52 - 1, 1023 << 52  # of a float64: the bits of its fraction; the others, of numbers from 1 to 2
SPARE = 2  # words behind the last one, which a cipher may ask for


def normals_of(words: Tensor) -> Tensor:
    """(P, 2 n) random 64-bit words as normal numbers in float64, all at once where they are; the formula of `turn`."""
    numbers = words.bitwise_and(FRACTION).bitwise_or_(ONE).view(torch.float64)
    radius, angle = numbers.chunk(2, dim=1)
    radius = radius.sub(1 - 2.0**-53).log_().mul_(-2).sqrt_()
    angle = angle.mul(2 * math.pi)
    return torch.cat([angle.cos().mul_(radius), angle.sin().mul_(radius)], dim=1)


def turn(words: np.ndarray, deviation: float) -> None:
    """Random words into as many normal numbers, in place: the first half gives radii, the second angles."""
    # 52 random bits as the fraction of a float64 with exponent 0: the cheapest way to equidistant numbers.
    np.bitwise_and(words, FRACTION, out=words)
    np.bitwise_or(words, ONE, out=words)
    radius, angle = np.split(words.view(np.float64), 2)
    _torch(torch.log, np.subtract(radius, 1 - 2.0**-53, out=radius))
    np.sqrt(np.multiply(radius, -2, out=radius), out=radius)
    np.multiply(radius, deviation, out=radius)  # not before the root: the square of a deviation underflows
    np.multiply(angle, 2 * math.pi, out=angle)  # a turn more makes no difference
    cosine = torch.cos(torch.from_numpy(angle)).numpy()
    np.multiply(_torch(torch.sin, angle), radius, out=angle)
    np.multiply(cosine, radius, out=radius)


def _torch(function: Callable[..., Tensor], values: np.ndarray) -> np.ndarray:
    """One of torch's functions in place: three times as fast as NumPy's."""
    there = torch.from_numpy(values)
    function(there, out=there)
    return values
