"""The share of wrong decisions."""

from torch import Tensor

from colonnade.evaluate.metrics import Metric, accuracy
from colonnade.tasks import Task


def error_rate(task: Task, outputs: Tensor, truth: Tensor, weights: Tensor) -> Tensor:
    """One minus the accuracy, (R,)."""
    return 1 - accuracy(task, outputs, truth, weights)


ERROR_RATE = Metric(
    "error_rate", "error rate", "lower", error_rate, share=True, tasks=("binary", "multiclass"), decides=True
)
