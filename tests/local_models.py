"""What tests of local models share: a regressor of a user's own, rows that bend, and columns of test rows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.tree import DecisionTreeRegressor
from torch import Tensor

from colonnade.federation import Federation
from colonnade.models.local import tensor_text, text_tensor
from colonnade.store import Store


def bent_rows(count: int = 200) -> tuple[Tensor, Tensor]:
    """Four columns, and two targets that are not linear in them."""
    x = np.random.default_rng(0).normal(size=(count, 4))
    return torch.from_numpy(x), torch.from_numpy(np.stack([x[:, 0] * x[:, 1], np.sin(3 * x[:, 2])], axis=1))


def columns_of_tests(federation: Federation) -> dict[str, Tensor]:
    """The columns of the test rows by party."""
    return {party.name: party.columns[federation.split.test] for party in federation.parties}


class Stumps:
    """scikit-learn's stumps: each approach adds `effort` more on what is left of the target; a text that grows."""

    def __init__(self, rate: float = 0.5) -> None:
        self.rate = rate
        self.stumps: list[dict[str, Any]] = []

    def open(self, shape: tuple[int, ...], outputs: int, seed: int) -> None:
        self.outputs, self.seed, self.stumps = outputs, seed, []

    def output(self, x: Tensor) -> Tensor:
        flat, out = x.flatten(1).double(), torch.zeros(len(x), self.outputs, dtype=torch.float64)
        for stump in self.stumps:
            left = flat[:, stump["column"]] <= stump["cut"]
            out += torch.where(
                left[:, None], torch.tensor(stump["left"]).double(), torch.tensor(stump["right"]).double()
            )
        return out

    def approach(self, x: Tensor, target: Tensor, weight: float, effort: int) -> None:
        flat = x.flatten(1).numpy()
        for _ in range(effort):
            rest = (target.double() - self.output(x)).numpy()
            tree = DecisionTreeRegressor(max_depth=1, random_state=self.seed % 2**32).fit(flat, rest)
            column = int(tree.tree_.feature[0])
            if column < 0:  # nothing left to cut
                return
            values = np.asarray(tree.tree_.value)[:, :, 0] * self.rate
            self.stumps.append(
                {
                    "column": column,
                    "cut": float(tree.tree_.threshold[0]),
                    "left": values[tree.tree_.children_left[0]].tolist(),
                    "right": values[tree.tree_.children_right[0]].tolist(),
                }
            )

    def tensors(self) -> dict[str, Tensor]:
        return {"stumps": text_tensor(json.dumps(self.stumps))}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        self.stumps = json.loads(tensor_text(tensors["stumps"]))


def assert_kept(place: Path, wanted: Mapping[str, torch.Tensor]) -> None:
    """A party's process left exactly these tensors of its local model."""
    store = Store(place / "party.db")
    saved = store.snapshot()
    store.close()
    assert saved is not None
    for key, value in wanted.items():
        assert torch.equal(saved.tensors[f"cohort.{key}"][0], value), (place.name, key)
