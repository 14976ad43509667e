"""What each number of a row adds to a party's share, from a starting row: three ways, chosen by the local model.

    network                      integrated gradients (Sundararajan et al., 2017): the mean of the gradient on the
                                 straight line from the starting row, times the way gone; exact for linear models
    says it itself (Explains)    a ridge regression exactly, trees by their own SHAP values
    any other regressor          Shapley values over the columns of the table, from random orders and their reverses

All three add up: base + sum = share. The integral is taken in more and more steps until what is missing is small
(`error` says how much it was); that rest is then spread over the columns in proportion to what they add.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from colonnade.explain.contributions import summed
from colonnade.explain.shares import Share
from colonnade.models.local import Explains
from colonnade.randomness import stream

STEPS = (16, 64, 256, 1024)  # of the integration: the first that are enough
ENOUGH = 1e-3  # what may be missing of a row's share, relative to what its columns add, whatever the sign
CHUNK = 2048  # rows at once
ORDERS = 32  # of the columns: half of them drawn, the others their reverses


@dataclass(frozen=True)
class Attribution:
    """By column of the table: values (B, C, K), added to base (K,)."""

    way: str
    base: Tensor = field(repr=False)
    values: Tensor = field(repr=False)
    error: float = 0.0


def attribute(share: Share, columns: Tensor, start: Tensor, seed: int = 0) -> Attribution:
    """What each column of a party's table adds to its share of each row.

    Args:
        share: of the party.
        columns: (B, ...) encoded, float64.
        start: (...) the row from which is counted.
        seed: of the random orders, where there are any.
    """
    places = list(share.places.values())
    if share.cohort.encoder.gradients:
        base = share(start[None])[0].detach()
        found = [_integrated(share, part, start) for part in columns.split(CHUNK)]
        values, error = torch.cat([one for one, _ in found]), max(missing for _, missing in found)
        return Attribution("integrated gradients", base, summed(values, places), error)
    with torch.no_grad():
        if isinstance(share.regressor, Explains):
            x, begin = (share.cohort.scale_columns(part[None])[0] for part in (columns, start[None]))
            told, base = share.regressor.contributions(x, begin[0])
            return Attribution("as the local model says itself", base, summed(told.flatten(1, -2), places))
        return _orders(share, columns, start, seed)


def _integrated(share: Share, columns: Tensor, start: Tensor) -> tuple[Tensor, float]:
    """(B, F, K) that add up, and what was missing at most before the rest was spread.

    Every row gets the steps that it needs itself: what it is told does not depend on the others.
    """
    with torch.no_grad():
        way = share(columns) - share(start[None])  # (B, K)
    found = columns.new_zeros((len(columns), start.numel(), way.shape[1]))
    rest, left = way.clone(), torch.arange(len(columns))
    for steps in STEPS:
        some = columns[left]
        found[left] = _mean_gradient(share, some, start, steps) * (some - start).flatten(1).unsqueeze(2)
        rest[left] = way[left] - found[left].sum(dim=1)
        left = left[(rest[left].abs() > ENOUGH * found[left].abs().sum(dim=1)).any(dim=1)]
        if not len(left):
            break
    size = found.abs()
    weight = size / size.sum(dim=1, keepdim=True).clamp(min=torch.finfo(size.dtype).tiny)
    return found + weight * rest.unsqueeze(1), float(rest.abs().max())


def _mean_gradient(share: Share, columns: Tensor, start: Tensor, steps: int) -> Tensor:
    """(B, F, K): of the share, at the middles of so many equal steps from the starting row."""
    rows, way = len(columns), columns - start
    total: Tensor | float = 0.0
    for some in torch.arange(steps).split(max(1, CHUNK // rows)):  # several steps at once, where there are few rows
        middle = ((some.double() + 0.5) / steps).reshape(-1, *[1] * columns.dim())
        at = (start + middle * way).flatten(0, 1).requires_grad_()  # (S B, ...)
        out = share(at)
        outputs = range(out.shape[1])
        each = [torch.autograd.grad(out[:, k].sum(), at, retain_graph=k < len(outputs) - 1)[0] for k in outputs]
        found = torch.stack(each, dim=-1).flatten(1, -2)  # (S B, F, K)
        total = total + found.reshape(len(some), rows, *found.shape[1:]).sum(dim=0)
    return torch.as_tensor(total) / steps


def _orders(share: Share, columns: Tensor, start: Tensor, seed: int) -> Attribution:
    """Columns of the table change one after the other from the starting row to the row, in several orders."""
    places, flat = list(share.places.values()), columns.flatten(1)
    base = share(start[None])[0]
    drawn: list[Tensor] = []  # (B, C, K) of each pair of orders
    for pair in range(ORDERS // 2):
        order = stream(seed, "explain orders", share.party, pair).permutation(len(places)).tolist()
        both = [_walk(share, flat, start, places, one) for one in (order, order[::-1])]
        drawn.append((both[0] + both[1]) / 2)
    each = torch.stack(drawn)
    error = each.std(dim=0) / math.sqrt(len(drawn))
    return Attribution(f"Shapley values of {ORDERS} orders of the columns", base, each.mean(dim=0), float(error.max()))


def _walk(share: Share, flat: Tensor, start: Tensor, places: Sequence[Sequence[int]], order: Sequence[int]) -> Tensor:
    """(B, C, K): what the share changes by when each column takes its value, in this order."""
    now = start.flatten().expand_as(flat).clone()
    before = share(now.reshape(-1, *start.shape))
    found = flat.new_zeros((len(flat), len(places), before.shape[1]))
    for at in order:
        now[:, list(places[at])] = flat[:, list(places[at])]
        after = share(now.reshape(-1, *start.shape))
        found[:, at] = after - before
        before = after
    return found
