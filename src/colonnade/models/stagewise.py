"""Stagewise: any regressor of scikit-learn's kind as a local model.

    F_0 = 0,    F_t = F_{t-1} + step * a new copy of the estimator, fitted to  target - F_{t-1}(x)

one stage a round, on the rows of the round; every output has an estimator of its own. An estimator needs `fit(X, y)`
and `predict(X)`; skops must be able to keep it without pickle, and equal calls must give equal predictions. Both are
tried on made-up rows before a training. Every parameter called `random_state` is set from the run's seed, the party and
the round, also one that is None.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from colonnade.errors import ModelError
from colonnade.models.local import Regressor, check_local
from colonnade.models.stored_estimator import from_bytes, to_bytes, types_in
from colonnade.randomness import key, stream

MADE_UP = 48  # rows on which an estimator is tried: enough for trees that want 20 in a leaf
STATE = "random_state"

Values = np.ndarray[Any, Any]


def as_local(party: str, model: object) -> nn.Module | Regressor:
    """A network or a regressor as it is, an estimator as a `Stagewise`.

    Raises:
        ModelError: it is a classifier, or neither of them.
    """
    estimator = hasattr(model, "fit") and hasattr(model, "predict")
    if isinstance(model, (nn.Module, Regressor)) or not estimator:
        return check_local(party, model)
    from sklearn.base import is_classifier  # slow to import, and whoever brings an estimator has done so

    if is_classifier(model):
        raise ModelError(
            f"the local model of party {party!r} is {type(model).__name__}, a classifier; a party is asked to move its "
            "outputs towards numbers, not to guess labels: pass a regressor"
        )
    return Stagewise(model)


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
        self.outputs, self.seed = 0, 0
        self.contents: list[list[bytes]] = []  # by stage and output
        self._stages: list[list[Any]] = []  # the same, read; never changed
        self._trusted: set[str] = set()  # what a fitted copy of the estimator consists of

    @property
    def library(self) -> str:
        """What the estimator comes with, for the record of the run."""
        return type(self.estimator).__module__.partition(".")[0]

    def open(self, shape: tuple[int, ...], outputs: int, seed: int) -> None:
        """No stage; the estimator is tried."""
        self.outputs, self.seed, self.contents, self._stages = outputs, seed, [], []
        self._trusted = self._tried(int(np.prod(shape)))

    def output(self, x: Tensor) -> Tensor:
        """The sum of the stages (B, outputs), in float64."""
        table, out = _table(x), np.zeros((len(x), self.outputs))
        for stage in self._stages if len(x) else []:
            for output, fitted in enumerate(stage):
                out[:, output] += self.step * np.asarray(fitted.predict(table), dtype=np.float64).reshape(len(x))
        return torch.from_numpy(out).to(x.device)

    def approach(self, x: Tensor, target: Tensor, weight: float, effort: int) -> None:
        """One more stage, whatever the effort, fitted to what is left of the target."""
        rest = (target.double() - self.output(x)).cpu().numpy()
        number = len(self.contents)
        self._add([to_bytes(self._fitted(_table(x), rest[:, k], number, k)) for k in range(self.outputs)])

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

    def _fitted(self, table: Values, rest: Values, number: int, output: int) -> Any:
        from sklearn.base import clone

        made = clone(self.estimator, safe=False)
        seeds = {
            name: key(self.seed, f"{name} {value if isinstance(value, int) else ''}", str(output), number) % 2**31
            for name, value in (made.get_params() if hasattr(made, "get_params") else {}).items()
            if name == STATE or name.endswith(f"__{STATE}")
        }
        if seeds:
            made.set_params(**seeds)
        made.fit(table, rest)
        return made

    def _tried(self, width: int) -> set[str]:
        """The types that a fitted copy consists of.

        Raises:
            ValueError: it cannot be kept, or two equal fits predict differently.
        """
        from threadpoolctl import threadpool_limits  # type: ignore[import-untyped] # scikit-learn brings it

        drawn = stream(0, "made-up rows").normal(size=(MADE_UP, width + 1))
        x, y, name = drawn[:, :-1], drawn[:, -1], type(self.estimator).__name__
        with warnings.catch_warnings(), threadpool_limits(1):  # made-up rows tell nothing about convergence
            warnings.simplefilter("ignore")
            one, two = (self._fitted(x, y, 0, 0) for _ in range(2))
            try:
                content = to_bytes(one)
                kept = from_bytes(content, types_in(content))
            except Exception as error:  # skops has no common base of what it raises
                raise ValueError(
                    f"{name} cannot be kept in a file without pickle ({type(error).__name__}: {error}); use one that "
                    "skops can write"
                ) from None
            if not all(np.array_equal(other.predict(x), one.predict(x)) for other in (two, kept)):
                raise ValueError(
                    f"two equal fits of {name} predict differently, so that no run with it could be repeated; give "
                    "whatever it draws from a parameter called random_state"
                )
        return types_in(content)

    def __deepcopy__(self, memo: object) -> Stagewise:
        """A copy that grows by itself; the stages of now, which nobody changes, are shared."""
        twin = copy.copy(self)
        twin.contents, twin._stages = list(self.contents), list(self._stages)
        return twin

    def __repr__(self) -> str:
        """The estimator and its step."""
        return f"Stagewise({self.estimator!r}, step={self.step})"


def _table(x: Tensor) -> Values:
    """(B, F) as scikit-learn reads it."""
    found: Values = x.flatten(1).cpu().numpy()
    return found
