"""MNIST from small files of the original layout."""

from __future__ import annotations

import gzip
from importlib import import_module

import numpy as np
import pytest
import torch

from colonnade.data.sets.mnist import mnist, read_idx, read_mnist
from colonnade.errors import ConfigError, DataError, MissingData
from tests.data.files import idx, write_mnist


@pytest.fixture
def unchecked(monkeypatch):
    """`mnist` itself on files made by a test, whose checksums cannot be the published ones."""
    module = import_module("colonnade.data.sets.mnist")
    monkeypatch.setattr(module, "read_mnist", lambda *args, **options: read_mnist(*args, check=False, **options))


@pytest.mark.parametrize("zipped", [True, False])
def test_images_and_labels_are_read(tmp_path, zipped):
    arrays = write_mnist(tmp_path, zipped=zipped)
    images, labels, train = read_mnist([tmp_path], check=False)
    assert train == 40
    assert images.dtype == torch.float32
    expected = np.concatenate([arrays["train-images-idx3-ubyte"], arrays["t10k-images-idx3-ubyte"]])
    torch.testing.assert_close(images * 255, torch.from_numpy(expected).float())
    assert labels.tolist() == [i % 10 for i in range(40)] + [i % 10 for i in range(20)]


@pytest.mark.usefixtures("unchecked")
def test_strips_are_the_paper_s_federation(tmp_path):
    write_mnist(tmp_path / "mnist")
    federation = mnist(data_dir=tmp_path)
    assert federation.name == "mnist-14"
    assert federation.names[0] == "party_01"
    assert {tuple(p.columns.shape) for p in federation.parties} == {(60, 2, 28)}
    assert tuple(federation.whole.shape) == (60, 28, 28)
    torch.testing.assert_close(torch.cat([p.columns for p in federation.parties], dim=1), federation.whole)
    assert [len(federation.split.train), len(federation.split.validation)] == [36, 4]
    assert federation.split.test.tolist() == list(range(40, 60))


@pytest.mark.usefixtures("unchecked")
def test_subsets_limit_and_long_tail(tmp_path):
    write_mnist(tmp_path, train=400)
    federation = mnist(parties=20, data_dir=tmp_path, split="subsets", limit=200, long_tail=10)
    assert federation.name == "mnist-subsets-20"
    assert {tuple(p.columns.shape) for p in federation.parties} == {(220, 14)}
    used = torch.cat([federation.split.train, federation.split.validation])
    assert torch.bincount(federation.labels[used]).tolist() == [20, 15, 11, 9, 7, 5, 4, 3, 2, 2]
    assert federation.split.test.tolist() == list(range(200, 220))


def test_other_files_than_the_published_are_refused(tmp_path):
    write_mnist(tmp_path)
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte\.gz is damaged.*needed 440fcabf"):
        mnist(data_dir=tmp_path)
    (tmp_path / "train-images-idx3-ubyte.gz").rename(tmp_path / "elsewhere")
    (tmp_path / "train-images-idx3-ubyte").write_bytes(b"unpacked")
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte is damaged.*needed ba891046"):
        mnist(data_dir=tmp_path)


def test_the_missing_file_is_named_with_its_address(tmp_path):
    with pytest.raises(MissingData, match=r"train-images-idx3-ubyte\.gz was not found.*ossci-datasets.*no network"):
        mnist(data_dir=tmp_path)
    with pytest.raises(MissingData, match="downloading is switched off"):
        mnist(data_dir=tmp_path, download=False)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "begins with nothing, needed 00000803"),
        (idx(np.zeros(3)), "idx file of bytes in 3 dimensions: it begins with 00000801, needed 00000803; get it again"),
        (idx(np.zeros((2, 3, 3)))[:-1], r"17 bytes of data, its header says \(2, 3, 3\)"),
    ],
)
def test_a_wrong_header_or_length_is_named(tmp_path, content, says):
    (tmp_path / "images").write_bytes(content)
    with pytest.raises(DataError, match=rf"{tmp_path}/images .*{says}"):
        read_idx(tmp_path / "images", dimensions=3)


@pytest.mark.parametrize("content", [b"not gzip", gzip.compress(bytes(1000), mtime=0)[:-20]], ids=["other", "cut"])
def test_a_broken_gzip_file_is_named(tmp_path, content):
    (tmp_path / "images.gz").write_bytes(content)
    with pytest.raises(DataError, match=r"images\.gz cannot be read: .*; get it again"):
        read_idx(tmp_path / "images.gz", dimensions=3)


def test_images_without_labels_are_refused(tmp_path):
    write_mnist(tmp_path)
    (tmp_path / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(np.zeros(39))))
    with pytest.raises(DataError, match="train-images-idx3-ubyte has 40 images but there are 39 labels"):
        read_mnist([tmp_path], check=False)


def test_options_out_of_range_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="limit = 0: needed at least one"):
        mnist(data_dir=tmp_path, limit=0)
    with pytest.raises(ConfigError, match="split = 'rows': needed 'strips' or 'subsets'"):
        mnist(data_dir=tmp_path, split="rows")
