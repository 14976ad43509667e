"""The layouts CIFAR-10 comes in, each read one batch of 10,000 images at a time.

sheets   train_1.webp .. train_5.webp, test.webp and labels.npz: lossless sheets of 32 x 32 tiles
python   data_batch_1 .. data_batch_5, test_batch, in cifar-10-batches-py or in cifar-10-python.tar.gz
binary   data_batch_1.bin .. test_batch.bin, in cifar-10-batches-bin

Whatever the layout, a batch must decode to the published pixels and labels. The Python batches are pickles;
they are never unpickled, because a pickle may run any code. The published files are known byte for byte, so
the labels and pixels are found by the marks that stand around them.
"""

from __future__ import annotations

import hashlib
import re
import struct
import tarfile
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from colonnade.data.fetch import DataFile, fetch, find, verify
from colonnade.errors import DataError
from colonnade.extras import need

Bytes = NDArray[np.uint8]
Batch = tuple[Bytes, Bytes]  # images (n, 32, 32, 3), labels (n,)

ARCHIVE = DataFile(
    "cifar-10-python.tar.gz",
    "md5:c58f30108f718f92721af3b95e74349a",
    ("https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",),
)
# Per batch: file name, md5 of the Python batch, sha256 of the decoded images (10000, 32, 32, 3) and labels (10000,).
BATCHES = {
    "train_1": (
        "data_batch_1",
        "c99cafc152244af753f735de768cd75f",
        "fc115a3de050d667b88cbd5b0b9612ebf996c54230fe7758f3a14bb5af9a1c27",
        "d829dbdf32167c9d7b3687cee66d92d80d46c441308b5aca0d11e8b69e27dac9",
    ),
    "train_2": (
        "data_batch_2",
        "d4bba439e000b95fd0a9bffe97cbabec",
        "89e609b642f687bc796fa3bfa4211005582a0e8131d463d996d11ddb297d312e",
        "5d18f7371ed35ea9ade77952fe958b0660a45cd6c8b8a8970030f21612cfd7e3",
    ),
    "train_3": (
        "data_batch_3",
        "54ebc095f3ab1f0389bbae665268c751",
        "93a365823e61729490a8801d80864ccd0ab1e8c98f19d71af65644d1c5f1486e",
        "32cf77b0ee2e790b1c4384d2d82e42dc1571b87e67f6da8f444b2725b2973f65",
    ),
    "train_4": (
        "data_batch_4",
        "634d18415352ddfa80567beed471001a",
        "809eb95ecd057a36516318f5023ea619009dd70dd38193db9da43125a928e6fa",
        "d2815e3f8f656272864920fc0edde56b04ec9cf81bf397c0dd3069f4aea51aeb",
    ),
    "train_5": (
        "data_batch_5",
        "482c414d41f54cd18b22e5b47cb7c3cb",
        "d05b7d66d216d6df882cc760cdc0ff2f1f0437abf699ed16005c021ef0add9cb",
        "2ddf3ab27d5d04409c94ce7b56849c243129c10de1058ae0bfe14c77e934800c",
    ),
    "test": (
        "test_batch",
        "40351d587109b95175f43aff81a1287e",
        "f9b1e2130bab680db56eb06d886f7f1ad0f1183907ceff4659d1735c890f5b04",
        "cec8a24a1e92aa2ecaa0bbd3dbfa86bf6cd8759fbd209a832824c8cf0afca9d5",
    ),
}


def open_layout(folders: Sequence[Path], *, download: bool = True, check: bool = True) -> Callable[[str], Batch]:
    """A function that reads a batch by its key in BATCHES, from the first layout found.

    Args:
        folders: where to look, from `places`; each may hold the files or the layout's usual folder.
        download: whether the archive may be downloaded if no layout is found.
        check: whether to compare checksums; off only for files made by tests.
    """
    read: Callable[[str], Batch]
    sheets = find("labels.npz", [folder for folder in folders if (folder / "train_1.webp").exists()])
    batches = find("data_batch_1", [f / inner for f in folders for inner in ("", "cifar-10-batches-py")])
    binary = find("data_batch_1.bin", [f / inner for f in folders for inner in ("", "cifar-10-batches-bin")])
    if sheets:
        read = partial(read_sheet, sheets.parent)
    elif batches:
        read = partial(read_python, batches.parent, check=check)
    elif binary:
        read = partial(read_binary, binary.parent)
    else:
        archive = find(ARCHIVE.name, folders) if not check else None
        read = partial(read_archived, archive or fetch(ARCHIVE, folders, download=download), check=check)
    return partial(_checked, read) if check else read


