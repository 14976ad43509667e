"""Noise on a grid: what leaves is a whole number of steps, so its bits say no more than the noise lets them say.

    y = g (trunc(x / g) + round(n / g)),    x clipped, n ~ N(0, s^2), g a power of two between s/2^21 and s/2^20

Why. Sums of floating-point numbers are not normal in their last bits: which of them x + n can reach depends on x, and
a test of those bits tells x apart from 0 whatever the noise (Mironov 2012). `tests/privacy/test_low_bits.py` does it.

What holds. Let k = trunc(x/g), a vector of whole numbers. Then round(n/g) + k = round((n + g k)/g) but for ties, which
have probability 0. So y is a function of n + g k, the Gaussian mechanism applied to g k; no function of a release costs
anything. Truncation takes every number towards 0, so |g k| <= |x|: the sensitivity, and with it every epsilon, is that
of the Gaussian mechanism. Rounding y to float32 is such a function, too. For a sum of several parties' noise this is
not so simple: `secure_sum/noise.py`.

|x| <= C exactly. The factor of the clipping is computed in float64, u = 2^-53. A sum of c squares, in any order, is
right to a factor 1 +- c u (and less than u^2), its root to half of that; root, division, the product with C and the one
with each number add u each. All together stay below (c/2 + 5) u, and `clip_factors` aims at C (1 - (c + 8) u). Numbers
whose squares underflow or overflow: the first are below g, the second get factor 0.

All of this is exact in float64: scaling by g is, as it is a power of two, and so is the sum, because k has at most 2^52
steps (noise below 2^-31 of the norm is refused) and round(n/g) fewer than 2^26.

What remains approximate: n is Gaussian up to the resolution of float64 and of its generator (`normal.py`; NumPy's in
simulations), about 2^-29 of a step, and not further out than 8.6 deviations. It is rounded before it meets the data,
so this error does not depend on them: they shift a fixed law of whole numbers. Its size is not bounded here.

There is nothing to choose: g follows from the noise, at every party by itself, and no proposal mentions it.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from colonnade.errors import ConfigError

STEPS = 20  # bits: steps per deviation; far below the noise, far above the generator's own resolution
FAINTEST = 2.0**-31  # noise in units of the largest norm, so that no number has more than 2^52 steps
SMALLEST, LARGEST = 1e-30, 1e30  # of clipping norms and noise; their squares are numbers, also in float32's range
_UNIT = 2.0**-53  # relative rounding error of float64


def step_of(deviation: float) -> float:
    """The grid of noise of this deviation: a power of two."""
    return math.ldexp(1.0, math.frexp(deviation)[1] - 1 - STEPS)


def check_scale(what: str, value: float) -> None:
    """Refuse scales at which squares underflow or overflow: noise would vanish, and nobody would see it."""
    if not SMALLEST <= value <= LARGEST:
        raise ConfigError(f"{what} = {value:g}: needed a number from {SMALLEST:g} to {LARGEST:g}")


def check_noise(deviation: float, largest: float) -> None:
    """Refuse noise that is so small beside the largest number that their sum does not fit a float64."""
    if deviation < FAINTEST * largest:
        raise ConfigError(
            f"noise of deviation {deviation:g} beside numbers of up to {largest:g} hides nothing, and does not fit one "
            f"float64 with them; needed at least {FAINTEST:.1e} of the largest number, or no noise at all"
        )


def clip_factors(flat: Tensor, clip: float) -> Tensor:
    """(P, 1): what each party's upload (P, cells) is multiplied with to have norm `clip` at most, not a bit more."""
    if flat.is_cuda:
        return factors_at_once(flat, clip)
    rows = flat.numpy()  # one by one, so that a party's factor does not depend on how many upload with it
    norms = [math.sqrt(float(np.einsum("i,i->", row, row))) for row in rows]
    aim = _aim(flat, clip)
    return torch.tensor([[min(1.0, aim / norm) if norm > 0 else 1.0] for norm in norms], dtype=torch.float64)


def factors_at_once(flat: Tensor, clip: float) -> Tensor:
    """The same where the numbers are: nobody waits for a GPU. Its sums have another order, and other last bits."""
    norms = torch.linalg.vector_norm(flat, dim=1, keepdim=True)
    return torch.where(norms > 0, (_aim(flat, clip) / norms).clamp(max=1.0), 1.0)


def _aim(flat: Tensor, clip: float) -> float:
    return clip * (1 - (flat.shape[1] + 8) * _UNIT)


def add_on_grid(values: Tensor, factors: Tensor, noise: Tensor, step: float) -> Tensor:
    """`factors` x `values`, cut towards zero, plus `noise`, rounded; both in steps. Overwrites both, returns `noise`.

    Args:
        values: (P, cells) in float64.
        factors: (P, 1).
        noise: (P, cells) in float64, in units of the step.
        step: of the grid.
    """
    for out, mine, factor in zip(noise.numpy(), values.numpy(), (factors / step)[:, 0].tolist(), strict=True):
        np.trunc(np.multiply(mine, factor, out=mine), out=mine)
        np.multiply(np.add(np.rint(out, out=out), mine, out=out), step, out=out)
    return noise


def add_steps(values: Tensor, factors: Tensor, steps: Tensor, step: float) -> Tensor:
    """The same number by number, on any device: (P, cells) `values`, and noise that was rounded to whole `steps`."""
    return (values * (factors / step)).trunc_().add_(steps).mul_(step)
