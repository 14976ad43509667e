"""A lesson: rows with labels, which a local model fits by itself; and how local models of each kind do so.

    networks                 gradient steps on the task's own loss (`methods/_teach.py`)
    trees, classifiers       their own loss of the same family: log loss, squares, Poisson
    any other regressor      least squares to the labels, one number per output

What a model then outputs is a score, for somebody else to weigh: log odds of a yes or of a class, a number, the
logarithm of an expected count; of models that fit by least squares, what they expect the label to be.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from torch import Tensor

from colonnade.models.local import Regressor
from colonnade.tasks import Task

LEAST = 0.05  # of the mean count: what an expected count that least squares put below it is taken for


@dataclass(frozen=True)
class Lesson:
    """Rows with labels; they may be noisy ones."""

    task: Task
    x: Tensor = field(repr=False)  # (B, ...)
    targets: Tensor = field(repr=False)  # (B, K)
    weights: Tensor | None = field(repr=False)  # (B,) how much each row counts; None: all alike
    held_out: Tensor = field(repr=False)  # (B,) rows by which a model that grows sees when to stop


@runtime_checkable
class LearnsLabels(Protocol):
    """A regressor that fits labels itself; all others are moved towards them in least squares.

    `fits_loss = True` says that it does so by the loss of the task's family, so that its outputs are log odds, numbers
    or logarithms of expected counts.
    """

    def learn_labels(self, lesson: Lesson) -> None:
        """Forget what was learned before, and fit these labels."""


def learn(model: Regressor, lesson: Lesson, effort: int) -> None:
    """Fit a regressor to labels; `effort` is for those that are moved towards them."""
    if isinstance(model, LearnsLabels):
        model.learn_labels(lesson)
    else:
        model.approach(lesson.x, lesson.targets, 1.0, effort)


def as_score(model: Regressor, task: Task, output: Tensor) -> Tensor:
    """A regressor's output as a score; of counts the logarithm, also of those that were fitted by least squares."""
    return output if is_score(model, task) else output.clamp(min=LEAST).log()


def is_score(model: object, task: Task) -> bool:
    """Whether what a regressor outputs is its score as it is."""
    return task.family != "poisson" or bool(getattr(model, "fits_loss", False))
