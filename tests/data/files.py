"""Small files in the layouts of the public data sets."""

from __future__ import annotations

import gzip
import io
import pickle
import struct
import tarfile
from pathlib import Path
from typing import ClassVar

import numpy as np
from PIL import Image

CIFAR_BATCHES = ["data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"]


def idx(array: np.ndarray) -> bytes:
    header = struct.pack(f">{1 + array.ndim}I", 0x0800 + array.ndim, *array.shape)
    return header + array.astype(np.uint8).tobytes()


def write_mnist(folder: Path, train: int = 40, test: int = 20, zipped: bool = True) -> dict[str, np.ndarray]:
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    arrays = {}
    for prefix, rows in (("train", train), ("t10k", test)):
        arrays[f"{prefix}-images-idx3-ubyte"] = random.integers(0, 256, (rows, 28, 28), dtype=np.uint8)
        arrays[f"{prefix}-labels-idx1-ubyte"] = (np.arange(rows) % 10).astype(np.uint8)
    for name, array in arrays.items():
        if zipped:
            (folder / f"{name}.gz").write_bytes(gzip.compress(idx(array)))
        else:
            (folder / name).write_bytes(idx(array))
    return arrays


def cifar_arrays(rows: int = 12) -> list[tuple[np.ndarray, np.ndarray]]:
    """Six batches: images (n, 32, 32, 3) and labels (n,)."""
    random = np.random.default_rng(1)
    return [
        (random.integers(0, 256, (rows, 32, 32, 3), dtype=np.uint8), (np.arange(rows) % 10).astype(np.uint8))
        for _ in CIFAR_BATCHES
    ]


def channels_first(images: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2)).reshape(len(images), 3072)


class Python2Pickler(pickle._Pickler):
    """Writes bytes as Python 2 wrote its strings, which is how the original batches are."""

    dispatch: ClassVar = dict(pickle._Pickler.dispatch)

    def save_bytes(self, text: bytes) -> None:
        short = len(text) < 256
        self.write(b"U" + bytes([len(text)]) + text if short else b"T" + struct.pack("<I", len(text)) + text)
        self.memoize(text)

    dispatch[bytes] = save_bytes


def python_batch(images: np.ndarray, labels: np.ndarray) -> bytes:
    out = io.BytesIO()
    batch = {
        b"batch_label": b"training batch 1 of 5",
        b"labels": [int(label) for label in labels],
        b"data": channels_first(images),
        b"filenames": [b"leptodactylus_pentadactylus_s_%06d.png" % i for i in range(len(labels))],
    }
    Python2Pickler(out, protocol=2).dump(batch)
    return out.getvalue()


def write_python_batches(folder: Path, arrays: list[tuple[np.ndarray, np.ndarray]]) -> None:
    folder.mkdir(parents=True)
    for name, (images, labels) in zip(CIFAR_BATCHES, arrays, strict=True):
        (folder / name).write_bytes(python_batch(images, labels))


def write_archive(path: Path, arrays: list[tuple[np.ndarray, np.ndarray]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        for name, (images, labels) in zip(CIFAR_BATCHES, arrays, strict=True):
            raw = python_batch(images, labels)
            entry = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
            entry.size = len(raw)
            archive.addfile(entry, io.BytesIO(raw))


def write_binary_batches(folder: Path, arrays: list[tuple[np.ndarray, np.ndarray]]) -> None:
    folder.mkdir(parents=True)
    for name, (images, labels) in zip(CIFAR_BATCHES, arrays, strict=True):
        rows = np.concatenate([labels[:, None], channels_first(images)], axis=1)
        (folder / f"{name}.bin").write_bytes(rows.tobytes())


def write_sheets(folder: Path, arrays: list[tuple[np.ndarray, np.ndarray]], across: int = 4) -> None:
    folder.mkdir(parents=True)
    for name, (images, _) in zip(["train_1", "train_2", "train_3", "train_4", "train_5", "test"], arrays, strict=True):
        tiles = images.reshape(-1, across, 32, 32, 3).transpose(0, 2, 1, 3, 4)
        sheet = tiles.reshape(-1, across * 32, 3)
        Image.fromarray(sheet).save(folder / f"{name}.webp", lossless=True)
    labels = [labels for _, labels in arrays]
    np.savez(folder / "labels.npz", train=np.concatenate(labels[:5]), test=labels[5])


def write_nus_wide(
    root: Path, rows: int = 30, widths: tuple[int, ...] = (5, 2, 3, 4, 2), tags: int = 7, between: bool = True
) -> dict[str, dict[str, np.ndarray]]:
    """Row i has concept i % 6 if that is below 5, else two concepts; values are written with a trailing blank."""
    random = np.random.default_rng(2)
    labels = root / "Groundtruth" / "TrainTestLabels"
    low = root / "NUS_WID_Low_Level_Features" / "Low_Level_Features" if between else root / "Low_Level_Features"
    for folder in (labels, low, root / "NUS_WID_Tags"):
        folder.mkdir(parents=True)
    written: dict[str, dict[str, np.ndarray]] = {}
    for part, count in (("Train", rows), ("Test", rows // 2)):
        which = np.arange(count) % 6
        marks = {
            concept: ((which == k) | ((which == 5) & (k < 2))).astype(int)
            for k, concept in enumerate(("buildings", "grass", "animal", "water", "person"))
        }
        for concept, column in marks.items():
            (labels / f"Labels_{concept}_{part}.txt").write_text("".join(f"{mark}\n" for mark in column))
        image = [random.random((count, width)).round(6) for width in widths]
        for kind, values in zip(("CM55", "CH", "EDH", "CORR", "WT"), image, strict=True):
            lines = ["".join(f"{v:.6g} " for v in row) + "\n" for row in values]
            (low / f"{part}_Normalized_{kind}.dat").write_text("".join(lines))
        text = random.integers(0, 2, (count, tags))
        lines = ["".join(f"{v}\t" for v in row) + "\n" for row in text]
        (root / "NUS_WID_Tags" / f"{part}_Tags1k.dat").write_text("".join(lines))
        written[part] = {"image": np.concatenate(image, axis=1), "tags": text, "which": which}
    return written


def write_modelnet(
    root: Path, train: int = 11, test: int = 2, classes: tuple[str, ...] = ("vase", "airplane"), form: str = "{}_{:03d}"
) -> None:
    """Every image has one colour: red says the class, green the object, blue the view."""
    for number, name in enumerate(sorted(classes)):
        for part, count, first in (("train", train, 1), ("test", test, train + 1)):
            folder = root / name / part
            folder.mkdir(parents=True)
            for thing in range(first, first + count):
                for view in range(1, 13):
                    image = Image.new("RGB", (8, 8), (number * 100, thing * 10, view * 20))
                    image.save(folder / f"{form.format(f'{name}_{thing:04d}', view)}.png")
