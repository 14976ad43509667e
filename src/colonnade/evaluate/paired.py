"""How much better one model is than another on the same test rows, with a 95 % interval.

Where the answers of both are at hand, both are measured on the same resamples of the rows (paired bootstrap): rows that
are hard for both count for neither. Where only scores and their intervals are known, the interval of the difference is
put together from theirs as if they were independent (MOVER: Zou and Donner 2008), which is wider than needed for models
that agree on most rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from colonnade.errors import DataError
from colonnade.evaluate.answers import Evaluated
from colonnade.evaluate.chance import Interval, percentiles, resamples
from colonnade.evaluate.metrics import Metric


def paired_interval(metric: Metric, ours: Sequence[Evaluated], theirs: Sequence[Evaluated]) -> Interval | None:
    """Of the mean score of our models minus that of theirs, over other rows of the same kind; several: seeds.

    None for a single row, and where the rows do not define the metric.

    Raises:
        DataError: they did not answer to the same rows.
    """
    first = ours[0]
    if any(not torch.equal(one.truth.cpu(), first.truth.cpu()) for one in (*ours, *theirs)):
        raise DataError("models can be compared row by row on the same test rows only, and these labels differ")
    if len(first.truth) < 2:
        return None
    apart = [
        _mean(metric, ours, heavy) - _mean(metric, theirs, heavy)
        for heavy in resamples(len(first.truth), first.weights)
    ]
    return percentiles(torch.cat(apart))


def _mean(metric: Metric, models: Sequence[Evaluated], weights: Tensor) -> Tensor:
    """(R,) the mean score of models on resamples with weights (R, B)."""
    values = [metric.values(one.task, one.answers.to(metric), one.truth, weights) for one in models]
    return torch.stack(values).mean(dim=0)


def independent_interval(ours: float, around_ours: Interval, theirs: float, around_theirs: Interval) -> Interval:
    """Of ours - theirs, from the two scores and their intervals."""
    below = math.hypot(ours - around_ours[0], around_theirs[1] - theirs)
    above = math.hypot(around_ours[1] - ours, theirs - around_theirs[0])
    return ours - theirs - below, ours - theirs + above
