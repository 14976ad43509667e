"""Small federations that the tests share: random ones, a trivial one, and one with several architectures."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from colonnade.data.sets import load_set
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
    score = sum(x @ rng.normal(size=(x.shape[1], classes)) for x in columns.values())
    score = score + 0.3 * rng.normal(size=score.shape)
    labels = {
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


def images(parties: int = 2, rows: int = 12, size: int = 8, seed: int = 0) -> Federation:
    """Tiny colour images of three classes, one per party."""
    rng = np.random.default_rng(seed)
    columns = {f"camera_{k}": rng.normal(size=(rows, 3, size, size)).astype(np.float32) for k in range(parties)}
    half = torch.arange(rows)
    split = RowSplit(half[: rows * 2 // 3], half[rows * 2 // 3 :], half[:0])
    return Federation.from_arrays(columns, np.arange(rows) % 3, task="multiclass", split=split, name="images")


def trivial(rows: int = 320) -> Federation:
    """Four classes: one party knows the first bit, the other the second; together they can read the label."""
    rng = np.random.default_rng(1)
    label = np.arange(rows) % 4
    bits = {"first": label // 2, "second": label % 2}
    columns = {name: np.stack([bit, 1 - bit], axis=1) + 0.01 * rng.normal(size=(rows, 2)) for name, bit in bits.items()}
    return Federation.from_arrays(columns, label, task="multiclass", name="trivial")


def digits(parties: int = 4) -> Federation:
    """The bundled digits."""
    return load_set("digits", parties=parties)


def normed_encoder(party: str, shape: tuple[int, ...]) -> nn.Module:
    """An encoder with everything that has a state of its own: BatchNorm buffers and dropout counters."""
    width = int(np.prod(shape))
    return nn.Sequential(nn.Linear(width, 7), nn.BatchNorm1d(7), nn.ReLU(), nn.Dropout(0.3), nn.Linear(7, 4))


def mixed_encoder(party: str, shape: tuple[int, ...]) -> nn.Module:
    """Two architectures of equal shapes, and so two groups: even parties Tanh, odd parties ReLU."""
    bend = nn.ReLU() if party[-1] in "13579" else nn.Tanh()
    return nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(shape)), 6), bend, nn.Linear(6, 4))
