"""Digits: 1,797 small handwritten digits that come with scikit-learn, so no file is needed.

8 x 8 pixels, values 0 to 16. The data set of the demonstration and of quick tests.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from colonnade.data.split import strips
from colonnade.federation import Federation, RowSplit


def digits(parties: int = 8, seed: int = 0) -> Federation:
    """Digits in horizontal strips, one per party.

    Args:
        parties: 1 to 8 strips.
        seed: shuffles the split into 70 % train, 10 % validation and 20 % test rows.
    """
    images, labels = (tensor.clone() for tensor in _read())
    return Federation.from_arrays(
        strips(images, parties),
        labels,
        task="multiclass",
        classes=10,
        split=RowSplit.random(len(images), validation=0.1, test=0.2, seed=seed),
        name=f"digits-{parties}",
        scaled=True,
        whole=images,
    )


@functools.cache
def _read() -> tuple[Tensor, Tensor]:
    """Images (1797, 8, 8) and labels; scikit-learn reads a text file each time."""
    from sklearn.datasets import load_digits  # slow to import

    bundle = load_digits()
    return torch.from_numpy(bundle.images).to(torch.float32) / 16, torch.from_numpy(bundle.target)
