"""A regressor of a user's own, as the tests bring one: scikit-learn's stumps, boosted round by round."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from sklearn.tree import DecisionTreeRegressor
from torch import Tensor

from colonnade.models.local import tensor_text, text_tensor


class Stumps:
    """Each approach adds `effort` stumps on what is left of the target; kept as a text that grows."""

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
