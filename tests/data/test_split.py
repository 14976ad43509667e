"""Splitting columns and rows: nothing lost, nothing twice, the same for the same seed."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from colonnade.data.split import (
    blocks,
    file_split,
    holdout,
    long_tail,
    long_tail_sizes,
    party_names,
    patches,
    random_subsets,
    strips,
    views,
)
from colonnade.errors import ConfigError, DataError, RowsDisagree

sizes = st.integers(1, 9)
channels = st.sampled_from([(), (1,), (3,)])


def numbered(*shape: int) -> torch.Tensor:
    """Every element is its own number, so that one can see where it went."""
    return torch.arange(int(np.prod(shape)), dtype=torch.float32).reshape(shape)


def everything(parts: dict[str, torch.Tensor]) -> list[float]:
    return sorted(torch.cat([part.flatten() for part in parts.values()]).tolist())


@given(rows=sizes, height=sizes, width=sizes, inner=channels, data=st.data())
def test_every_pixel_is_in_exactly_one_strip(rows, height, width, inner, data):
    images = numbered(rows, *inner, height, width)
    parties = data.draw(st.integers(1, height))
    parts = strips(images, parties)
    assert len(parts) == parties
    assert everything(parts) == images.flatten().tolist()
    heights = [part.shape[-2] for part in parts.values()]
    assert max(heights) - min(heights) <= 1
    torch.testing.assert_close(torch.cat(list(parts.values()), dim=-2), images)


@given(rows=sizes, height=sizes, width=sizes, inner=channels, data=st.data())
def test_every_pixel_is_in_exactly_one_patch(rows, height, width, inner, data):
    images = numbered(rows, *inner, height, width)
    grid = data.draw(st.integers(1, min(height, width)))
    parts = list(patches(images, grid).values())
    assert len(parts) == grid * grid
    lines = [torch.cat(parts[k : k + grid], dim=-1) for k in range(0, grid * grid, grid)]
    torch.testing.assert_close(torch.cat(lines, dim=-2), images)


@given(rows=sizes, columns=sizes, data=st.data())
def test_every_column_is_in_exactly_one_block(rows, columns, data):
    table = numbered(rows, columns)
    parties = data.draw(st.integers(1, columns))
    torch.testing.assert_close(torch.cat(list(blocks(table, parties).values()), dim=1), table)
    cuts = sorted(data.draw(st.sets(st.integers(1, columns - 1)))) if columns > 1 else []
    widths = np.diff([0, *cuts, columns]).tolist()
    by_width = blocks(table, widths)
    assert [part.shape[1] for part in by_width.values()] == widths
    torch.testing.assert_close(torch.cat(list(by_width.values()), dim=1), table)


@given(parties=st.integers(1, 12), size=st.integers(1, 20), seed=st.integers(0, 5))
def test_subsets_have_no_repeats_and_depend_only_on_seed_and_name(parties, size, seed):
    table = numbered(2, 4, 5)
    parts = random_subsets(table, parties, size, seed)
    again = random_subsets(table, parties, size, seed)
    for name, part in parts.items():
        assert part.shape == (2, size)
        assert len(set(part[0].tolist())) == size
        torch.testing.assert_close(part[1], part[0] + 20)  # the same columns in every row
        torch.testing.assert_close(part, again[name])


def test_subsets_differ_between_parties_and_seeds():
    table = numbered(1, 784)
    parts = random_subsets(table, parties=9, size=14, seed=0)
    chosen = [tuple(part[0].tolist()) for part in parts.values()]
    assert len(set(chosen)) == 9
    assert chosen[0] != tuple(random_subsets(table, 9, 14, seed=1)["party_1"][0].tolist())


def test_the_paper_s_patches_are_cut_at_10_20_and_32():
    parts = patches(torch.zeros(1, 3, 32, 32), 3)
    assert [tuple(part.shape[-2:]) for part in parts.values()] == [
        *[(10, 10), (10, 10), (10, 12)],
        *[(10, 10), (10, 10), (10, 12)],
        *[(12, 10), (12, 10), (12, 12)],
    ]


def test_image_splits_share_memory_with_the_images():
    images = torch.zeros(2, 4, 4)
    for part in (*strips(images, 2).values(), *patches(images, 2).values()):
        assert part.untyped_storage().data_ptr() == images.untyped_storage().data_ptr()


def test_names_sort_in_order():
    assert party_names(3) == ["party_1", "party_2", "party_3"]
    assert party_names(14)[0] == "party_01"
    assert party_names(100) == sorted(party_names(100))


def test_views_keep_names_and_number_those_without():
    assert list(views({"image": np.zeros((3, 2)), "text": np.ones((3, 1))})) == ["image", "text"]
    assert list(views([np.zeros((3, 2)), np.ones((3, 1))])) == ["party_1", "party_2"]


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: strips(torch.zeros(1, 4, 4), 5), ConfigError, "parties = 5.*4 rows"),
        (lambda: strips(torch.zeros(1, 4, 4), 0), ConfigError, "parties = 0.*at least one"),
        (lambda: strips(torch.zeros(4, 4), 2), DataError, r"\(N, H, W\).*\(4, 4\)"),
        (lambda: patches(torch.zeros(1, 4, 6), 5), ConfigError, "grid = 5.*1 to 4.*4 x 6"),
        (lambda: patches(torch.zeros(1, 4, 6), 0), ConfigError, "grid = 0"),
        (lambda: blocks(torch.zeros(1, 4), 5), ConfigError, "parties = 5.*4 columns"),
        (lambda: blocks(torch.zeros(1, 4), [3, 2]), ConfigError, r"\[3, 2\].*5.*add up to 4"),
        (lambda: blocks(torch.zeros(1, 4), [4, 0]), ConfigError, "positive widths"),
        (lambda: blocks(torch.zeros(1, 4, 2), 2), DataError, r"\(rows, columns\).*\(1, 4, 2\)"),
        (lambda: views([np.zeros(3), np.zeros(2)]), RowsDisagree, "party_1: 3, party_2: 2"),
        (lambda: random_subsets(torch.zeros(1, 4), 2, 5), ConfigError, "size = 5.*1 to 4"),
        (lambda: holdout(10, 5, validation=1.0), ConfigError, "validation = 1.0"),
        (lambda: holdout(0, 5), DataError, "0 training rows"),
        (lambda: long_tail_sizes(10, 3, 0.5), ConfigError, "factor = 0.5.*at least 1"),
        (lambda: long_tail_sizes(10, 3, float("nan")), ConfigError, "factor = nan"),
    ],
)
def test_what_cannot_be_split_is_refused_with_the_reason(call, error, says):
    with pytest.raises(error, match=says):
        call()


def test_holdout_has_the_paper_s_sizes_and_keeps_the_files_apart():
    split = holdout(60_000, 10_000, seed=3)
    assert [len(split.train), len(split.validation), len(split.test)] == [54_000, 6_000, 10_000]
    assert split.test.tolist() == list(range(60_000, 70_000))
    assert sorted(torch.cat([split.train, split.validation]).tolist()) == list(range(60_000))


def test_holdout_depends_only_on_the_seed():
    assert torch.equal(holdout(100, 9, seed=1).train, holdout(100, 9, seed=1).train)
    assert not torch.equal(holdout(100, 9, seed=1).train, holdout(100, 9, seed=2).train)


def test_long_tail_sizes_are_the_paper_s():
    assert long_tail_sizes(6000, 10) == [6000, 4645, 3596, 2784, 2156, 1669, 1292, 1000, 774, 600]
    assert long_tail_sizes(5000, 10) == [5000, 3871, 2997, 2320, 1796, 1391, 1077, 834, 645, 500]
    assert long_tail_sizes(7, 1) == [7]


def test_long_tail_takes_the_sizes_it_can_and_keeps_the_order():
    labels = torch.arange(300) % 3
    rows = torch.arange(250).flip(0)
    kept = long_tail(labels, rows, factor=4, seed=0, head=90)
    assert torch.bincount(labels[kept]).tolist() == [84, 45, 22]  # not 90: there are only 84
    assert kept.tolist() == sorted(kept.tolist(), reverse=True)
    assert torch.equal(kept, long_tail(labels, rows, factor=4, seed=0, head=90))
    assert not torch.equal(kept, long_tail(labels, rows, factor=4, seed=1, head=90))


def test_long_tail_starts_from_the_largest_class_unless_told():
    labels = torch.tensor([0] * 20 + [1] * 40)
    assert torch.bincount(labels[long_tail(labels, torch.arange(60), factor=4)]).tolist() == [20, 10]


def test_a_long_tailed_file_is_shrunk_before_validation_rows_are_taken():
    labels = torch.arange(1100) % 10
    split = file_split(labels, 1000, long_tail_factor=10)
    used = torch.cat([split.train, split.validation])
    assert torch.bincount(labels[used]).tolist() == long_tail_sizes(100, 10)
    assert int(used.max()) < 1000
    assert len(split.validation) == round(0.1 * len(used))
    assert split.test.tolist() == list(range(1000, 1100))
