"""The real files, where they are: counts, checksums and joins that small files cannot show."""

from __future__ import annotations

import hashlib

import numpy as np
import torch

from colonnade import check
from colonnade.data.frames import read_table
from colonnade.data.sets.cifar10_files import BATCHES, read_sheet
from colonnade.data.sets.mnist import mnist
from colonnade.data.table import join_tables


def test_mnist_has_the_published_counts_and_the_paper_s_split(shared_data):
    federation = mnist(data_dir=shared_data, download=False, long_tail=10)
    counts = [torch.bincount(federation.labels[part]).tolist() for part in (slice(60_000), slice(60_000, None))]
    assert counts == [
        [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949],
        [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009],
    ]
    used = torch.cat([federation.split.train, federation.split.validation])
    # The paper's list; its 6,000 zeros are more than the 5,923 there are.
    assert torch.bincount(federation.labels[used]).tolist() == [
        *[5923, 4645, 3596, 2784, 2156],
        *[1669, 1292, 1000, 774, 600],
    ]


def test_a_cifar10_sheet_decodes_to_the_published_pixels(shared_data):
    images, labels = read_sheet(shared_data / "cifar10", "test")
    assert hashlib.sha256(np.ascontiguousarray(images).data).hexdigest() == BATCHES["test"][2]
    assert hashlib.sha256(np.ascontiguousarray(labels).data).hexdigest() == BATCHES["test"][3]


def test_fate_tables_join_after_shuffling(shared_data):
    guest, host = (read_table(shared_data / "fate" / f"breast_hetero_{p}.csv.gz", id="id") for p in ("guest", "host"))
    joined = join_tables({"guest": guest, "host": host.sample(frac=1, random_state=0)}, labels="y", id="id")
    assert [tuple(p.columns.shape) for p in joined.parties] == [(569, 10), (569, 20)]
    assert torch.bincount(joined.labels[:, 0].to(torch.int64)).tolist() == [212, 357]
    plain = join_tables({"guest": guest, "host": host}, labels="y", id="id")
    torch.testing.assert_close(joined.parties[1].columns, plain.parties[1].columns)


def test_a_fate_table_with_holes_trains_with_an_indicator_per_column_and_names_the_empty_one(shared_data):
    guest = read_table(shared_data / "fate" / "ionosphere_scale_hetero_guest.csv.gz", id="sid")
    columns = join_tables({"guest": guest}, labels="label", id="sid").parties[0].columns
    # 15 columns: x1 is full, x2 is empty in every row, and 13 have holes, which a second column marks.
    assert tuple(columns.shape) == (351, 28) and torch.isfinite(columns).all()
    holes = guest.drop(columns=["sid", "label", "x1", "x2"]).isna().to_numpy()
    assert columns[:, 3::2].numpy().astype(bool).tolist() == holes.tolist()
    assert "column 'x2': all values are empty" in str(check({"guest": guest}, labels="label", id="sid"))
