"""Shapley values: the mean of what a party adds to a coalition, over all orders in which they could have joined.

    phi_k = sum over S without k of |S|! (M - |S| - 1)! / M! (v(S + k) - v(S))

They add up to v(everybody) - v(nobody). All 2^M coalitions are visited in Gray-code order, so that each differs
from the one before by one party: where predictions are sums, that is one addition. With many parties, random orders
give an unbiased estimate with a standard error.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from colonnade.randomness import stream

Vector = npt.NDArray[np.float64]


class Walk(Protocol):
    """A coalition that changes by one party at a time; it begins with nobody."""

    @property
    def value(self) -> float:
        """What the present coalition is worth."""
        ...

    def flip(self, party: int) -> None:
        """Let a party join, or leave if it is in."""
        ...


@dataclass(frozen=True)
class Shapley:
    """A value per party, and its standard error where it is an estimate."""

    values: Vector
    errors: Vector | None = None
    orders: int | None = None  # how many were drawn; None: exact


def exact(walk: Walk, parties: int) -> Shapley:
    """Visit every coalition."""
    worth = np.empty(2**parties)
    coalition = 0
    worth[0] = walk.value
    for step in range(1, 2**parties):
        party = (step & -step).bit_length() - 1  # the bit in which Gray codes step - 1 and step differ
        walk.flip(party)
        coalition ^= 1 << party
        worth[coalition] = walk.value
    return Shapley(_from_worth(worth, parties))


def _from_worth(worth: Vector, parties: int) -> Vector:
    members = np.arange(2**parties)
    size = ((members[:, None] >> np.arange(parties)) & 1).sum(axis=1)
    weight = np.array([1 / (parties * math.comb(parties - 1, n)) for n in range(parties)])
    found = np.empty(parties)
    for k in range(parties):
        without = members[(members >> k) & 1 == 0]
        found[k] = weight[size[without]] @ (worth[without | (1 << k)] - worth[without])
    return found


def sampled(make_walk: Callable[[], Walk], parties: int, orders: int, seed: int) -> Shapley:
    """Let the parties join in random orders; the error is the standard deviation of the mean."""
    gains = np.empty((orders, parties))
    for number in range(orders):
        walk = make_walk()
        last = walk.value
        for party in stream(seed, "shapley", number=number).permutation(parties):
            walk.flip(int(party))
            gains[number, party] = walk.value - last
            last = walk.value
    return Shapley(gains.mean(axis=0), gains.std(axis=0, ddof=1) / math.sqrt(orders), orders)
