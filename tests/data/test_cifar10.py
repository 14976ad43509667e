"""CIFAR-10 from small files in each of its layouts."""

from __future__ import annotations

import hashlib
import pickle
import sys
from functools import partial
from importlib import import_module

import numpy as np
import pytest
import torch

from colonnade.data.sets import cifar10_files
from colonnade.data.sets.cifar10 import cifar10, read_cifar10
from colonnade.data.sets.cifar10_files import BATCHES, read_archived, read_binary, read_python, read_sheet
from colonnade.errors import ConfigError, DataError, MissingData
from tests.data.files import (
    cifar_arrays,
    python_batch,
    write_archive,
    write_binary_batches,
    write_python_batches,
    write_sheets,
)

LAYOUTS = {
    "sheets": lambda root, arrays: write_sheets(root / "cifar10", arrays),
    "python": lambda root, arrays: write_python_batches(root / "cifar-10-batches-py", arrays),
    "archive": lambda root, arrays: write_archive(root / "cifar-10-python.tar.gz", arrays),
    "binary": lambda root, arrays: write_binary_batches(root / "cifar-10-batches-bin", arrays),
}


@pytest.fixture
def unchecked(monkeypatch):
    """`cifar10` itself on files made by a test, whose checksums cannot be the published ones."""
    module = import_module("colonnade.data.sets.cifar10")
    monkeypatch.setattr(module, "read_cifar10", partial(read_cifar10, check=False))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_the_same_images(tmp_path, layout):
    arrays = cifar_arrays()
    LAYOUTS[layout](tmp_path, arrays)
    images, labels, train = read_cifar10([tmp_path, tmp_path / "cifar10"], check=False)
    assert train == 60
    assert images.dtype == torch.float32
    expected = np.concatenate([batch for batch, _ in arrays]).transpose(0, 3, 1, 2)
    torch.testing.assert_close(images * 255, torch.from_numpy(expected.astype(np.float32)))
    assert labels.tolist() == np.concatenate([batch for _, batch in arrays]).tolist()


@pytest.mark.usefixtures("unchecked")
def test_patches_are_the_paper_s_federation(tmp_path):
    LAYOUTS["python"](tmp_path, cifar_arrays())
    federation = cifar10(data_dir=tmp_path)
    assert federation.name == "cifar10-9"
    shapes = [tuple(p.columns.shape) for p in federation.parties]
    assert shapes[0] == (72, 3, 10, 10)
    assert shapes[-1] == (72, 3, 12, 12)
    assert tuple(federation.whole.shape) == (72, 3, 32, 32)
    assert torch.equal(federation.parties[5].columns, federation.whole[:, :, 10:20, 20:])
    assert [len(federation.split.train), len(federation.split.validation)] == [54, 6]


@pytest.mark.usefixtures("unchecked")
def test_limit_reads_only_the_batches_it_needs(tmp_path):
    LAYOUTS["python"](tmp_path, cifar_arrays())
    for number in (3, 4, 5):
        (tmp_path / "cifar-10-batches-py" / f"data_batch_{number}").unlink()
    federation = cifar10(parties=4, data_dir=tmp_path, limit=20)
    assert federation.rows == 20 + 12
    assert federation.split.test.tolist() == list(range(20, 32))


@pytest.mark.usefixtures("unchecked")
def test_long_tail(tmp_path):
    LAYOUTS["binary"](tmp_path, cifar_arrays(rows=100))
    federation = cifar10(parties=1, data_dir=tmp_path, long_tail=10)
    used = torch.cat([federation.split.train, federation.split.validation])
    assert torch.bincount(federation.labels[used]).tolist() == [50, 38, 29, 23, 17, 13, 10, 8, 6, 5]


def test_the_written_batches_are_like_the_originals():
    (images, labels), *_ = cifar_arrays()
    raw = python_batch(images, labels)
    assert raw.startswith(b"\x80\x02}q")
    assert b"U\x06labelsq" in raw
    loaded = pickle.loads(raw, encoding="bytes")  # noqa: S301 (our own bytes)
    assert loaded[b"labels"] == labels.tolist()
    assert loaded[b"data"].shape == (12, 3072)


def test_a_python_batch_longer_than_one_run_of_the_list(tmp_path):
    rows = 2500  # pickle writes lists in runs of 1,000
    images = np.zeros((rows, 32, 32, 3), dtype=np.uint8)
    images[:, 0, 0, 0] = np.arange(rows) % 251
    labels = (np.arange(rows) % 10).astype(np.uint8)
    (tmp_path / "data_batch_1").write_bytes(python_batch(images, labels))
    read_images, read_labels = read_python(tmp_path, "train_1", check=False)
    assert np.array_equal(read_images, images)
    assert np.array_equal(read_labels, labels)


