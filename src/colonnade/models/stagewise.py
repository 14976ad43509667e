"""Stagewise: any regressor of scikit-learn's kind as a local model.

    F_0 = 0,    F_t = F_{t-1} + step * a new copy of the estimator, fitted to  target - F_{t-1}(x)

one stage a round, on the rows of the round; every output has an estimator of its own. An estimator needs `fit(X, y)`
and `predict(X)`; skops must be able to keep it without pickle, and equal calls must give equal predictions. Both are
tried on made-up rows before a training (`models/fitted.py`). Labels and increments are fitted in one stage.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from colonnade.errors import ModelError
from colonnade.models.classifier import Classifier
from colonnade.models.fitted import Values, fitted, table_of, tried
from colonnade.models.lesson import Lesson
from colonnade.models.local import Regressor, check_local, shortened
from colonnade.models.stored_estimator import from_bytes, to_bytes


def as_local(party: str, model: object) -> nn.Module | Regressor:
    """A network or a regressor as it is, an estimator as a `Stagewise` or a `Classifier`.

    Raises:
        ModelError: it is none of them.
    """
    estimator = hasattr(model, "fit") and hasattr(model, "predict")
    if isinstance(model, (nn.Module, Regressor)) or not estimator:
        return check_local(party, model)
    return Classifier(model) if _guesses_labels(model) else Stagewise(model)


def _guesses_labels(estimator: object) -> bool:
    """Whether an estimator is a classifier; one that is not made of scikit-learn's classes cannot say so itself."""
    if not hasattr(estimator, "__sklearn_tags__"):
        return getattr(estimator, "_estimator_type", "") == "classifier" or hasattr(estimator, "predict_proba")
    from sklearn.base import is_classifier  # slow to import, and whoever brings an estimator has done so

    return bool(is_classifier(estimator))


class Stagewise:
    """Stages of a scikit-learn-like estimator (a `Regressor`); the first output is zero."""

    def __init__(self, estimator: Any, step: float = 0.5) -> None:
        """Stages of copies of an estimator.

        Args:
            estimator: with `fit` and `predict`; it stays as it is.
            step: the share of a stage's prediction that is added.
        """
        if not 0 < step <= 1:
            raise ModelError(f"the step of a stage must be above 0 and at most 1; it is {step!r}")
        self.estimator, self.step = estimator, step
        self.outputs, self.seed, self.number = 0, 0, 0
        self.contents: list[list[bytes]] = []  # by stage and output
        self._stages: list[list[Any]] = []  # the same, read; never changed
        self._trusted: set[str] = set()  # what a fitted copy of the estimator consists of

    @property
    def library(self) -> str:
        """What the estimator comes with, for the record of the run."""
        return type(self.estimator).__module__.partition(".")[0]

    def open(self, shape: tuple[int, ...], outputs: int, seed: int) -> None:
        """No stage; the estimator is tried."""
        self.outputs, self.seed, self.number, self.contents, self._stages = outputs, seed, 0, [], []
        self._trusted = tried(
            self.estimator, int(np.prod(shape)), lambda x, y: self._fitted(x, y, 0, 0), lambda one, x: one.predict(x)
        )

    def output(self, x: Tensor) -> Tensor:
        """The sum of the stages (B, outputs), in float64."""
        table, out = table_of(x), np.zeros((len(x), self.outputs))
        for stage in self._stages if len(x) else []:
            for output, one in enumerate(stage):
                out[:, output] += self.step * np.asarray(one.predict(table), dtype=np.float64).reshape(len(x))
        return torch.from_numpy(out).to(x.device)

    def again(self, number: int) -> Stagewise:
        """No stage; the estimator was tried before."""
        twin = copy.copy(self)
        twin.number, twin.contents, twin._stages = number, [], []
        return twin

    def approach(self, x: Tensor, target: Tensor, weight: float, effort: int) -> None:
        """One more stage, whatever the effort, fitted to what is left of the target."""
        rest = (target.double() - self.output(x)).cpu().numpy()
        number = len(self.contents)
        self._add([to_bytes(self._fitted(table_of(x), rest[:, k], number, k)) for k in range(self.outputs)])

    def fit_weighted(self, x: Tensor, target: Tensor, weights: Tensor, effort: int | None) -> None:
        """One stage, whatever the effort; an estimator whose fit takes no `sample_weight` gets shorter targets."""
        from sklearn.utils.validation import has_fit_parameter

        if has_fit_parameter(self.estimator, "sample_weight"):
            self._fit(x, target, weights)
        else:
            self._fit(x, shortened(target, weights), None)

    def learn_labels(self, lesson: Lesson) -> None:
        """One stage."""
        self._fit(lesson.x, lesson.targets, None if lesson.weights is None else lesson.weights[:, None])

    def _fit(self, x: Tensor, target: Tensor, weights: Tensor | None) -> None:
        """One stage, fitted to so much more than the target that the share of it that is added gives it.

        `weights` (B, outputs), or (B, 1) for all outputs alike.
        """
        self.contents, self._stages = [], []
        table, wanted = table_of(x), target.double().cpu().numpy() / self.step
        heavy = None if weights is None else weights.double().expand(-1, self.outputs).cpu().numpy()
        rows = [None if heavy is None else np.ascontiguousarray(heavy[:, k]) for k in range(self.outputs)]
        self._add([to_bytes(self._fitted(table, wanted[:, k], 0, k, rows[k])) for k in range(self.outputs)])

    def tensors(self) -> dict[str, Tensor]:
        """A file of every stage and output."""
        return {
            f"stage.{number}.{output}": torch.frombuffer(bytearray(content), dtype=torch.uint8)
            for number, stage in enumerate(self.contents)
            for output, content in enumerate(stage)
        }

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Put the stages back.

        Raises:
            ModelError: they hold what this estimator does not consist of.
        """
        self.contents, self._stages = [], []
        for number in range(len(tensors) // self.outputs):
            names = [f"stage.{number}.{output}" for output in range(self.outputs)]
            self._add([tensors[name].cpu().numpy().tobytes() for name in names])

    def _add(self, contents: list[bytes]) -> None:
        """A stage as it would be read after a restart, so that it predicts the same before one."""
        self.contents.append(contents)
        self._stages.append([from_bytes(content, self._trusted) for content in contents])

    def _fitted(self, table: Values, rest: Values, number: int, output: int, weights: Values | None = None) -> Any:
        return fitted(self.estimator, table, rest, self.seed, number + self.number, output, weights)

    def __deepcopy__(self, memo: object) -> Stagewise:
        """A copy that grows by itself; the stages of now, which nobody changes, are shared."""
        twin = copy.copy(self)
        twin.contents, twin._stages = list(self.contents), list(self._stages)
        return twin

    def __repr__(self) -> str:
        """The estimator and its step."""
        return f"Stagewise({self.estimator!r}, step={self.step})"
