"""Small federations to try methods, tasks and metrics on: a random one, and one that every method must solve."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from colonnade.federation import Federation, RowSplit


def small(
    widths: tuple[int, ...] = (5, 5, 5, 5),
    rows: int = 90,
    classes: int = 3,
    seed: int = 0,
    task: str = "multiclass",
    weighted: bool = False,
) -> Federation:
    """Gaussian columns; labels depend on all parties. 60 % of the rows train, 20 % validate, 20 % test.

    `weighted`: rows count differently, from 0.1 to 3.
    """
    rng = np.random.default_rng(seed)
    columns = {f"party_{k}": rng.normal(size=(rows, width)) for k, width in enumerate(widths)}
    score: Any = sum(x @ rng.normal(size=(x.shape[1], classes)) for x in columns.values())
    score = score + 0.3 * rng.normal(size=score.shape)
    labels: Any = {
        "multiclass": score.argmax(axis=1),
        "binary": (score[:, 0] > 0).astype(int),
        "multilabel": (score > 0).astype(int),
        "regression": score / score.std(),
        "count": np.exp(1 + score[:, 0] / score.std()).round().astype(int),
    }[task]
    cuts = int(0.6 * rows), int(0.8 * rows)
    train, validation, test = np.split(rng.permutation(rows), cuts)
    split = RowSplit(torch.from_numpy(train), torch.from_numpy(validation), torch.from_numpy(test))
    weights = rng.uniform(0.1, 3.0, size=rows) if weighted else None
    return Federation.from_arrays(columns, labels, task=task, split=split, name="small", weights=weights)


def trivial(rows: int = 320) -> Federation:
    """Four classes: one party knows the first bit, the other the second; together they can read the label."""
    rng = np.random.default_rng(1)
    label = np.arange(rows) % 4
    bits = {"first": label // 2, "second": label % 2}
    columns = {name: np.stack([bit, 1 - bit], axis=1) + 0.01 * rng.normal(size=(rows, 2)) for name, bit in bits.items()}
    return Federation.from_arrays(columns, label, task="multiclass", name="trivial")


def normed_encoder(party: str, shape: tuple[int, ...]) -> nn.Module:
    """An encoder with everything that has a state of its own: BatchNorm buffers and dropout counters."""
    width = int(np.prod(shape))
    return nn.Sequential(nn.Linear(width, 7), nn.BatchNorm1d(7), nn.ReLU(), nn.Dropout(0.3), nn.Linear(7, 4))
