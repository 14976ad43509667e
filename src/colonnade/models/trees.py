"""Trees: a local model of boosted trees that grows, by LightGBM.

    F_0 = 0,    F_t = F_{t-1} + rate * tree fitted to  target - F_{t-1}(x)  in least squares

on the rows of the round, so many trees for each local step. Every output has trees of its own. What was grown stays: a
round adds trees and changes none. Leaves are shrunk towards zero as if `l2` more rows with nothing left to explain lay
in each; no average is taken off first, of which every party would add the whole.

An increment (`assisted_boosting`) is so many trees by themselves, for targets that count differently row by row. Where
a party fits labels by itself, they are grown from an average, by the loss of the labels' family, and as many as a tenth
of the rows that is held out finds useful.

The same rows and targets give the same trees: seeds are those of the party and of the number of trees that it has, and
LightGBM's results do not depend on the number of threads. What is kept is LightGBM's own text of the trees of each
round, and trees are always summed round by round as they were read from it, so that a restart changes no bit. Sums over
the rows that were asked for last are remembered: most rounds ask for the same rows, in another order, and then only new
trees are evaluated. So that their order does not matter, rows are always handed to LightGBM in one that follows from
their content.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from colonnade.config import Settings
from colonnade.extras import need
from colonnade.models.lesson import Lesson
from colonnade.models.local import tensor_text, text_tensor
from colonnade.randomness import key, stream

FEWEST = 3  # rows of a leaf, however few rows a round has
BETWEEN = "\f"  # the texts of two rounds
REMEMBERED = 3  # tables of rows whose sums are kept: those that train, those that validate, and others
SHARE = 40  # a leaf needs no more than this part of the round's rows
FIXED = {
    "objective": "regression",
    "boost_from_average": False,  # M parties would add M averages
    "deterministic": True,
    "force_row_wise": True,  # else LightGBM chooses by a clock
    "feature_pre_filter": False,  # no column is dropped for what the rows of one round say
    "verbosity": -1,
}

OBJECTIVES = {"": "regression", "normal": "regression", "poisson": "poisson"}  # LightGBM's names of a family's loss,
HARD, SOFT, CLASSES = "binary", "cross_entropy", "multiclass"  # of yes/no, of noisy shares of a yes, and of classes

Values = np.ndarray[Any, Any]


class TreeSettings(Settings):
    """How boosted trees are grown."""

    rate: float = Field(0.1, gt=0, le=1, description="share of what is left to explain that a tree takes")
    leaves: int = Field(15, ge=2, description="leaves of a tree at most")
    l2: float = Field(1.0, ge=0, description="shrinks leaves, as so many more rows with nothing to explain would")
    smallest_leaf: int = Field(
        20, ge=1, description="rows of a leaf at least; a fortieth of the round's rows where these are few, but 3"
    )
    columns: float = Field(0.8, gt=0, le=1, description="share of the columns that a tree may use, drawn for each")
    label_rate: float = Field(0.1, gt=0, le=1, description="the rate where a party fits labels by itself (one_message)")
    increment: int = Field(10, ge=1, description="trees of one increment (assisted_boosting)")
    most: int = Field(600, ge=1, description="trees at most where a party fits labels by itself (one_message)")
    patience: int = Field(
        30, ge=1, description="trees without gain on the tenth of rows held out that end such a fit (one_message)"
    )
    bins: int = Field(255, ge=2, description="different values that are told apart in a column at most")
    per_step: int = Field(1, ge=1, description="trees that a local step adds")
    threads: int = Field(1, ge=1, description="threads that grow a tree; the trees are the same with any number")


class Trees:
    """The boosted trees of one party (a `Regressor`); the first output is zero."""

    fits_loss = True
    library = "lightgbm"  # recorded with the run: another version may grow other trees
    counts_from = "the mean of the rows that grew the trees"  # as LightGBM's SHAP values do

    def __init__(self, settings: TreeSettings) -> None:
        self.settings = settings
        self._lightgbm = need("lightgbm", extra="trees", purpose="encoder = 'trees'")
        self.seed, self.number = 0, 0
        self.shape: tuple[int, ...] = ()
        self.texts: list[list[str]] = []  # of each output and round, as LightGBM writes a model
        self._boosters: list[list[Any]] = []  # the same, read; never changed
        self._sums: dict[bytes, tuple[int, Values]] = {}  # by rows: of how many rounds, and the sums (B, outputs)
        self._known: list[_Rows] = []  # the tables that were asked about last; shared by all copies
        self._data: tuple[object, Any] = (None, None)  # the last rows that trees were grown on, as LightGBM has them

    def open(self, shape: tuple[int, ...], outputs: int, seed: int) -> None:
        """No tree for any output."""
        self.shape, self.seed, self.number = shape, seed, 0
        self._read([[] for _ in range(outputs)])

    def output(self, x: Tensor) -> Tensor:
        """The sum of the trees (B, outputs), in float64."""
        rows = _Rows.of(x, self._known)
        out = np.empty((len(x), len(self.texts)))
        out[rows.order] = self._summed(rows)
        return torch.from_numpy(out).to(x.device)

    def again(self, number: int) -> Trees:
        """No tree; what was prepared for the last rows goes over to it."""
        twin = copy.copy(self)
        twin.number = number
        twin._read([[] for _ in self.texts])
        twin._data, self._data, self._sums = self._data, (None, None), {}
        return twin

    def approach(self, x: Tensor, target: Tensor, weight: float, effort: int) -> None:
        """`effort` times `per_step` more trees; where trees are due does not depend on the weight of the whole."""
        self._grow(_Rows.of(x, self._known), target, None, effort * self.settings.per_step)

    def fit_weighted(self, x: Tensor, target: Tensor, weights: Tensor, effort: int | None) -> None:
        """`increment` trees, or `effort` times `per_step`; a leaf takes weighted means."""
        if any(self.texts):
            self._read([[] for _ in self.texts])
        count = self.settings.increment if effort is None else effort * self.settings.per_step
        self._grow(_Rows.of(x, self._known), target, weights, count)

    def _grow(self, rows: _Rows, target: Tensor, weights: Tensor | None, count: int) -> None:
        """So many more trees for what is left of a target (B, outputs)."""
        wanted = _sorted(target, rows)
        heavy = None if weights is None else _sorted(weights, rows)
        now, leaf = self._summed(rows), min(self.settings.smallest_leaf, max(FEWEST, len(rows.order) // SHARE))
        data, parameters = self._dataset(rows, leaf), self._parameters(leaf) | {"metric": "none"}
        fresh, reached = not any(self._boosters), np.empty_like(now)  # from zero, LightGBM's own sums are ours
        for output, boosters in enumerate(self._boosters):
            number = sum(booster.num_trees() for booster in boosters)
            purpose = "trees" if self.number == 0 else f"trees of increment {self.number}"
            seed = key(self.seed, purpose, str(output), number) % 2**31
            data.set_field("label", wanted[output].astype(np.float32))  # set_label and others look for data frames
            data.set_field("weight", None if heavy is None else heavy[output])
            data.set_field("init_score", np.ascontiguousarray(now[:, output]))
            grown = self._lightgbm.Booster({**parameters, "seed": seed}, data)  # `train` would write and read it again
            for _ in range(count):
                grown.update()
            if fresh:
                reached[:, output] = _reached(grown)
            self.texts[output].append(grown.model_to_string())
            boosters.append(self._lightgbm.Booster(model_str=self.texts[output][-1]))
        if fresh:
            self._sums[rows.digest] = (1, reached)

    def learn_labels(self, lesson: Lesson) -> None:
        """Trees by the loss of the labels' family, until the rows held out are no better; classes share one model."""
        held, family = lesson.held_out.cpu().numpy(), lesson.task.family
        table, targets = _table(lesson.x), lesson.targets.double().cpu().numpy()
        weights = None if lesson.weights is None else lesson.weights.double().cpu().numpy()
        if family == "multinomial":
            together = self._grown(CLASSES, table, targets.argmax(axis=1), weights, held, 0)
            self._read([[together], *([] for _ in self.texts[1:])])
            return
        grown = []
        for output, wanted in enumerate(targets.T):
            hard = bool(np.isin(wanted, (0.0, 1.0)).all())
            objective = (HARD if hard else SOFT) if family == "bernoulli" else OBJECTIVES[family]
            grown.append([self._grown(objective, table, np.ascontiguousarray(wanted), weights, held, output)])
        self._read(grown)

    def contributions(self, x: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
        """LightGBM's own SHAP values; `start` is not used."""
        table, width = _table(x), int(np.prod(self.shape))
        told = np.zeros((len(self.texts), len(x), width + 1))
        for output, boosters in enumerate(self._boosters):
            for booster in boosters if len(x) else []:
                found = booster.predict(table, pred_contrib=True, num_threads=self.settings.threads)
                told[_outputs(booster, output)] += found.reshape(len(x), -1, width + 1).transpose(1, 0, 2)
        values = torch.from_numpy(told).permute(1, 2, 0)  # (B, F + 1, outputs)
        base = values[0, -1] if len(x) else torch.zeros(len(self.texts), dtype=torch.float64)
        return values[:, :-1].reshape(len(x), *self.shape, -1), base

    def tensors(self) -> dict[str, Tensor]:
        """The trees of each output as LightGBM's texts, one for each round."""
        return {f"trees.{output}": text_tensor(BETWEEN.join(texts)) for output, texts in enumerate(self.texts)}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Put the trees back."""
        joined = [tensor_text(tensors[f"trees.{output}"]) for output in range(len(self.texts))]
        self._read([text.split(BETWEEN) if text else [] for text in joined])

    def _read(self, texts: list[list[str]]) -> None:
        self.texts, self._sums, self._data = texts, {}, (None, None)
        self._boosters = [[self._lightgbm.Booster(model_str=text) for text in several] for several in texts]

    def _summed(self, rows: _Rows) -> Values:
        """(B, outputs) in the order of the sorted rows; not to be changed."""
        count = len(rows.order)
        rounds, sums = self._sums.pop(rows.digest, (0, np.zeros((count, len(self.texts)))))
        if count and any(boosters[rounds:] for boosters in self._boosters):
            sums = sums.copy()
            for output, boosters in enumerate(self._boosters):
                for booster in boosters[rounds:]:
                    found = booster.predict(rows.given, raw_score=True, num_threads=self.settings.threads)
                    sums[:, _outputs(booster, output)] += found.reshape(count, -1)[rows.order]
        self._sums[rows.digest] = (max(map(len, self._boosters), default=0), sums)  # the last place: asked for last
        while len(self._sums) > REMEMBERED:
            self._sums.pop(next(iter(self._sums)))
        return sums

    def _dataset(self, rows: _Rows, leaf: int) -> Any:
        """The rows as LightGBM has them; those of the last round where they are the same."""
        if self._data[0] != (rows.digest, leaf):
            data = self._lightgbm.Dataset(rows.given[rows.order], params=self._parameters(leaf))
            data.set_label(np.zeros(len(rows.order)))
            data.set_init_score(np.zeros(len(rows.order)))
            self._data = ((rows.digest, leaf), data.construct())
        return self._data[1]

    def _grown(
        self, objective: str, table: Values, y: Values, weights: Values | None, held: Values, output: int
    ) -> str:
        """A model that fits labels y (B,), grown without the rows held out, as LightGBM's text."""
        s, lightgbm = self.settings, self._lightgbm
        leaf = min(s.smallest_leaf, max(FEWEST, int((~held).sum()) // SHARE))
        parameters = self._parameters(leaf) | {
            "objective": objective,
            "boost_from_average": True,  # whoever weighs the scores has an intercept of its own
            "learning_rate": s.label_rate,
            "seed": key(self.seed, "trees of labels", str(output)) % 2**31,
        }
        if objective == CLASSES:
            parameters["num_class"] = len(self.texts)

        def part(rows: Values, of: Any = None) -> Any:
            counted = None if weights is None else weights[rows]
            return lightgbm.Dataset(table[rows], label=y[rows], weight=counted, params=parameters, reference=of)

        learning = part(~held)
        stop = [lightgbm.early_stopping(s.patience, verbose=False)] if held.any() else []
        judging = [part(held, learning)] if held.any() else None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that no split is left is no news
            model = lightgbm.train(parameters, learning, s.most, valid_sets=judging, callbacks=stop)
        return str(model.model_to_string(num_iteration=model.best_iteration or None))

    def _parameters(self, leaf: int) -> dict[str, Any]:
        s = self.settings
        return FIXED | {
            "learning_rate": s.rate,
            "num_leaves": s.leaves,
            "lambda_l2": s.l2,
            "min_data_in_leaf": leaf,
            "feature_fraction": s.columns,
            "max_bin": s.bins,
            "num_threads": s.threads,
            "data_random_seed": key(self.seed, "trees bins") % 2**31,
        }

    def __deepcopy__(self, memo: object) -> Trees:
        """A copy that grows by itself; the trees of now, which nobody changes, are shared."""
        twin = copy.copy(self)
        twin.texts, twin._boosters = [list(one) for one in self.texts], [list(one) for one in self._boosters]
        twin._sums, twin._data, twin._known = dict(self._sums), (None, None), self._known
        return twin

    def __repr__(self) -> str:
        """The settings."""
        return f"Trees({self.settings!r})"


def _sorted(values: Tensor, rows: _Rows) -> Values:
    """(outputs, B) in the order of the sorted rows."""
    return np.ascontiguousarray(values.double().cpu().numpy()[rows.order].T)


def _reached(grown: Any) -> Values:
    """(B,) the sums of the trees over the rows that grew them, which LightGBM has kept, without a prediction."""
    kept: list[Values] = []

    def keep(sums: Values, _: object) -> tuple[str, float, bool]:
        kept.append(sums.copy())
        return "sums", 0.0, False

    grown.eval_train(keep)
    return kept[0]


def _outputs(booster: Any, output: int) -> slice:
    """For which outputs a model speaks: its own, or all of them where they are classes."""
    return slice(None) if booster.num_model_per_iteration() > 1 else slice(output, output + 1)


@dataclass(frozen=True)
class _Rows:
    """Rows, and an order of them that follows from their content, so that equal sets of rows are equal."""

    order: Values  # (B,) where each of the sorted rows stands among those that were given
    given: Values  # (B, F) as they were given; a copy
    digest: bytes  # of the sorted rows

    @classmethod
    def of(cls, x: Tensor, known: list[_Rows]) -> _Rows:
        """Those of a table; `known` are the last ones, among which it often is, and becomes the first."""
        given = _table(x)
        same = next((rows for rows in known if rows._is(given)), None)
        found = cls._sorted(given) if same is None else same
        known[:] = [found, *(rows for rows in known if rows is not found)][:REMEMBERED]
        return found

    def _is(self, given: Values) -> bool:
        """Whether these are the rows of a table, in its order; to the bit."""
        if given.shape != self.given.shape or given.dtype != self.given.dtype:
            return False
        mine, theirs = self.given.view(np.uint32), given.view(np.uint32)
        return np.array_equal(mine[:16], theirs[:16]) and np.array_equal(mine, theirs)  # others differ early

    @classmethod
    def _sorted(cls, given: Values) -> _Rows:
        words = given.view(np.uint32)
        mixed = np.zeros(len(given), dtype=np.uint64)
        for column, factor in zip(words.T, _multipliers(words.shape[1]), strict=True):  # no copy of the whole table
            mixed += column * factor
        order = np.argsort(mixed, kind="stable")
        about = repr((given.shape, given.dtype)).encode()
        digest = hashlib.blake2b(given[order].tobytes() + about, digest_size=16).digest()
        return cls(order, given.copy(), digest)  # whoever gave them may change them


@functools.cache
def _multipliers(count: int) -> Values:
    """(count,) odd numbers of 64 bits, the same everywhere."""
    return stream(0, "order of rows").integers(0, 2**63, size=count, dtype=np.uint64) * np.uint64(2) + np.uint64(1)


def _table(x: Tensor) -> Values:
    """(B, F) as LightGBM reads it, without a copy where that is possible."""
    return np.ascontiguousarray(x.flatten(1).cpu().numpy())
