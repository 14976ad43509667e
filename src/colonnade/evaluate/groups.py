"""Every metric by the groups of a column that the label holder names: is the model as good for all of them?"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from colonnade.evaluate.answers import Answers
from colonnade.evaluate.chance import interval
from colonnade.evaluate.metrics import Metric
from colonnade.record import ByGroup, GroupScores
from colonnade.rows import Grouping
from colonnade.tasks import Task

FEWEST_ROWS = 30  # with fewer a group is small,
FEWEST_OF_A_CLASS = 5  # and also with fewer of a class


def by_group(
    metrics: Iterable[Metric], task: Task, answers: Answers, truth: Tensor, groups: Grouping, weights: Tensor | None
) -> ByGroup:
    """Values, 95 % intervals and counts of each group that has rows; of rows without a value under an empty name.

    Args:
        metrics: what to measure.
        task: what kind of labels.
        answers: of a model to these rows.
        truth: (B,) classes or (B, K) numbers.
        groups: of these rows.
        weights: (B,) of the rows; None: all alike.
    """
    chosen = list(metrics)
    found: dict[str, GroupScores] = {}
    for code, name in [*enumerate(groups.names), (-1, "")]:
        rows = (groups.codes == code).nonzero().squeeze(1)
        if len(rows):
            mine, true, heavy = answers.of(rows), truth.cpu()[rows], None if weights is None else weights.cpu()[rows]
            found[name] = _scores(chosen, task, mine, true, heavy)
    return {"column": groups.column, "groups": found}


def _scores(
    metrics: Iterable[Metric], task: Task, answers: Answers, truth: Tensor, weights: Tensor | None
) -> GroupScores:
    scores: GroupScores = {"rows": len(truth), "small": is_small(task, truth), "metrics": {}}
    for metric in metrics:
        outputs = answers.to(metric)
        value = metric(task, outputs, truth, weights)
        around = interval(metric, task, outputs, truth, value, weights)
        told = None if math.isnan(value) else value
        scores["metrics"][metric.name] = {"value": told, "interval": around and list(around)}
    return scores


def is_small(task: Task, truth: Tensor) -> bool:
    """Whether a group has too few rows, or too few of a class, to be compared with others."""
    if len(truth) < FEWEST_ROWS:
        return True
    if not task.one_class:
        return False
    counts = torch.bincount(truth.flatten().long(), minlength=len(task.classes))
    return int(counts.min()) < FEWEST_OF_A_CLASS
