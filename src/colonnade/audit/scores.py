"""Two ways to look at what left a party, each a number that is positive when the party seems to be there.

`likelihood` is the likelihood-ratio score of the mechanism as declared: independent noise on every release. It sees
noise that is too small and clipping that was skipped. `differences` looks at pairs of releases and asks whether their
difference is one of the two it could be without noise: it sees noise that was used twice, or shared between parties.
Any score is a fair one: correct code stays below its ledger whatever is computed from its releases.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

PAIR_CELLS = 2**22  # of pair matrices at once: bounds memory


@dataclass(frozen=True)
class Worlds:
    """What R releases would be without noise, if the party is there and if it is not: (R, D) each."""

    present: Tensor
    absent: Tensor

    @property
    def middle(self) -> Tensor:
        """Half-way between the two."""
        return (self.present + self.absent) / 2

    @property
    def apart(self) -> Tensor:
        """From absent to present."""
        return self.present - self.absent


def likelihood(seen: Tensor, worlds: Worlds) -> Tensor:
    """(runs, R, D) -> (runs,): the log-likelihood ratio under independent noise, up to a positive factor."""
    return ((seen - worlds.middle) * worlds.apart).sum(dim=(1, 2))


def differences(seen: Tensor, worlds: Worlds) -> Tensor:
    """(runs, R, D) -> (runs,): the clearest verdict that any pair of releases gives.

    The difference of two releases is w/2 or -w/2 around its middle, plus noise. Its verdict is the projection on w in
    units of what is left over: a few for fresh noise, huge when the noise cancels.
    """
    count = seen.shape[1]
    at = max(1, PAIR_CELLS // (count * count))
    return torch.cat([_clearest(part - worlds.middle, worlds.apart) for part in seen.split(at)])


def _clearest(seen: Tensor, apart: Tensor) -> Tensor:
    length = _between(apart @ apart.T)  # |w|^2 of every pair, (R, R)
    tiny = 1e-6 * length.max()
    squared = _between(seen @ seen.transpose(1, 2))  # |d|^2, (runs, R, R)
    along = _between(seen @ apart.T)  # <d, w>
    left = (squared + length / 4 - along.abs()).clamp_(min=0)  # |d -+ w/2|^2, the nearer one
    left += 1e-9 * (squared + length)  # rounding: a difference that cancels must not divide by zero
    left[:, length < tiny] = math.inf  # a pair whose difference is the same in both worlds says nothing
    verdicts = (along / (length.clamp(min=tiny) * left).sqrt_()).flatten(1)
    return verdicts.gather(1, verdicts.abs().argmax(dim=1, keepdim=True)).squeeze(1)


def _between(product: Tensor) -> Tensor:
    """<x_a - x_b, y_a - y_b> for all a and b, from the matrix of <x_i, y_j>."""
    diagonal = product.diagonal(dim1=-2, dim2=-1)
    return diagonal.unsqueeze(-1) + diagonal.unsqueeze(-2) - product - product.transpose(-2, -1)


SCORES: dict[str, Callable[[Tensor, Worlds], Tensor]] = {"likelihood": likelihood, "differences": differences}
