"""Trees: a local model of boosted trees that grows, by LightGBM.

    F_0 = 0,    F_t = F_{t-1} + rate * tree fitted to  target - F_{t-1}(x)  in least squares

on the rows of the round, so many trees for each local step. Every output has trees of its own. What was grown stays: a
round adds trees and changes none. Leaves are shrunk towards zero as if `l2` more rows with nothing left to explain lay
in each; no average is taken off first, of which every party would add the whole.

The same rows and targets give the same trees: seeds are those of the party and of the number of trees that it has, and
LightGBM's results do not depend on the number of threads. What is kept is LightGBM's own text; a model that goes on is
always one that was read from it, so that a restart changes no bit.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from colonnade.config import Settings
from colonnade.extras import need
from colonnade.models.local import tensor_text, text_tensor
from colonnade.randomness import key

FEWEST = 3  # rows of a leaf, however few rows a round has
SHARE = 40  # a leaf needs no more than this part of the round's rows
FIXED = {
    "objective": "regression",
    "boost_from_average": False,  # M parties would add M averages
    "deterministic": True,
    "force_row_wise": True,  # else LightGBM chooses by a clock
    "feature_pre_filter": False,  # no column is dropped for what the rows of one round say
    "verbosity": -1,
}

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
    bins: int = Field(255, ge=2, description="different values that are told apart in a column at most")
    per_step: int = Field(1, ge=1, description="trees that a local step adds")
    threads: int = Field(1, ge=1, description="threads that grow a tree; the trees are the same with any number")


class Trees:
    """The boosted trees of one party (a `Regressor`); the first output is zero."""

    library = "lightgbm"  # recorded with the run: another version may grow other trees
    counts_from = "the mean of the rows that grew the trees"  # as LightGBM's SHAP values do

    def __init__(self, settings: TreeSettings) -> None:
        self.settings = settings
        self._lightgbm = need("lightgbm", extra="trees", purpose="encoder = 'trees'")
        self.seed = 0
        self.shape: tuple[int, ...] = ()
        self.texts: list[str] = []  # of each output, as LightGBM writes a model; empty: no tree yet
        self._boosters: list[Any] = []  # the same, read; never changed

    def open(self, shape: tuple[int, ...], outputs: int, seed: int) -> None:
        """No tree for any output."""
        self.shape, self.seed = shape, seed
        self._read([""] * outputs)

    def output(self, x: Tensor) -> Tensor:
        """The sum of the trees (B, outputs), in float64."""
        table = _table(x)
        outputs = [self._sum(booster, table) for booster in self._boosters]
        return torch.from_numpy(np.stack(outputs, axis=1)).to(x.device)

    def approach(self, x: Tensor, target: Tensor, weight: float, effort: int) -> None:
        """`effort` times `per_step` more trees; where trees are due does not depend on the weight of the whole."""
        rows = len(x)
        leaf = min(self.settings.smallest_leaf, max(FEWEST, rows // SHARE))
        grown = [""] * len(self.texts)
        wanted = np.ascontiguousarray(target.double().cpu().numpy().T)
        data = self._lightgbm.Dataset(
            _table(x),
            label=wanted[0],
            init_score=np.zeros(rows),  # without it, rows that cannot be split would give a tree of their average
            params=self._parameters(leaf),
            free_raw_data=False,
        )
        for output, booster in enumerate(self._boosters):
            number = 0 if booster is None else booster.num_trees()
            seed = key(self.seed, "trees", str(output), number) % 2**31
            data.set_label(wanted[output])
            more = self._lightgbm.train(
                {**self._parameters(leaf), "seed": seed}, data, effort * self.settings.per_step, init_model=booster
            )
            grown[output] = more.model_to_string()
        self._read(grown)

    def contributions(self, x: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
        """LightGBM's own SHAP values; `start` is not used."""
        table, width = _table(x), int(np.prod(self.shape))
        told = np.zeros((len(self.texts), len(x), width + 1))
        for output, booster in enumerate(self._boosters):
            if booster is not None:
                told[output] = booster.predict(table, pred_contrib=True, num_threads=self.settings.threads)
        values = torch.from_numpy(told).permute(1, 2, 0)  # (B, F + 1, outputs)
        base = values[0, -1] if len(x) else torch.zeros(len(self.texts), dtype=torch.float64)
        return values[:, :-1].reshape(len(x), *self.shape, -1), base

    def tensors(self) -> dict[str, Tensor]:
        """The trees of each output as LightGBM's text."""
        return {f"trees.{output}": text_tensor(text) for output, text in enumerate(self.texts)}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Put the trees back."""
        self._read([tensor_text(tensors[f"trees.{output}"]) for output in range(len(self.texts))])

    def _read(self, texts: list[str]) -> None:
        self.texts = texts
        self._boosters = [self._lightgbm.Booster(model_str=text) if text else None for text in texts]

    def _sum(self, booster: Any, table: Values) -> Values:
        if booster is None or not len(table):
            return np.zeros(len(table))
        found: Values = booster.predict(table, num_threads=self.settings.threads)
        return found

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
        twin.texts, twin._boosters = list(self.texts), list(self._boosters)
        return twin

    def __repr__(self) -> str:
        """The settings."""
        return f"Trees({self.settings!r})"


def _table(x: Tensor) -> Values:
    """(B, F) as LightGBM reads it, without a copy where that is possible."""
    return np.ascontiguousarray(x.flatten(1).cpu().numpy())
