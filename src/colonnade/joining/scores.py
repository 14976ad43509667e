"""Scores by rows that a model has not seen: boosted trees (extra `trees`), or a linear model where they are missing.

cross_fitted     a row's score comes from the model that was fitted without the row's fold
mean_of_folds    other rows: the mean of models that were each fitted without one fold, which said when to stop
"""

from __future__ import annotations

from importlib.util import find_spec

import torch
from torch import Tensor

from colonnade.models.lesson import Lesson
from colonnade.models.stacking import LinearStack, fit_stack
from colonnade.models.trees import Trees, TreeSettings
from colonnade.randomness import key, stream
from colonnade.tasks import Task

FOLDS = 5
HELD_OUT = 10  # every so-many-eth row of those that train tells when to stop
STRONG = TreeSettings()
SHALLOW = TreeSettings(leaves=6, most=200, label_rate=0.05)  # for few rows with noisy labels


class Linear:
    """A linear model of standardised columns."""

    def __init__(self) -> None:
        self.stack: LinearStack | None = None
        self.shift, self.scale = torch.zeros(1), torch.ones(1)

    def learn_labels(self, lesson: Lesson) -> None:
        """Fit the task's own loss; all rows train, since nothing here has to stop early."""
        x = lesson.x.flatten(1).double()
        spread = x.std(dim=0, unbiased=False)
        self.shift, self.scale = x.mean(dim=0), torch.where(spread > 0, spread, torch.ones_like(spread))
        self.stack = fit_stack(lesson.task, self._standard(x), lesson.targets, lesson.weights)

    def output(self, x: Tensor) -> Tensor:
        """(B, K)."""
        assert self.stack is not None, "learn_labels comes first"
        return self._standard(x.flatten(1).double()) @ self.stack.weight + self.stack.bias

    def _standard(self, x: Tensor) -> Tensor:
        return (x - self.shift) / self.scale


def kind_of_model() -> str:
    """What learns here, for people."""
    return "boosted trees" if find_spec("lightgbm") else "linear model"


def cross_fitted(
    task: Task, x: Tensor, targets: Tensor, folds: Tensor, wanted: Tensor, weights: Tensor | None = None, seed: int = 0
) -> Tensor:
    """(W, K) float64: the scores of the `wanted` rows (W,), all rows (B, ...) having a fold (B,)."""
    found = torch.zeros(len(x), targets.shape[1], dtype=torch.float64)
    for fold in range(FOLDS):
        learn = (folds != fold).nonzero()[:, 0]
        held = torch.zeros(len(learn), dtype=torch.bool)
        held[torch.from_numpy(stream(seed, "worth held out", number=fold).permutation(len(learn)))[::HELD_OUT]] = True
        model = _model(task, x, STRONG, seed, fold)
        heavy = None if weights is None else weights[learn]
        model.learn_labels(Lesson(task, x[learn], targets[learn], heavy, held))
        asked = wanted[folds[wanted] == fold]
        if len(asked):
            found[asked] = model.output(x[asked]).double()
    return found[wanted]


def mean_of_folds(task: Task, x: Tensor, targets: Tensor, new: Tensor, seed: int = 0) -> Tensor:
    """(B', K) float64: scores of new rows by models of the rows x (B, ...)."""
    order = torch.from_numpy(stream(seed, "worth folds").permutation(len(x)))
    total = torch.zeros(len(new), targets.shape[1], dtype=torch.float64)
    for fold in range(FOLDS):
        model = _model(task, x, SHALLOW, seed, fold)
        model.learn_labels(Lesson(task, x, targets, None, order % FOLDS == fold))
        total += model.output(new).double()
    return total / FOLDS


def _model(task: Task, x: Tensor, settings: TreeSettings, seed: int, fold: int) -> Linear | Trees:
    if find_spec("lightgbm") is None:
        return Linear()
    model = Trees(settings)
    model.open(tuple(x.shape[1:]), task.outputs, key(seed, "worth model", number=fold))
    return model
