"""Judge: what gives the validation score, by which a round is kept and training stops early.

Keep and stop go down to the parties, so where labels are protected, the judge has only what their noisy form lets one
believe of each row, and nothing here knows a plain label.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from colonnade.errors import ConfigError
from colonnade.evaluate.metrics import METRICS, Metric, area, choose_metric, metrics_of
from colonnade.tasks import Task

INSTEAD = METRICS["log_loss"]  # chooses the round where no AUC is defined,
INSTEAD_OF_R2 = METRICS["rmse"]  # and this one where the rows all have the same number
BELIEVED = ("accuracy", "auc")  # metrics that noisy labels can give, too


@dataclass(frozen=True)
class Judge:
    """One metric on the validation rows."""

    task: Task
    metric: Metric
    truth: Tensor = field(repr=False)  # (B,) classes or (B, K) numbers; beliefs (B, K) where `noisy`
    noisy: bool = False
    scale: float = 1.0  # of a metric without bounds: its value for a constant guess
    instead_of: Metric | None = None  # the metric that these rows do not define
    weights: Tensor | None = field(default=None, repr=False)  # (B,) of plain rows; None: all alike

    @classmethod
    def of(
        cls, task: Task, truth: Tensor, name: str | None = None, noisy: bool = False, weights: Tensor | None = None
    ) -> Judge:
        """By the named metric, else by the task's own; by the log loss where the rows do not define it.

        Raises:
            ConfigError: the task does not have the metric, or noisy labels cannot give it.
        """
        metric = choose_metric(task, name)
        if noisy and metric.name not in BELIEVED:
            raise ConfigError(
                f"metric = {metric.name!r} needs plain labels, and these are protected; choose from "
                f"{', '.join(BELIEVED)}"
            )
        judge = cls(task, metric, truth, noisy, weights=weights)
        if not len(truth):
            return judge
        value = judge(judge.guess)
        instead = INSTEAD if task.classes else INSTEAD_OF_R2
        if math.isnan(value) and instead in metrics_of(task):
            return replace(judge, metric=instead, instead_of=metric)
        return replace(judge, scale=1.0 if metric.bounded or not value > 0 else value)

    @property
    def guess(self) -> Tensor:
        """The outputs (B, K) of a constant guess; of beliefs only whether a metric is defined is asked of them."""
        if self.noisy:
            return torch.zeros_like(self.truth, dtype=torch.float64)
        return self.task.constant(self.task.shares(self.truth, self.weights)).expand(len(self.truth), -1)

    def __call__(self, outputs: Tensor) -> float:
        """The value of the metric for outputs (B, K)."""
        if not self.noisy:
            return self.metric(self.task, outputs, self.truth, self.weights)
        if self.metric.name == "accuracy":
            return believed_accuracy(self.task, outputs, self.truth)
        if self.metric.name == "auc":
            return believed_auc(outputs, self.truth)
        beliefs, outputs = self.truth.cpu().double(), outputs.detach().cpu().double()
        return float(self.task.losses(outputs, beliefs.view_as(outputs)).sum() / len(outputs))

    def by_loss(self) -> Judge:
        """The same rows, judged by the loss; by what judges anyway where that is one, or where labels are protected.

        Beliefs about protected labels are further from 0 and 1 than the noisy labels: their loss would stop too early.
        """
        name = self.task.loss_metric
        if not name or self.noisy or self.instead_of is not None:
            return self
        return Judge.of(self.task, self.truth, name, weights=self.weights)

    def gain(self, value: float) -> float:
        """The value as a number that rises with better models and means the same for all labels."""
        return self.metric.sign() * value / self.scale

    def value(self, gain: float) -> float:
        """The inverse of `gain`."""
        return self.metric.sign() * gain * self.scale

    def all(self, outputs: Tensor) -> dict[str, float | None]:
        """Every metric of the task; with noisy labels only the one that judges. None: undefined on these rows."""
        having = (self.metric,) if self.noisy else metrics_of(self.task)
        found = {
            m.name: self(outputs) if self.noisy else m(self.task, outputs, self.truth, self.weights) for m in having
        }
        return {name: None if math.isnan(value) else value for name, value in found.items()}

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a user must know about the validation score; nothing where it is what was asked for."""
        if self.instead_of is None:
            return ()
        return (
            f"The {len(self.truth)} validation rows are all of one {in_common(self.task)}, so {self.instead_of.title} "
            f"is undefined there: the kept round was chosen by the {self.metric.title}. Give the validation rows "
            f"{that_differ(self.task)}.",
        )


def in_common(task: Task) -> str:
    """What rows have in common on which a metric is undefined."""
    return "class" if task.classes else "value"


def that_differ(task: Task) -> str:
    """What they need, for metrics to be defined."""
    return "both classes" if task.classes else "different values"


def believed_accuracy(task: Task, outputs: Tensor, beliefs: Tensor) -> float:
    """The mean belief (B, K) in what is decided.

    Expected over the noise it rises linearly with the true accuracy, with a smaller slope: the best round by one is
    the best by the other.
    """
    outputs, beliefs = outputs.detach().cpu(), beliefs.cpu().double()
    if task.exclusive:
        return beliefs.gather(1, outputs.argmax(dim=1, keepdim=True)).mean().item()
    return torch.where((outputs > 0).view_as(beliefs), beliefs, 1 - beliefs).mean().item()


def believed_auc(outputs: Tensor, beliefs: Tensor) -> float:
    """The AUC in which a row is a yes with the weight of its belief and a no with the rest; its mean over outputs.

    With beliefs of mean a on no-rows and b on yes-rows: pairs of two no-rows or two yes-rows add a constant, all others
    add n1 n0 (b (1 - a) AUC + a (1 - b) (1 - AUC)), whose slope is n1 n0 (b - a); the divisor is the same for all
    rounds. So the best round by this is the best by the true AUC, expected over the noise.
    """
    outputs, beliefs = outputs.detach().cpu(), beliefs.cpu()
    if bool(outputs.isnan().any()):
        return float("nan")
    if not all(bool(column.min() < column.max()) for column in beliefs.T):
        return float("nan")  # rows that do not differ: every model has the same
    ones = torch.ones(1, len(outputs), dtype=torch.float64)
    found = [area(outputs[:, k], beliefs[:, k], ones) for k in range(outputs.shape[1])]
    return float(torch.stack(found).mean())
