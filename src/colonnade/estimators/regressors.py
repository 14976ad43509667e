"""Regressors over the columns of several parties: of numbers, and of counts."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import d2_tweedie_score
from sklearn.utils.validation import check_array, column_or_1d

from colonnade.errors import EstimatorInput
from colonnade.estimators.base import VerticalEstimator
from colonnade.estimators.inputs import Array, Given


class VerticalRegressor(RegressorMixin, VerticalEstimator):  # type: ignore[misc] # scikit-learn has no types
    """One number per row, or several, from the columns of several parties.

    Parameters and attributes are those of `VerticalClassifier`, without classes and their weights; unless it is said,
    `metric` is r2.

    Examples:
        >>> import numpy as np
        >>> from colonnade import VerticalRegressor
        >>> X = np.random.default_rng(0).normal(size=(300, 4))
        >>> y = X[:, 0] - 2 * X[:, 3]
        >>> regressor = VerticalRegressor(parties={"bank": [0, 1], "telco": [2, 3]}, epochs=10, random_state=0)
        >>> bool(regressor.fit(X[:200], y[:200]).score(X[200:], y[200:]) > 0.99), regressor.chosen_
        (True, 'ridge')
    """

    _task = "regression"

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> VerticalRegressor:
        """Train; `X` and `sample_weight` as for `VerticalClassifier.fit`, `y` a number per row, or several."""
        given = self._read(X, y, sample_weight)
        given = Given(given.columns, self._numbers(given.y), given.weights, given.keys).that_count()
        if not (given.y != given.y[:1]).any():
            found = "1 sample" if len(given.y) == 1 else f"the same in all {len(given.y)} rows"
            raise EstimatorInput(f"needed numbers that differ, to learn how; y is {found}")
        self._train(given, None, {"task": self._task})
        return self

    def _numbers(self, y: Array) -> Array:
        """Labels as floats (N,) or (N, K)."""
        return np.asarray(check_array(y, ensure_2d=False, dtype=np.float64, input_name="y"))

    def predict(self, X: Any) -> Array:
        """The number (B,) of rows, given as to `fit`; (B, K) of several."""
        outputs = self._outputs(X)
        return np.asarray(self.run_.task.decide(outputs))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R2 on rows, given as to `fit`."""
        return float(super().score(X, *self._known(X, y, sample_weight)))

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn may expect: several numbers per row are welcome."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


class VerticalCountRegressor(VerticalRegressor):
    """How often something happens, 0, 1, 2, ...: the expected count (Poisson), from the columns of several parties.

    Parameters and attributes are those of `VerticalClassifier`, without classes and their weights; `metric` is
    poisson_deviance unless it is said.

    Examples:
        >>> import numpy as np
        >>> from colonnade import VerticalCountRegressor
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(600, 4))
        >>> y = rng.poisson(np.exp(X[:, 0] - X[:, 3] / 2))
        >>> owners = {"bank": [0, 1], "telco": [2, 3]}
        >>> regressor = VerticalCountRegressor(parties=owners, model="ridge", epochs=10, random_state=0)
        >>> bool(regressor.fit(X[:400], y[:400]).score(X[400:], y[400:]) > 0.3)
        True
    """

    _task = "count"

    def _numbers(self, y: Array) -> Array:
        """Counts as floats (N,)."""
        return super()._numbers(column_or_1d(y, warn=True))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The share of the Poisson deviance that is explained (D2): 1 at best, 0 for the mean of `y`."""
        y, sample_weight = self._known(X, y, sample_weight)
        return float(d2_tweedie_score(y, self.predict(X), sample_weight=sample_weight, power=1))

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn may expect: labels that are not negative, one per row."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = False
        tags.target_tags.positive_only = True
        return tags
