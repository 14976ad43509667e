"""How good a model is on new rows whose labels are known; a step after `predict.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from colonnade.data.ids import Ids
from colonnade.data.new_columns import also_read
from colonnade.evaluate.answers import Answers
from colonnade.evaluate.groups import by_group
from colonnade.evaluate.metrics import choose_metrics
from colonnade.predict import predicted, read_groups, read_rows, read_truth, read_weights
from colonnade.record import ByGroup
from colonnade.rows import Rows

if TYPE_CHECKING:
    from colonnade.model import Model


def scores(
    model: Model, given: Any, labels: Any, metrics: Sequence[str] | None, id: Ids, weights: Any
) -> dict[str, float]:
    """Values by the names of metrics (`Model.score`). What is wrong is refused before anything leaves a party."""
    chosen = choose_metrics(model.task, metrics)
    with also_read(labels, weights):
        rows = read_rows(model, given, id)
    truth, heavy = read_truth(model, rows, given, labels, id), read_weights(model, rows, given, weights, id)
    answers = _answers(model, rows)
    return {metric.name: metric(model.task, answers.to(metric), truth, heavy) for metric in chosen}


def scores_by_group(
    model: Model, given: Any, labels: Any, by: Any, metrics: Sequence[str] | None, id: Ids, weights: Any
) -> ByGroup:
    """The same for each group of rows (`Model.score_by_group`)."""
    chosen = choose_metrics(model.task, metrics)
    with also_read(labels, by, weights):
        rows = read_rows(model, given, id)
    truth, heavy = read_truth(model, rows, given, labels, id), read_weights(model, rows, given, weights, id)
    groups = read_groups(model, rows, given, by, id)
    return by_group(chosen, model.task, _answers(model, rows), truth, groups, heavy)


def _answers(model: Model, rows: Rows) -> Answers:
    return model.answers(predicted(model, rows).logits)
