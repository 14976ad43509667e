"""CIFAR-10: 60,000 colour images of 32 x 32 pixels in ten classes, a patch of the image per party.

As in the paper: 45,000 training, 5,000 validation and 10,000 test rows, and a 3 x 3 grid cut at pixels 10
and 20. Pixels are divided by 255 and standardised per colour. Patches are views of one float32 array, so
60,000 images take 0.74 GB once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from colonnade.data.fetch import places
from colonnade.data.sets.cifar10_files import BATCHES, open_layout
from colonnade.data.split import file_split, patches
from colonnade.errors import ConfigError
from colonnade.federation import Federation

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)  # of red, green and blue


def cifar10(
    parties: int = 9,
    data_dir: str | Path | None = None,
    seed: int = 0,
    long_tail: float | None = None,
    download: bool = True,
    limit: int | None = None,
) -> Federation:
    """CIFAR-10 in a grid of patches, each (N, 3, h, w).

    Args:
        parties: a square number: 1, 4, 9, 16, ...
        data_dir: a folder with the files in one of the layouts of `cifar10_files`, or one that holds it as
            `cifar10`.
        seed: shuffles the split, and chooses the long tail.
        long_tail: shrink the training file's classes geometrically, class 0 to class 9 by this factor, before
            validation rows are taken from it; the paper's factor is 10.
        download: whether the files may be downloaded (170 MB) if they are not there.
        limit: use only the first so many training rows; batches beyond them are not read.

    Raises:
        MissingData: the files are not there and cannot be downloaded.
        DataError: a file is damaged, or Pillow is needed and not installed.
        ConfigError: an option is out of range.
    """
    if parties < 1 or math.isqrt(parties) ** 2 != parties:
        raise ConfigError(f"parties = {parties}: a grid of patches needs a square number (1, 4, 9, 16, ...)")
    images, labels, train = read_cifar10(places("cifar10", data_dir), download=download, limit=limit)
    images.sub_(torch.tensor(MEAN).view(3, 1, 1)).div_(torch.tensor(STD).view(3, 1, 1))  # as the paper's program does
    return Federation.from_arrays(
        patches(images, math.isqrt(parties)),
        labels,
        task="multiclass",
        classes=10,
        split=file_split(labels, train, seed=seed, long_tail_factor=long_tail),
        name=f"cifar10-{parties}",
        scaled=True,
        whole=images,
    )


def read_cifar10(
    folders: Sequence[Path], *, download: bool = True, limit: int | None = None, check: bool = True
) -> tuple[Tensor, Tensor, int]:
    """Images (N, 3, 32, 32) in [0, 1], labels (N,), and how many of them are training rows.

    Args:
        folders: where to look, from `places`.
        download: whether the archive may be downloaded.
        limit: keep only the first so many training rows.
        check: whether to compare checksums; off only for files made by tests.
    """
    if limit is not None and limit < 1:
        raise ConfigError(f"limit = {limit}: needed at least one training row")
    read = open_layout(folders, download=download, check=check)
    parts = []  # bytes: a quarter of what the pixels take as float32
    train = 0
    for name in BATCHES:
        if name != "test" and limit is not None and train >= limit:
            continue
        images, labels = read(name)
        if name != "test":
            images, labels = (a[: None if limit is None else limit - train] for a in (images, labels))
            train += len(labels)
        parts.append((images, labels))
    pixels = torch.empty(sum(len(labels) for _, labels in parts), 3, 32, 32)
    start = 0
    for images, labels in parts:
        pixels.numpy()[start : start + len(labels)] = images.transpose(0, 3, 1, 2)
        start += len(labels)
    classes = np.concatenate([labels for _, labels in parts]).astype(np.int64)
    return pixels.div_(255), torch.from_numpy(classes), train