def read_sheet(folder: Path, name: str) -> Batch:
    """A batch from its WebP sheet, and its part of labels.npz."""
    pillow = need("PIL.Image", extra="images", purpose="reading CIFAR-10 sheets")
    path = folder / f"{name}.webp"
    try:
        with pillow.open(path) as sheet:
            pixels = np.asarray(sheet.convert("RGB"))  # (100 * 32, 100 * 32, 3)
        with np.load(folder / "labels.npz", allow_pickle=False) as arrays:
            labels = arrays["test"] if name == "test" else np.split(arrays["train"], 5)[int(name[-1]) - 1]
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"{path} and labels.npz beside it cannot be read: {error}; get them again") from None
    down, across = pixels.shape[0] // 32, pixels.shape[1] // 32
    if len(labels) != down * across:
        raise DataError(f"{path} has {down} x {across} tiles but labels.npz has {len(labels)} labels for it")
    tiles = pixels[: down * 32, : across * 32].reshape(down, 32, across, 32, 3)
    return tiles.transpose(0, 2, 1, 3, 4).reshape(-1, 32, 32, 3), labels


def read_python(folder: Path, name: str, *, check: bool = True) -> Batch:
    """A batch from its Python file, without unpickling it."""
    path = folder / BATCHES[name][0]
    if check and path.exists():
        verify(path, f"md5:{BATCHES[name][1]}")
    return _parse(_read(path), str(path))


def read_archived(archive: Path, name: str, *, check: bool = True) -> Batch:
    """A batch from its Python file inside the downloaded archive, which is not unpacked."""
    member = f"cifar-10-batches-py/{BATCHES[name][0]}"
    try:
        with tarfile.open(archive) as files:
            stream = files.extractfile(member)
            raw = stream.read() if stream else b""
    except (OSError, KeyError, EOFError, tarfile.TarError, zlib.error) as error:
        raise DataError(f"{archive} cannot be read: {error}; get it again") from None
    if check and hashlib.md5(raw, usedforsecurity=False).hexdigest() != BATCHES[name][1]:
        raise DataError(f"{member} in {archive} is damaged: its md5 is not {BATCHES[name][1]}; get it again")
    return _parse(raw, f"{member} in {archive}")


def read_binary(folder: Path, name: str) -> Batch:
    """A batch of the binary layout: one label byte, then 3 x 32 x 32 pixel bytes, per image."""
    path = folder / f"{BATCHES[name][0]}.bin"
    raw = _read(path)
    if not raw or len(raw) % 3073:
        raise DataError(f"{path} has {len(raw)} bytes; needed a multiple of 3073; get it again")
    rows = np.frombuffer(raw, dtype=np.uint8).reshape(-1, 3073)
    return _channels_last(rows[:, 1:]), rows[:, 0]


def _parse(raw: bytes, where: str) -> Batch:
    """Labels and pixels of a Python batch: a list of small integers, and one long byte string."""
    # The short string 'labels' and an empty list, each perhaps with a memo number; then runs of up to 1,000
    # items between "(" and "e", each "K" and the byte.
    marks = re.search(rb"U\x06labels(?:q.)?\](?:q.)?((?:\((?:K.)+e)+)", raw, re.DOTALL)
    if marks:
        labels = np.frombuffer(b"".join(re.findall(rb"K(.)", marks[1], re.DOTALL)), dtype=np.uint8)
        length = 3072 * len(labels)
        start = raw.find(b"T" + struct.pack("<I", length)) + 5  # a long string and its length
        if start >= 5 and len(raw) >= start + length:
            return _channels_last(np.frombuffer(raw, np.uint8, length, start).reshape(-1, 3072)), labels
    raise DataError(f"{where} is not a CIFAR-10 Python batch: no labels with 3072 bytes of pixels each; get it again")


def _channels_last(rows: Bytes) -> Bytes:
    return rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"CIFAR-10 batch {path} cannot be read: {error}; get it again") from None


def _checked(read: Callable[[str], Batch], name: str) -> Batch:
    images, labels = read(name)
    for what, array, wanted in (("images", images, BATCHES[name][2]), ("labels", labels, BATCHES[name][3])):
        got = hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()
        if got != wanted:
            raise DataError(
                f"CIFAR-10 batch {name!r}: its {what} are not the published ones (sha256 {got}, needed {wanted}); "
                "get the files again"
            )
    return images, labels
