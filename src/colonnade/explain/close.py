"""Whether the order of the parties would be the same on other rows: the first two, and the last two.

The jackknife: Shapley values without each tenth of the rows, and from how much they differ the standard error of the
difference of two parties.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch

from colonnade.explain.coalitions import Coalitions
from colonnade.explain.shapley import Vector, exact

PARTS = 10  # of the rows, each left out once
MOST = 6  # parties: every part visits all coalitions
ERRORS = 2.0  # standard errors within which two parties are as good as equal


def close_calls(game: Coalitions, values: Vector) -> list[str]:
    """What to say where the first two parties, or the last two, are too near to tell which is which."""
    parties = len(game.parties)
    if not 2 <= parties <= MOST or len(game.truth) < 2 * PARTS:
        return []
    others = np.stack([_without(game, part) for part in range(PARTS)])
    order, told = np.argsort(-values, kind="stable"), []
    for which, one, other in (("most", order[0], order[1]), ("least", order[-2], order[-1])):
        apart, found = values[one] - values[other], others[:, one] - others[:, other]
        error = math.sqrt((PARTS - 1) * float(found.var()))
        if apart <= ERRORS * error:
            told.append(
                f"it is not clear who contributes {which}: the Shapley values of {game.parties[one]} and "
                f"{game.parties[other]} differ by {apart:.4f}, and on other rows by {ERRORS * error:.4f} more or less"
            )
    return told if parties > 2 else told[:1]


def _without(game: Coalitions, part: int) -> Vector:
    """Shapley values on all rows but every tenth."""
    weights = torch.ones(len(game.truth), dtype=torch.float64) if game.weights is None else game.weights.cpu().double()
    left = torch.arange(len(weights)) % PARTS != part
    return exact(replace(game, weights=weights * left).walk(), len(game.parties)).values
