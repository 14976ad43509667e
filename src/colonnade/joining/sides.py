"""Sides: what only shows when columns of two organisations are seen together, asked for with one bit per column.

    phi_g = +1 or -1      on which side of its median column g of the label holder is (`models/sides.py`)
    told                  besides the label y, for each g whether y and phi_g agree; all of it noisy
    lifted score s_g      what the candidate makes of that: where does phi_g turn what its columns say of y?
    interaction           what the products phi_g s_g add to a stack that has all scores and sides already

A score of y alone cannot show it: where y is a yes if exactly one of two signs is positive, either sign by itself says
nothing about y, and so nothing of it is in any score, nor in products of scores.
"""

from __future__ import annotations

import torch
from torch import Tensor

from colonnade.errors import ConfigError
from colonnade.models.sides import find_cuts
from colonnade.tasks import Task
from colonnade.tasks.multilabel import Multilabel


def sides_of(columns: Tensor, rows: Tensor, most: int) -> Tensor:
    """(N, G) yes or no: which of the first `most` columns with two sides are above their median on these rows.

    Raises:
        ConfigError: no column has two sides.
    """
    found = find_cuts(columns[rows], most)
    if not len(found.places):
        raise ConfigError("no column of the label holder has two sides, so that interactions cannot be asked for")
    return found.above(columns)


def with_sides(values: Tensor, task: Task, sides: Tensor) -> tuple[Tensor, Task]:
    """(N, 1 + G) a yes/no label, and whether it agrees with each side.

    Raises:
        ConfigError: the label is no single yes or no.
    """
    if task.outputs > 1 or task.exclusive:
        raise ConfigError(f"interactions can be asked for where labels are yes or no, or numbers; this is {task.words}")
    yes = values.reshape(len(values), 1) > 0.5
    return torch.cat([yes, yes == sides], dim=1).double(), Multilabel(1 + sides.shape[1], positive=task.positive)


def lifted(levels: Tensor, sides: Tensor) -> tuple[Tensor, Tensor]:
    """(B, 1 + 2 G) scores and sides by themselves, and (B, G) their products, of levels (B, 1 + G) and sides (B, G)."""
    wide, sign = levels.double(), 2 * sides.double() - 1
    scores = (wide - wide.mean(dim=0)) / wide.std(dim=0, unbiased=False).clamp(min=1e-9)
    return torch.cat([scores, sign], dim=1), scores[:, 1:] * sign
