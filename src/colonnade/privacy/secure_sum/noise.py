"""Noise that the parties of a sum share, what is left of it towards whom, and what rounding it costs.

Each of M parties adds N(0, sigma^2 C^2 / (M - c - d)) to every cell. Whoever knows k of the shares, with j parties
lost, faces M - j - k of them: a Gaussian mechanism of noise multiplier

    sigma sqrt((M - j - k) / (M - c - d)).

The coordinator knows the shares of the c colluders; a party knows its own, and those of its colluders.

Rounding. Party k adds the whole number round(n_k/g). Let H honest shares of deviation s be left, N = sum n_k,
r_k = round(n_k) - n_k (in units of g). The sum of whole numbers is a whole number within 1/2 of N + r_1 + ... +
r_{H-1}, hence

    sum_k round(n_k) = round(N + r_1 + ... + r_{H-1}).

If the r_k were uniform and independent of N, this would be a randomised function of N, and as the data are whole
numbers too, the release a post-processing of the Gaussian mechanism: rounding would cost nothing. They nearly are.
Given N, (n_1 ... n_{H-1}) is Gaussian with covariance s^2 (I - 11'/H), whose eigenvalues are at least s^2/H. Modulo
1 its density is 1 + sum over integer vectors m != 0 of exp(-2 pi^2 m'Cov m + i ...) (Poisson), so its total
variation distance from uniform, and with it that of the release from a post-processing, is at most

    eta = 1/2 ((1 + 2q/(1 - q))^(H-1) - 1),   q = exp(-2 pi^2 (s/g)^2 / H)

per cell. Over T releases of n cells an (epsilon, delta) becomes (epsilon, delta + (1 + e^epsilon) T n eta). With the
2^20 steps per deviation of `Grid` and up to a million parties, eta is below 10^-9000000. For H = 1 it is 0.

Discrete Gaussian shares would need a bound of the same kind, since their sum is not a discrete Gaussian (Kairouz et
al. 2021). No library that is here draws them (dp-accounting accounts for them only); OpenDP 0.16 is a wheel of 47 MB.
The draws here are NumPy's float64 normals: Gaussian up to the resolution of float64, about 2^-29 of a step. That is
not part of eta, and does not depend on the data.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from colonnade.errors import ConfigError
from colonnade.privacy.secure_sum.fixed_point import Floats


class Effective(NamedTuple):
    """Noise multipliers for the accountant, by audience."""

    coordinator: float  # together with c colluding parties
    party: float  # with its colluders, c parties in all; alone if c is 0


def share_deviation(sigma: float, clip: float, parties: int, colluders: int, drops: int = 0) -> float:
    """Standard deviation of one party's noise, per cell.

    Args:
        sigma: noise multiplier that the sum shall have.
        clip: norm C of one party's array.
        parties: M, with which the run began.
        colluders: c, parties that may tell their noise to whoever attacks.
        drops: d, parties that may be lost during the run.
    """
    _check(sigma, parties, colluders, drops)
    if not 0 < clip < math.inf:
        raise ConfigError(f"the clipping norm is a positive number; what came is {clip}")
    return sigma * clip / math.sqrt(parties - colluders - drops)


def noise_share(
    sigma: float,
    clip: float,
    parties: int,
    colluders: int,
    generator: np.random.Generator,
    shape: tuple[int, ...],
    drops: int = 0,
) -> Floats:
    """One party's noise for one array; `share_deviation` says how much.

    The generator belongs to this party, this round and this array alone. Its key must be stored: a restarted
    party must draw the same noise for the same round.
    """
    return share_deviation(sigma, clip, parties, colluders, drops) * generator.standard_normal(shape)


def effective_sigma(sigma: float, parties: int, colluders: int, dropped: int = 0, drops: int = 0) -> Effective:
    """The noise multiplier of the sum towards the coordinator and towards a party.

    Args:
        sigma: noise multiplier that the shares were made for.
        parties: M, with which the run began.
        colluders: c, as the shares were made for; taken as the number that do collude.
        dropped: how many parties are lost, and their noise with them.
        drops: d, for how many the shares were made.

    Returns:
        Both multipliers; 0 where no noise is left, which no epsilon covers.
    """
    _check(sigma, parties, colluders, drops)
    if not 0 <= dropped <= parties:
        raise ConfigError(f"between 0 and {parties} parties can be lost; what came is {dropped}")

    def left(known: int) -> float:
        return sigma * math.sqrt(max(parties - dropped - known, 0) / (parties - colluders - drops))

    return Effective(left(colluders), left(max(colluders, 1)))


def rounding_distance(deviation: float, step: float, honest: int) -> float:
    """At most how far, in total variation per cell, the rounded sum is from a function of the exact one: eta."""
    if not (deviation > 0 and step > 0 and honest >= 1):
        raise ConfigError("the cost of rounding is for positive noise, a positive step and at least 1 honest party")
    q = math.exp(-2 * (math.pi * deviation / step) ** 2 / honest)
    if q > 0.5:  # the grid is about as coarse as the noise: no promise
        return 1.0 if honest > 1 else 0.0
    return min(0.5 * math.expm1(min((honest - 1) * math.log1p(2 * q / (1 - q)), 2.0)), 1.0)


def rounding_delta(distance: float, cells: int, epsilon: float) -> float:
    """What rounding adds to delta at this epsilon; `cells` counts those of all releases."""
    return min((1 + math.exp(epsilon)) * cells * distance, 1.0)


def _check(sigma: float, parties: int, colluders: int, drops: int) -> None:
    if not 0 <= sigma < math.inf:
        raise ConfigError(f"a noise multiplier is 0 or more; what came is {sigma}")
    if colluders < 0 or drops < 0 or parties - colluders - drops < 1:
        raise ConfigError(
            f"of {parties} parties, {colluders} may collude and {drops} be lost: no honest one is left to add noise; "
            "use fewer colluders or drops"
        )
