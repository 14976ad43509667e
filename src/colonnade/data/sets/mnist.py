"""MNIST: 70,000 handwritten digits of 28 x 28 pixels, split between parties by image rows or random pixels.

Read from the four original idx files, gzipped or not. As in the paper's program: pixels divided by 255, then
standardised with one mean and deviation; 54,000 training, 6,000 validation and 10,000 test rows; 14 parties of
two image rows each.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from colonnade.data import split as cut
from colonnade.data.fetch import DataFile, fetch, find, places, verify
from colonnade.errors import ConfigError, DataError
from colonnade.federation import Federation

ADDRESS = "https://ossci-datasets.s3.amazonaws.com/mnist/"
SUBSET = 14  # pixels per party in the random-subset split


class IdxFile(NamedTuple):
    """One of the four files: sha256 as published (gzipped) and after unpacking."""

    name: str
    gzipped: str
    unpacked: str


IMAGES = {
    "train": IdxFile(
        "train-images-idx3-ubyte",
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    ),
    "test": IdxFile(
        "t10k-images-idx3-ubyte",
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    ),
}
LABELS = {
    "train": IdxFile(
        "train-labels-idx1-ubyte",
        "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    ),
    "test": IdxFile(
        "t10k-labels-idx1-ubyte",
        "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
}


MEAN, STD = 0.1307, 0.3081  # of all training pixels


def mnist(
    parties: int = 14,
    data_dir: str | Path | None = None,
    seed: int = 0,
    split: Literal["strips", "subsets"] = "strips",
    long_tail: float | None = None,
    download: bool = True,
    limit: int | None = None,
) -> Federation:
    """MNIST in horizontal strips (N, 28 / parties, 28), or random subsets of 14 pixels (N, 14) each.

    Args:
        parties: how many; at most 28 strips. The subset experiment of the paper has 100.
        data_dir: a folder with the idx files, or one that holds it as `mnist`.
        seed: shuffles the split, and chooses the subsets and the long tail.
        split: how columns are given to parties.
        long_tail: shrink the training file's classes geometrically, digit 0 to digit 9 by this factor, before
            validation rows are taken from it; the paper's factor is 10.
        download: whether missing files may be downloaded.
        limit: use only the first so many training rows.

    Raises:
        MissingData: a file is not there and cannot be downloaded.
        DataError: a file is damaged.
        ConfigError: an option is out of range.
    """
    if split not in ("strips", "subsets"):
        raise ConfigError(f"split = {split!r}: needed 'strips' or 'subsets'")
    images, labels, train = read_mnist(places("mnist", data_dir), download=download, limit=limit)
    images.sub_(MEAN).div_(STD)  # as the paper's program does
    columns = cut.strips(images, parties) if split == "strips" else cut.random_subsets(images, parties, SUBSET, seed)
    return Federation.from_arrays(
        columns,
        labels,
        task="multiclass",
        classes=10,
        split=cut.file_split(labels, train, seed=seed, long_tail_factor=long_tail),
        name=f"mnist-{parties}" if split == "strips" else f"mnist-subsets-{parties}",
        scaled=True,
        whole=images,
    )


def read_mnist(
    folders: Sequence[Path], *, download: bool = True, limit: int | None = None, check: bool = True
) -> tuple[Tensor, Tensor, int]:
    """Images (N, 28, 28) in [0, 1], labels (N,), and how many of them are the training file's.

    Args:
        folders: where to look, from `places`.
        download: whether missing files may be downloaded.
        limit: keep only the first so many training rows.
        check: whether to compare checksums; off only for files made by tests.
    """
    if limit is not None and limit < 1:
        raise ConfigError(f"limit = {limit}: needed at least one training row")
    parts = []
    for part, most in (("train", limit), ("test", None)):
        images = read_idx(_locate(IMAGES[part], folders, download, check), dimensions=3)[:most]
        labels = read_idx(_locate(LABELS[part], folders, download, check), dimensions=1)[:most]
        if len(images) != len(labels):
            raise DataError(f"{IMAGES[part].name} has {len(images)} images but there are {len(labels)} labels")
        parts.append((images, labels))
    pixels = torch.from_numpy(np.concatenate([images for images, _ in parts]))
    classes = torch.from_numpy(np.concatenate([labels for _, labels in parts]))
    return pixels.to(torch.float32).div_(255), classes.to(torch.int64), len(parts[0][0])


def _locate(file: IdxFile, folders: Sequence[Path], download: bool, check: bool) -> Path:
    unpacked, zipped = find(file.name, folders), find(f"{file.name}.gz", folders)
    if not check and (zipped or unpacked):
        return zipped or unpacked or Path()
    if unpacked and not zipped:
        verify(unpacked, f"sha256:{file.unpacked}")
        return unpacked
    name = f"{file.name}.gz"
    return fetch(DataFile(name, f"sha256:{file.gzipped}", (ADDRESS + name,)), folders, download=download)


def read_idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """The array in an idx file of bytes.

    Args:
        path: the file; gzipped if it ends in .gz.
        dimensions: how many the array must have.

    Raises:
        DataError: the header or the length is not that of such a file.
    """
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read: {error}; get it again") from None
    header = 4 + 4 * dimensions
    magic = 0x0800 + dimensions  # 8: unsigned bytes
    numbers = np.frombuffer(raw[:header], dtype=">u4") if len(raw) >= header else np.zeros(1, dtype=">u4")
    if int(numbers[0]) != magic:
        raise DataError(
            f"{path} is not an idx file of bytes in {dimensions} dimensions: it begins with "
            f"{raw[:4].hex() or 'nothing'}, needed {magic:08x}; get it again"
        )
    shape = tuple(int(n) for n in numbers[1:])
    if len(raw) - header != int(np.prod(shape)):
        raise DataError(f"{path} has {len(raw) - header} bytes of data, its header says {shape}; get it again")
    return np.frombuffer(raw, dtype=np.uint8, offset=header).reshape(shape)
