"""What lifted scores add: the test of interaction after a training that had them.

On the test rows, the metric of the model against that of its plain parts, the scores without the guest's sides, in the
combination that is best on the validation rows; the interval of the difference is of a paired bootstrap. None of the
test rows chose anything. Where the whole interval is above 0, columns of the guest and of others say something together
that no sum of scores can say. Where it is not, lifting was for nothing, as far as these columns and rows can show.

A model without lifts has no such parts, and products of its scores see nothing of an interaction that is in neither
score (docs/interactions.md): nothing is told of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from colonnade.evaluate.answers import Answers, Evaluated
from colonnade.evaluate.metrics import Metric
from colonnade.evaluate.paired import paired_interval
from colonnade.methods.base import Method, State, Uploads
from colonnade.methods.without import outputs, plain_outputs
from colonnade.record import LiftGain


def lift_gain(
    method: Method, state: State, uploads: Sequence[Uploads], tested: Evaluated, metric: Metric
) -> LiftGain | None:
    """What sides of the guest's columns add on the test rows, whose uploads come in pieces; None: there are no lifts.

    Args:
        method: that trained.
        state: of the kept model.
        uploads: of all parties about the test rows.
        tested: the answers to these rows, and their labels.
        metric: that the run is judged by.
    """
    plain = [plain_outputs(method, state, one) for one in uploads]
    parts = [one for one in plain if one is not None]
    if not parts:
        return None
    lifted = torch.cat([outputs(method, state, one) for one in uploads])
    both = [_answered(tested, told) for told in (lifted, torch.cat(parts))]
    with_sides, without = (float(metric(one.task, one.answers.to(metric), one.truth, one.weights)) for one in both)
    if not math.isfinite(with_sides - without):  # the rows do not define the metric
        return None
    interval = paired_interval(metric, both[:1], both[1:])
    return {
        "metric": metric.name,
        "plain": without,
        "lifted": with_sides,
        "difference": with_sides - without,
        "interval": None if interval is None else list(interval),
        "rows": len(tested.truth),
    }


def _answered(tested: Evaluated, logits: torch.Tensor) -> Evaluated:
    """Without a threshold or a calibration, which belong to one of the two only."""
    return Evaluated(tested.task, Answers.of_outputs(tested.task, logits.cpu(), None), tested.truth, tested.weights)
