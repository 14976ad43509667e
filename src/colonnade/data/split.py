"""One array into parties' columns, and numbered rows into train, validation and test.

Pure functions. The image and block splitters return views of the array they are given, so a federation of
60,000 colour images costs one copy; `random_subsets` cannot and copies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from colonnade.errors import ConfigError, DataError, RowsDisagree
from colonnade.federation import RowSplit
from colonnade.randomness import permutation, stream


def party_names(parties: int) -> list[str]:
    """party_1 .. party_M, padded with zeros so that they sort in order."""
    if parties < 1:
        raise ConfigError(f"parties = {parties}: needed at least one")
    width = len(str(parties))
    return [f"party_{number:0{width}d}" for number in range(1, parties + 1)]


def strips(images: Any, parties: int) -> dict[str, Tensor]:
    """Horizontal strips of images, top to bottom; the first ones are a row higher if it does not come out even.

    Args:
        images: (N, H, W) or (N, C, H, W).
        parties: how many strips.

    Raises:
        ConfigError: there are more parties than image rows.
    """
    pixels, names = _images(images), party_names(parties)
    if parties > pixels.shape[-2]:
        raise ConfigError(f"parties = {parties}: images of {pixels.shape[-2]} rows give at most that many strips")
    return dict(zip(names, torch.tensor_split(pixels, parties, dim=-2), strict=True))


def patches(images: Any, grid: int) -> dict[str, Tensor]:
    """A grid of patches, row by row; the last row and column take what remains (32 pixels in 3: 10, 10, 12).

    Args:
        images: (N, H, W) or (N, C, H, W).
        grid: patches per side; there are grid * grid parties.

    Raises:
        ConfigError: the grid is finer than the pixels.
    """
    pixels = _images(images)
    height, width = pixels.shape[-2:]
    if not 1 <= grid <= min(height, width):
        raise ConfigError(f"grid = {grid}: needed 1 to {min(height, width)} for images of {height} x {width} pixels")
    cuts = [[size // grid * k for k in range(1, grid)] for size in (height, width)]
    parts = [p for row in pixels.tensor_split(cuts[0], dim=-2) for p in row.tensor_split(cuts[1], dim=-1)]
    return dict(zip(party_names(grid * grid), parts, strict=True))


def blocks(columns: Any, parties_or_widths: int | Sequence[int]) -> dict[str, Tensor]:
    """Blocks of neighbouring columns.

    Args:
        columns: (N, F).
        parties_or_widths: a number of parties (equal blocks, the first ones wider), or the width of each block.

    Raises:
        ConfigError: there are more parties than columns, or the widths do not add up to F.
    """
    table = _tensor(columns)
    if table.dim() != 2:
        raise DataError(f"blocks are cut from an array of shape (rows, columns); got {tuple(table.shape)}")
    total = table.shape[1]
    if isinstance(parties_or_widths, int):
        names = party_names(parties_or_widths)
        if parties_or_widths > total:
            raise ConfigError(f"parties = {parties_or_widths}: {total} columns give at most that many blocks")
        return dict(zip(names, torch.tensor_split(table, parties_or_widths, dim=1), strict=True))
    widths = list(parties_or_widths)
    if not widths or min(widths) < 1 or sum(widths) != total:
        raise ConfigError(f"widths {widths} add up to {sum(widths)}; needed positive widths that add up to {total}")
    return dict(zip(party_names(len(widths)), torch.split(table, widths, dim=1), strict=True))


def views(arrays: Mapping[str, Any] | Sequence[Any]) -> dict[str, Tensor]:
    """Different views of the same rows, one per party.

    Args:
        arrays: (N, ...) each; with party names, or without (party_1, party_2, ...).

    Raises:
        RowsDisagree: the views have different numbers of rows.
    """
    named = arrays if isinstance(arrays, Mapping) else dict(zip(party_names(len(arrays)), arrays, strict=True))
    columns = {str(name): _tensor(values) for name, values in named.items()}
    rows = {name: len(values) for name, values in columns.items()}
    if len(set(rows.values())) > 1:
        raise RowsDisagree(f"views must have the same rows; got {', '.join(f'{k}: {n}' for k, n in rows.items())}")
    return columns


def random_subsets(columns: Any, parties: int = 100, size: int = 14, seed: int = 0) -> dict[str, Tensor]:
    """Random subsets of columns that may overlap between parties, never within one.

    A party's subset depends on the seed and its own name only.

    Args:
        columns: (N, ...); everything after the rows is flattened first.
        parties: how many subsets.
        size: columns per subset.
        seed: chooses the subsets.

    Raises:
        ConfigError: a subset would be empty or larger than the columns.
    """
    table = _tensor(columns).flatten(1)
    if not 1 <= size <= table.shape[1]:
        raise ConfigError(f"size = {size}: needed 1 to {table.shape[1]} of {table.shape[1]} columns")
    result = {}
    for name in party_names(parties):
        chosen = np.sort(stream(seed, "column subset", name).choice(table.shape[1], size, replace=False))
        result[name] = table[:, torch.from_numpy(chosen)]
    return result


def holdout(train: int, test: int, *, validation: float = 0.1, seed: int = 0, only: Tensor | None = None) -> RowSplit:
    """The split of data that comes as a training file and a test file, rows numbered through in that order.

    Args:
        train: rows in the training file.
        test: rows in the test file.
        validation: fraction of the training rows, chosen at random, that only selects the model.
        seed: shuffles the training rows.
        only: use only these rows of the training file; all if None.

    Returns:
        Shuffled training and validation rows; test rows in file order.

    Raises:
        ConfigError: the fraction is not from 0 to below 1.
        DataError: no row is left to train on.
    """
    if not 0 <= validation < 1:
        raise ConfigError(f"validation = {validation}: needed a fraction from 0 to below 1")
    order = permutation(torch.arange(train) if only is None else only, seed, "split")
    held = round(validation * len(order))
    if held == len(order):
        raise DataError(f"{len(order)} training rows with validation = {validation} leave none to train on")
    return RowSplit(order[held:], order[:held], torch.arange(train, train + test))


def long_tail_sizes(head: int, classes: int, factor: float = 10) -> list[int]:
    """Rows per class, falling from `head` to `head / factor` in equal proportions."""
    if not factor >= 1:
        raise ConfigError(f"long tail factor = {factor}: needed at least 1")
    # The small addend keeps 6000 / 10 from becoming 599 by rounding error.
    return [max(1, int(head * factor ** (-c / max(1, classes - 1)) + 1e-9)) for c in range(classes)]


def long_tail(labels: Tensor, rows: Tensor, *, factor: float = 10, seed: int = 0, head: int | None = None) -> Tensor:
    """Some of `rows`, so that class sizes fall geometrically with the class number.

    Args:
        labels: (N,) classes of all rows.
        rows: the rows to choose from; the result keeps their order.
        factor: size of class 0 over size of the last class.
        seed: chooses the rows.
        head: size of class 0; the largest class among `rows` if None. No class gets more rows than it has.
    """
    classes = labels[rows]
    available = torch.bincount(classes, minlength=int(labels.max()) + 1)
    head = int(available.max()) if head is None else head
    keep = torch.zeros(len(rows), dtype=torch.bool)
    for c, size in enumerate(long_tail_sizes(head, len(available), factor)):
        members = permutation((classes == c).nonzero().flatten(), seed, "long tail", number=c)
        keep[members[:size]] = True
    return rows[keep]


def file_split(labels: Tensor, train: int, *, seed: int = 0, long_tail_factor: float | None = None) -> RowSplit:
    """`holdout` of a training and a test file, the training file's classes first shrunk to a long tail if asked.

    The largest class is then the average class of the whole file: 6,000 rows of MNIST, 5,000 of CIFAR-10, as
    in the paper. Validation rows are taken from what is left.

    Args:
        labels: (N,) classes, training file first.
        train: rows in the training file.
        seed: shuffles, and chooses the long tail.
        long_tail_factor: size of class 0 over size of the last class; None keeps every row.
    """
    only = None
    if long_tail_factor is not None:
        head = max(1, train // (int(labels.max()) + 1))
        only = long_tail(labels, torch.arange(train), factor=long_tail_factor, seed=seed, head=head)
    return holdout(train, len(labels) - train, seed=seed, only=only)


def _tensor(values: Any) -> Tensor:
    return values if isinstance(values, Tensor) else torch.from_numpy(np.asarray(values))


def _images(values: Any) -> Tensor:
    images = _tensor(values)
    if images.dim() not in (3, 4):
        raise DataError(f"images must be (N, H, W) or (N, C, H, W); got shape {tuple(images.shape)}")
    return images
