"""A classifier over the columns of several parties."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import assert_all_finite, column_or_1d

from colonnade.data.ids import Ids
from colonnade.errors import EstimatorInput
from colonnade.estimators.base import VerticalEstimator
from colonnade.estimators.inputs import Array


class VerticalClassifier(ClassifierMixin, VerticalEstimator):  # type: ignore[misc] # scikit-learn has no types
    """Two or more classes, from the columns of several parties.

    Args:
        method: how the parties train together: a name such as "vimadmm_j", a class or an object of `colonnade.methods`.
        parties: who owns which column of one table: {"income": "bank", ...}, or {"bank": ["income"], ...}; columns
            without names are named by number. A number K: K parties own consecutive blocks of columns, as equal as
            possible (one column each where there are fewer), which is enough to try a method out. Not used where X is a
            dict of tables by party.
        id: of a dict of tables, the column on which rows are matched; as in `Federation.from_tables`. None: all have
            the same rows in the same order.
        model: what each party trains: "auto" tries the kinds of local models that suit the method and the number of
            rows, and keeps the one that is best on the validation rows; "network", "pieces", "ridge", "shrunk",
            "linear", a list of these; or settings of a local model, {"hidden": 64}.
        epochs: passes over the training rows at most.
        patience: evaluations without a better one after which training stops; there are up to four an epoch. None:
            those of 50 rounds, at least 10.
        batch_size: rows per round; None: as suits the local model and the number of rows.
        validation_fraction: share of the rows that is not trained on, and chooses the round that is kept and the local
            model; stratified. Where kinds are compared on fewer than 1,000 such rows, several splits choose
            together, and all rows train again for as long as was best. Where it is fewer than ten rows, all rows
            train, for all epochs.
        metric: what is measured on the validation rows; None: the log loss. The task's own, AUC or accuracy, jumps on
            few rows: it ends trainings early and keeps rounds by chance.
        class_weight: "balanced", or numbers by class; those that are not named have 1.
        columns: how columns of data frames become numbers, as for `Federation.from_tables`: {"scaling": "quantile"}.
        settings: further settings of `colonnade.fit` by name: {"rho": 0.5, "lr": 0.01, "device": "cuda"}.
        privacy: what is promised to whom, as for `colonnade.fit`.
        random_state: of all random choices.

    Attributes:
        classes_: in the order of the columns of `predict_proba`.
        chosen_: the kind of local model that was kept; `chosen_because_` says why, in a sentence.
        tried_: the validation score of each kind that was tried.
        parties_: the columns of each party.
        run_: the training (`colonnade.Run`); `model_` is its model, which can be saved without this object.
        n_iter_: the round that was kept.

    Examples:
        >>> import numpy as np
        >>> from colonnade import VerticalClassifier
        >>> X = np.random.default_rng(0).normal(size=(300, 4))
        >>> y = np.where(X[:, 0] + X[:, 3] > 0, "leaves", "stays")
        >>> owners = {"bank": [0, 1], "telco": [2, 3]}
        >>> classifier = VerticalClassifier(parties=owners, epochs=5, random_state=0).fit(X[:200], y[:200])
        >>> classifier.classes_.tolist(), bool(classifier.score(X[200:], y[200:]) > 0.9)
        (['leaves', 'stays'], True)
    """

    _metric = "log_loss"

    def __init__(  # noqa: PLR0913 - scikit-learn needs every parameter by name
        self,
        method: Any = "vimadmm_j",
        *,
        parties: Any = 2,
        id: Ids = None,
        model: Any = "auto",
        epochs: int = 100,
        patience: int | None = None,
        batch_size: int | None = None,
        validation_fraction: float = 0.15,
        metric: str | None = None,
        class_weight: Any = None,
        columns: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
        privacy: Any = None,
        random_state: Any = None,
    ) -> None:
        super().__init__(
            method, parties=parties, id=id, model=model, epochs=epochs, patience=patience, batch_size=batch_size,
            validation_fraction=validation_fraction, metric=metric, columns=columns, settings=settings, privacy=privacy,
            random_state=random_state,
        )  # fmt: skip
        self.class_weight = class_weight

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> VerticalClassifier:
        """Train.

        Args:
            X: a data frame or an array whose columns `parties` shares out, or a dict of data frames by party.
            y: a class per row; for a dict of tables in the order of the first one, or indexed by id.
            sample_weight: how much each row counts, in training and on validation rows; 0: as if it were not there.
                In the order of `y`, or of a dict of tables indexed by id.
        """
        given = self._read(X, y, sample_weight)
        labels = column_or_1d(given.y, warn=True)
        assert_all_finite(labels, input_name="y")
        check_classification_targets(labels)
        given = type(given)(given.columns, labels, given.weights, given.keys).that_count()
        self.classes_, codes = np.unique(given.y, return_inverse=True)
        if len(self.classes_) < 2:
            raise EstimatorInput(
                f"needed at least two classes to tell apart; y has one class, {self.classes_.tolist()[0]!r}"
            )
        task = "binary" if len(self.classes_) == 2 else "multiclass"
        meaning = {"task": task, "classes": self.classes_.tolist()}
        self._train(given, codes, meaning, class_weights=self.class_weight)
        return self

    def predict_proba(self, X: Any) -> Array:
        """Probabilities (B, K) of rows, given as to `fit`; columns in the order of `classes_`."""
        outputs = self._outputs(X)
        return self.run_.task.probabilities(outputs)

    def predict(self, X: Any) -> Array:
        """The likeliest class (B,) of rows, given as to `fit`."""
        outputs = self._outputs(X)
        return np.asarray(self.classes_[self.run_.task.codes(outputs).numpy().reshape(len(outputs))])

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The accuracy on rows, given as to `fit`."""
        return float(super().score(X, *self._known(X, y, sample_weight)))
