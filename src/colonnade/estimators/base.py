"""What the estimators have in common: reading what is given, choosing a local model, training, and outputs of rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np
import torch
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_consistent_length, check_is_fitted, validate_data

from colonnade.config import build
from colonnade.data.frames import as_frame, is_frame, names_of
from colonnade.data.ids import Ids, id_columns
from colonnade.errors import EstimatorInput
from colonnade.estimators.inputs import Array, Given, cut, in_order, matched, read_tables
from colonnade.estimators.kinds import AUTO, INSIDE, KINDS, LARGE, Circumstances, Try, tries_of
from colonnade.estimators.owners import Owners, owners_of
from colonnade.estimators.tried import Tried, best_of
from colonnade.estimators.validation import LEAST, split_rows
from colonnade.evaluate.metrics import choose_metric
from colonnade.federation import Federation
from colonnade.fit import fit
from colonnade.methods import as_method
from colonnade.methods.base import brings
from colonnade.privacy.settings import PrivacySettings
from colonnade.row_split import RowSplit
from colonnade.rows import check_order
from colonnade.run import Run

NEVER = 1e9  # no score falls so far: patience alone decides, since scores on few rows jump
SPLITS = ((200, 5), (1000, 3))  # with fewer validation rows so many splits choose: few rows choose by chance
PATIENCE, LEAST_TRIED = 50, 10  # rounds without a better evaluation after which training stops, and evaluations
SMALL = 5_000  # training rows below which float64 costs little; a prediction is then the same in whatever company
NO_LABELS = "requires y to be passed, but the target y is None"  # scikit-learn's own words, which its checks look for


class VerticalEstimator(BaseEstimator):  # type: ignore[misc] # scikit-learn has no types
    """Base of the estimators; `VerticalClassifier` says what the parameters mean."""

    _metric: str | None = None  # chooses the round and the local model; None: the task's own
    owners_: Owners | None  # places of each party's columns in one table; None: trained from a dict of tables
    feature_names_in_: Array
    n_features_in_: int

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
        columns: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
        privacy: Any = None,
        random_state: Any = None,
    ) -> None:
        self.method = method
        self.parties = parties
        self.id = id
        self.model = model
        self.epochs = epochs
        self.patience = patience
        self.batch_size = batch_size
        self.validation_fraction = validation_fraction
        self.metric = metric
        self.columns = columns
        self.settings = settings
        self.privacy = privacy
        self.random_state = random_state

    # -- reading --------------------------------------------------------------------------------

    def _read(self, X: Any, y: Any, sample_weight: Any) -> Given:
        """What was given to `fit`; sets what scikit-learn knows of columns, and who owns them."""
        if y is None:
            raise EstimatorInput(f"This {type(self).__name__} estimator {NO_LABELS}")
        self._check_order(X, y, sample_weight)
        if _by_party(X):
            return self._read_tables(X, y, sample_weight)
        if self.id is not None:
            raise EstimatorInput(f"id = {self.id!r} matches the tables of a dict; one table has its rows in one order")
        table, named = self._checked(X, reset=True)
        check_consistent_length(table, y)
        weights = None if sample_weight is None else _check_sample_weight(sample_weight, table, dtype=np.float64)
        columns = list(self.feature_names_in_) if named else list(range(table.shape[1]))
        owners = self.owners_ = owners_of(self.parties, columns, named)
        self.parties_ = {party: [columns[at] for at in places] for party, places in owners.items()}
        return Given(cut(table, owners), np.asarray(y), weights)

    def _read_tables(self, X: Mapping[str, Any], y: Any, sample_weight: Any) -> Given:
        frames = read_tables(X, self.id)
        keys = id_columns(self.id, frames)
        ids = {party: names_of(keys.get(party)) for party in frames}
        self.owners_ = None
        self.parties_ = {party: [c for c in frame.columns if c not in ids[party]] for party, frame in frames.items()}
        names = [f"{party}.{column}" for party, columns in self.parties_.items() for column in columns]
        self.feature_names_in_, self.n_features_in_ = np.asarray(names, dtype=object), len(names)
        return matched(frames, self.id, y, sample_weight)

    def _checked(self, X: Any, reset: bool) -> tuple[Any, bool]:
        """One table as a data frame or an array of numbers, and whether its columns have names."""
        names = getattr(X, "columns", None)
        framed = names is not None and len(names) > 0 and all(isinstance(name, str) for name in names)
        if framed and (reset or hasattr(self, "feature_names_in_")):
            validate_data(self, X, reset=reset, skip_check_array=True)
            return as_frame("X", X, None), True
        table = validate_data(self, X, reset=reset, dtype=[np.float64, np.float32])
        if not reset and hasattr(self, "feature_names_in_"):  # scikit-learn has warned that they are taken as in order
            import pandas as pd  # it was trained from a data frame

            return pd.DataFrame(table, columns=self.feature_names_in_), True
        return table, False

    # -- training -------------------------------------------------------------------------------

    def _train(self, given: Given, classes: Array | None, meaning: Mapping[str, Any], **more: Any) -> None:
        """Try the kinds of local models and keep the best.

        Args:
            given: rows, labels as the task has them, and weights.
            classes: (N,) the number of each row's class; None: the labels are no classes.
            meaning: what `Federation.from_arrays` needs to know of the labels.
            more: further settings of the training.
        """
        if self.columns is not None and not given.framed:
            raise EstimatorInput("columns says how columns of data frames become numbers; X is an array of numbers")
        for name in ("epochs", "patience", "batch_size"):
            value = getattr(self, name)
            unset = value is None and name != "epochs"
            if not unset and (isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1):
                raise EstimatorInput(f"{name} = {value!r}: needed a whole number from 1")
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        settings = {"seed": seed, **more}
        splits = [split_rows(len(given.y), classes, self.validation_fraction, seed)]
        validation = len(splits[0].validation)
        now = self._circumstances(given, len(splits[0].train), classes)
        tries = self._tries(now, validation)
        count = next((count for few, count in SPLITS if validation < few), 1) if len(tries) > 1 else 1
        splits += [split_rows(len(given.y), classes, self.validation_fraction, seed + k) for k in range(1, count)]
        tried = []
        for columns, alike in groupby(tries, key=lambda one: one.columns):
            federations = [self._federation(given, rows, columns, meaning) for rows in splits]
            tried += [Tried.of(one, [self._fit_one(f, one, settings) for f in federations]) for one in alike]
        best, several = best_of(tried), len(splits) > 1
        self.run_ = self._train_again(best, now.rows, given, meaning, settings) if several else best.run
        self.chosen_ = best.kind
        self.tried_ = {found.kind: found.score for found in tried}
        self.chosen_because_ = self._reason(tried, validation, len(splits))
        self.n_iter_ = self.run_.result["best_round"] or self.run_.result["rounds"]

    def _train_again(
        self, best: Tried, rows: int, given: Given, meaning: Mapping[str, Any], settings: Mapping[str, Any]
    ) -> Run:
        """With all rows, for as many passes as were best where only `rows` trained, and otherwise alike."""
        count, one = len(given.y), best.tried
        if one.batch == rows:  # all of them in every round
            one = replace(one, batch=min(count, LARGE))
        federation = self._federation(given, split_rows(count, None, 0, 0), one.columns, meaning)
        passes = (best.round or 1) / self._rounds(rows, best.tried)
        return self._fit_one(federation, one, {**settings, "rounds": max(1, round(passes * self._rounds(count, one)))})

    def _circumstances(self, given: Given, rows: int, classes: Array | None) -> Circumstances:
        cells = rows * self.n_features_in_ if given.framed else None
        return Circumstances(self.method, rows, len(given.columns), classes is not None, cells)

    def _federation(
        self, given: Given, split: RowSplit, columns: Mapping[str, Any], meaning: Mapping[str, Any]
    ) -> Federation:
        spared = {"columns_from": "others"} if given.framed and self._promise().by_row else {}
        return given.federation(split, {**columns, **(self.columns or {})}, **spared, **meaning)

    def _tries(self, now: Circumstances, validation: int) -> list[Try]:
        """What is compared: nothing without validation rows, nor with noise, whose price every training pays."""
        tries = tries_of(self.model, now)
        if self._spends() and len(tries) > 1 and self.model != AUTO:
            raise EstimatorInput(
                f"model = {self.model!r}: with noise, each kind that is tried would spend epsilon again, and the run "
                "would tell its own only; name one kind"
            )
        return tries if validation and not self._spends() else tries[:1]

    def _promise(self) -> PrivacySettings:
        given = self.privacy
        return given if isinstance(given, PrivacySettings) else build(PrivacySettings, given or {}, "privacy")

    def _spends(self) -> bool:
        """Whether a training spends epsilon: by `privacy`, or by noise that the method brings unless told not to."""
        promise = self._promise()
        return promise.noised or promise.labels.protects or bool(brings(as_method(self.method)))

    def _batch(self, rows: int, one: Try) -> int:
        usual = rows if getattr(as_method(self.method), "whole", False) else one.batch
        return min(int(self.batch_size or usual), rows)

    def _rounds(self, rows: int, one: Try) -> int:
        """Of a pass over so many rows."""
        return math.ceil(rows / self._batch(rows, one))

    def _fit_one(self, federation: Federation, one: Try, more: Mapping[str, Any]) -> Run:
        rows, validation = len(federation.split.train), len(federation.split.validation)
        an_epoch = self._rounds(rows, one)
        evaluate_every = max(1, an_epoch // 4) if validation else 0
        patience = self.patience or max(LEAST_TRIED, math.ceil(PATIENCE / max(1, evaluate_every)))
        training = {
            "rounds": min(int(self.epochs), one.epochs or int(self.epochs)) * an_epoch,
            "batch": self._batch(rows, one),
            "evaluate_every": evaluate_every,
            "stopping": {"patience": int(patience), "drop": NEVER},
            "metric": self.metric or self._metric,
            "dtype": "float64" if rows < SMALL else "float32",
        }
        said = dict(self.settings or {})
        usual = {**training, **one.settings, **more}
        keywords = {name: value for name, value in usual.items() if INSIDE.get(name) not in said} | said
        return fit(federation, self.method, model=one.model, privacy=self.privacy, progress=False, **keywords)

    def _reason(self, tried: list[Tried], validation: int, splits: int) -> str:
        """Why this local model, in one sentence."""
        if not validation:
            return f"{self.chosen_}: fewer than {LEAST} rows could be spared to compare kinds of local models."
        metric = choose_metric(self.run_.task, self.run_.result["validation_metric"])
        told = [f"{_words(one.kind)} {'no score' if one.score is None else metric.told(one.score)}" for one in tried]
        often = f", mean of {splits} splits" if splits > 1 else ""
        ahead = best_of(tried).gain < max(one.gain for one in tried)
        near = "; the simplest of those about as good" if ahead else ""
        if len(tried) == 1 and self.model == AUTO:
            why = "trying others would spend epsilon again" if self._spends() else "the method trains no other"
            return f"{self.chosen_}: {why} ({metric.title} on {validation} validation rows{often}: {told[0]})."
        if len(tried) == 1:
            return f"{self.chosen_}: asked for ({metric.title} on {validation} validation rows{often}: {told[0]})."
        return f"{self.chosen_}: {metric.title} on {validation} validation rows{often}: {', '.join(told)}{near}."

    # -- predicting -----------------------------------------------------------------------------

    @property
    def model_(self) -> Any:
        """What was trained (`colonnade.Model`): save it, or take it apart by party."""
        check_is_fitted(self, "run_")
        return self.run_.model

    def _known(self, X: Any, y: Any, weights: Any) -> tuple[Any, Any]:
        """Labels of rows and their weights, given as to `fit`, in the order of the answers about these rows."""
        self._check_order(X, y, weights)
        return in_order(read_tables(X, self.id), self.id, y, weights) if _by_party(X) else (y, weights)

    def _check_order(self, X: Any, y: Any, weights: Any) -> None:
        """Refuse what is matched by position and says by its index that it is in another order."""
        if self.id is None:
            tables = {f"X, party {party!r}": table for party, table in X.items()} if _by_party(X) else {"X": X}
            check_order({**tables, "y": y, "sample_weight": weights})

    def _outputs(self, X: Any) -> torch.Tensor:
        """Outputs (B, K) of rows, in the order of the (first) table."""
        check_is_fitted(self, "run_")
        if _by_party(X):
            if self.owners_ is not None:
                raise EstimatorInput("X is a dict of tables, and the training had one table; give one as there")
            return self.run_.model.logits(read_tables(X, self.id), id=self.id).double()
        if self.owners_ is None:
            raise EstimatorInput(
                f"X: needed a dict of tables by party, as in training ({', '.join(self.parties_)}); got "
                f"{type(X).__name__}"
            )
        table = self._checked(X, reset=False)[0]
        blocks = cut(table, self.owners_)
        if self.run_.model.design.in_one_place and not is_frame(table):  # trained on them side by side
            blocks = dict.fromkeys(self.run_.model.parts, np.hstack(list(blocks.values())))
        return self.run_.model.logits(blocks).double()


def _by_party(X: Any) -> bool:
    """Whether these are tables by party; a sparse matrix of scipy may be a dict, too."""
    return isinstance(X, Mapping) and not issparse(X)


def _words(kind: str) -> str:
    return KINDS[kind].words if kind in KINDS else "the local model of the settings"