def test_a_pickle_is_never_run(tmp_path):
    class Trap:
        def __reduce__(self):
            return (open, (str(tmp_path / "sprung"), "w"))

    (tmp_path / "data_batch_1").write_bytes(pickle.dumps({b"labels": Trap()}, protocol=2))
    with pytest.raises(DataError, match=r"data_batch_1 is not a CIFAR-10 Python batch.*get it again"):
        read_python(tmp_path, "train_1", check=False)
    assert not (tmp_path / "sprung").exists()


def test_other_python_batches_than_the_published_are_refused(tmp_path):
    arrays = cifar_arrays()
    LAYOUTS["python"](tmp_path, arrays)
    with pytest.raises(DataError, match=r"data_batch_1 is damaged.*md5.*needed c99cafc1"):
        cifar10(data_dir=tmp_path)
    LAYOUTS["archive"](tmp_path / "a", arrays)
    with pytest.raises(DataError, match=r"cifar-10-python\.tar\.gz is damaged.*md5.*needed c58f3010"):
        cifar10(data_dir=tmp_path / "a")
    with pytest.raises(DataError, match=r"data_batch_1 in .*tar\.gz is damaged: its md5 is not c99cafc1"):
        read_archived(tmp_path / "a" / "cifar-10-python.tar.gz", "train_1")


@pytest.mark.parametrize("layout", ["sheets", "binary"])
def test_other_images_or_labels_than_the_published_are_refused(tmp_path, layout, monkeypatch):
    arrays = cifar_arrays()
    LAYOUTS[layout](tmp_path, arrays)
    wanted = BATCHES["train_1"][2]
    with pytest.raises(DataError, match=f"batch 'train_1': its images are not the published.*needed {wanted}.*get the"):
        cifar10(data_dir=tmp_path)
    known = hashlib.sha256(arrays[0][0].tobytes()).hexdigest()
    monkeypatch.setitem(cifar10_files.BATCHES, "train_1", (*BATCHES["train_1"][:2], known, "another"))
    with pytest.raises(DataError, match="batch 'train_1': its labels are not the published"):
        cifar10(data_dir=tmp_path)


def test_nothing_found_names_the_archive_and_its_address(tmp_path):
    with pytest.raises(MissingData, match=r"cifar-10-python\.tar\.gz was not found.*cs\.toronto\.edu.*no network"):
        cifar10(data_dir=tmp_path)


def test_unreadable_files_are_named(tmp_path):
    with pytest.raises(DataError, match=r"CIFAR-10 batch .*data_batch_2 cannot be read: .*get it again"):
        read_python(tmp_path, "train_2")
    (tmp_path / "data_batch_1.bin").write_bytes(bytes(3074))
    with pytest.raises(DataError, match=r"data_batch_1\.bin has 3074 bytes; needed a multiple of 3073"):
        read_binary(tmp_path, "train_1")
    (tmp_path / "bad.tar.gz").write_bytes(b"no archive")
    with pytest.raises(DataError, match=r"bad\.tar\.gz cannot be read"):
        read_archived(tmp_path / "bad.tar.gz", "train_1")
    (tmp_path / "train_1.webp").write_bytes(b"no picture")
    with pytest.raises(DataError, match=r"train_1\.webp and labels\.npz beside it cannot be read"):
        read_sheet(tmp_path, "train_1")


def test_a_sheet_must_have_a_tile_per_label(tmp_path):
    LAYOUTS["sheets"](tmp_path, cifar_arrays())
    np.savez(tmp_path / "cifar10" / "labels.npz", train=np.zeros(50, dtype=np.uint8), test=np.zeros(12))
    with pytest.raises(DataError, match=r"train_1\.webp has 3 x 4 tiles but labels\.npz has 10 labels"):
        read_sheet(tmp_path / "cifar10", "train_1")


def test_sheets_without_pillow_say_what_to_install(tmp_path, monkeypatch):
    LAYOUTS["sheets"](tmp_path, cifar_arrays())
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(DataError, match=r"needs PIL.*pip install colonnade\[images\]"):
        cifar10(data_dir=tmp_path)


def test_options_out_of_range_are_refused(tmp_path):
    for parties in (8, 0, -4):
        with pytest.raises(ConfigError, match=f"parties = {parties}: .*square number"):
            cifar10(parties=parties, data_dir=tmp_path)
    with pytest.raises(ConfigError, match="limit = 0: needed at least one"):
        cifar10(data_dir=tmp_path, limit=0)
