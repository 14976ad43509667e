"""Classifier: a classifier of scikit-learn's kind as a local model, for methods that give parties the labels.

    yes/no, several labels   one copy for each label; its score is the log odds of a yes
    classes                  one copy; its scores are the logarithms of the probabilities

A probability counts as at least `LEAST`, and at most 1 - `LEAST`, so that a classifier that is sure of itself (a tree)
gives numbers that can be weighed. One without `predict_proba` gives its `decision_function`. Copies are kept as those
of regressors are (`models/fitted.py`).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from colonnade.errors import ModelError
from colonnade.models.fitted import Values, fitted, table_of, tried
from colonnade.models.lesson import Lesson
from colonnade.models.stored_estimator import from_bytes, to_bytes

LEAST = 1e-4  # what a probability counts as at least
FAMILIES = ("bernoulli", "multinomial")


class Classifier:
    """Copies of a classifier (a `Regressor` that learns labels only); the first output is zero."""

    fits_loss = True
    needs_labels = True  # methods whose parties get no labels refuse it

    def __init__(self, estimator: Any) -> None:
        """Copies of a classifier with `fit`, and `predict_proba` or `decision_function`; it stays as it is."""
        self.estimator = estimator
        self.outputs, self.seed = 0, 0
        self.contents: list[bytes] = []  # one for classes, else one for each label
        self._copies: list[Any] = []  # the same, read; never changed
        self._trusted: set[str] = set()  # what a fitted copy consists of

    @property
    def library(self) -> str:
        """What the classifier comes with, for the record of the run."""
        return type(self.estimator).__module__.partition(".")[0]

    def open(self, shape: tuple[int, ...], outputs: int, seed: int) -> None:
        """No copy; the classifier is tried on two classes."""
        self.outputs, self.seed, self.contents, self._copies = outputs, seed, [], []
        if not hasattr(self.estimator, "predict_proba") and not hasattr(self.estimator, "decision_function"):
            raise ValueError(f"{type(self.estimator).__name__} has neither predict_proba nor decision_function")
        self._trusted = tried(
            self.estimator, int(np.prod(shape)), lambda x, y: self._fitted(x, y > 0, 0), lambda one, x: _told(one, x, 2)
        )

    def output(self, x: Tensor) -> Tensor:
        """Scores (B, outputs), in float64."""
        found = np.zeros((len(x), self.outputs))
        if self._copies and len(x):
            table = table_of(x)
            if self._together:
                found = _told(self._copies[0], table, self.outputs)
            else:
                told = [_told(one, table, 2) for one in self._copies]
                found = np.stack([one[:, 1] - one[:, 0] for one in told], axis=1)
        return torch.from_numpy(found).to(x.device)

    def learn_labels(self, lesson: Lesson) -> None:
        """Fit the labels; of noisy ones that are shares of several classes, the likeliest."""
        self.check_task(lesson.task.family, lesson.task.words)
        table, targets = table_of(lesson.x), lesson.targets.double().cpu().numpy()
        weights = None if lesson.weights is None else lesson.weights.double().cpu().numpy()
        wanted = [targets.argmax(axis=1)] if lesson.task.exclusive else list(targets.T > 0.5)
        self._read([to_bytes(self._fitted(table, y, k, weights)) for k, y in enumerate(wanted)])

    def check_task(self, family: str, words: str) -> None:
        """Refuse labels that are no classes."""
        if family not in FAMILIES:
            raise ModelError(
                f"{type(self.estimator).__name__} is a classifier, and the labels of a {words} task are numbers; pass "
                "a regressor"
            )

    def approach(self, x: Tensor, target: Tensor, weight: float, effort: int) -> None:
        """Always refused."""
        raise ModelError(f"{type(self.estimator).__name__} is a classifier: it cannot be moved towards numbers")

    def tensors(self) -> dict[str, Tensor]:
        """A file of every copy."""
        return {
            f"classifier.{k}": torch.frombuffer(bytearray(content), dtype=torch.uint8)
            for k, content in enumerate(self.contents)
        }

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Put the copies back.

        Raises:
            ModelError: they hold what this classifier does not consist of.
        """
        self._read([tensors[f"classifier.{k}"].cpu().numpy().tobytes() for k in range(len(tensors))])

    @property
    def _together(self) -> bool:
        """Whether one copy knows all classes."""
        return len(self._copies) < self.outputs

    def _read(self, contents: list[bytes]) -> None:
        """Copies as they would be read after a restart, so that they say the same before one."""
        self.contents = contents
        self._copies = [from_bytes(content, self._trusted) for content in contents]

    def _fitted(self, table: Values, y: Values, output: int, weights: Values | None = None) -> Any:
        if len(np.unique(y)) < 2:
            raise ModelError(
                f"{type(self.estimator).__name__} needs rows of two classes at least, and those of one fold are all of "
                "one; use fewer folds, or trees, which do without"
            )
        return fitted(self.estimator, table, y.astype(np.int64), self.seed, 0, output, weights)

    def __deepcopy__(self, memo: object) -> Classifier:
        """A copy that learns by itself; what was fitted, which nobody changes, is shared."""
        twin = copy.copy(self)
        twin.contents, twin._copies = list(self.contents), list(self._copies)
        return twin

    def __repr__(self) -> str:
        """The classifier."""
        return f"Classifier({self.estimator!r})"


def _told(one: Any, table: Values, classes: int) -> Values:
    """(B, classes) logarithms of probabilities, or values of a decision function; a class never seen has the least."""
    known = np.asarray(one.classes_, dtype=np.int64)
    if hasattr(one, "predict_proba"):
        told = np.log(np.clip(np.asarray(one.predict_proba(table), dtype=np.float64), LEAST, 1 - LEAST))
    else:
        told = np.asarray(one.decision_function(table), dtype=np.float64)
        if told.ndim == 1:  # of two classes: how much more the second one is favoured
            told = np.stack([np.zeros_like(told), told], axis=1)
    found = np.full((len(table), classes), min(np.log(LEAST), told.min()))
    found[:, known] = told
    return found
