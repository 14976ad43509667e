"""Compressors: errors against their bounds, codes against slow searches, bits against a loop."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from colonnade.methods import _compress
from colonnade.methods._compress import arrays, compress, expand, lattice_step, pack, shared_key, top, unpack

KEY = torch.tensor(shared_key(0))
KINDS: list[Any] = ["scalar", "lattice", "topk"]


def vectors(rows: int = 300, width: int = 61, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(2, rows, width)))


def salts(rows: int = 300) -> Tensor:
    return torch.from_numpy(np.random.default_rng(1).integers(0, 256, (2, rows, 1)).astype(np.uint8))


def through(kind: Any, levels: int, x: Tensor, salt: Tensor) -> Tensor:
    return expand(kind, levels, compress(kind, levels, x, salt, KEY), x.shape[-1], KEY, x.dtype)


@given(st.integers(1, 16), st.integers(1, 40), st.integers(0, 2**32))
@settings(max_examples=50, deadline=None)
def test_packing_loses_nothing_and_leaves_no_gap(bits: int, count: int, seed: int) -> None:
    codes = torch.from_numpy(np.random.default_rng(seed).integers(0, 2**bits, (3, count)))
    packed = pack(codes, bits)
    assert packed.dtype == torch.uint8
    assert packed.shape == (3, math.ceil(bits * count / 8))
    assert torch.equal(unpack(packed, bits, count), codes)
    as_one = sum(int(c) << (bits * i) for i, c in enumerate(codes[0]))
    assert int.from_bytes(bytes(packed[0].tolist()), "little") == as_one


@pytest.mark.parametrize("levels", [4, 8, 16, 256])
def test_a_level_is_never_further_than_half_a_step_and_errors_are_uniform(levels: int) -> None:
    x = vectors()
    error = (through("scalar", levels, x, salts()) - x) / x.abs().amax(dim=-1, keepdim=True) * (levels - 1)
    assert error.abs().max() <= 1 + 1e-5
    seen = np.histogram(error.numpy(), bins=20, range=(-1, 1))[0]
    wanted = error.numel() / 20
    assert ((seen - wanted) ** 2 / wanted).sum() < 45  # chi-square with 19 degrees of freedom, 0.1 %
    assert abs(float(torch.corrcoef(torch.stack([error.flatten(), x.flatten()]))[0, 1])) < 0.02


@pytest.mark.parametrize("levels", [4, 8, 16])
def test_a_lattice_point_is_never_further_than_a_corner_of_its_cell(levels: int) -> None:
    x = vectors(width=60)
    error = (through("lattice", levels, x, salts()) - x) / x.abs().amax(dim=-1, keepdim=True)
    far = error.unflatten(-1, (-1, 2)).square().sum(dim=-1).sqrt()
    assert far.max() <= lattice_step(levels) / math.sqrt(3) * (1 + 1e-5)
    assert abs(float(error.mean())) < 0.01


def test_the_nearest_lattice_point_is_the_nearest_of_all() -> None:
    levels = 8
    at = torch.from_numpy(np.random.default_rng(2).uniform(-1, 9, (400, 2)))
    row, column = _compress._nearest(at, levels)
    points = [(c + 0.5 * (r % 2), r * math.sqrt(3) / 2) for r in range(levels) for c in range(levels)]
    for k in range(len(at)):
        x, y = at[k].tolist()
        inside = 0 <= x <= levels - 0.5 and 0 <= y <= (levels - 1) * math.sqrt(3) / 2
        if inside:
            best = min(math.dist((x, y), p) for p in points)
            found = (float(column[k]) + 0.5 * (int(row[k]) % 2), float(row[k]) * math.sqrt(3) / 2)
            assert math.dist((x, y), found) == pytest.approx(best, abs=1e-12)


@pytest.mark.parametrize("levels", [4, 16])
def test_topk_keeps_the_largest(levels: int) -> None:
    x = vectors(rows=20)
    read, kept = through("topk", levels, x, salts(20)), top(levels, 61)
    for old, new in zip(x.reshape(-1, 61).tolist(), read.reshape(-1, 61).tolist(), strict=True):
        largest = sorted(range(61), key=lambda i: -abs(old[i]))[:kept]
        assert new == [old[i] if i in largest else 0.0 for i in range(61)]
    assert top(16, 60) == 8  # 60 log2(16)/32 is 7.5


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_said_is_what_was_agreed(kind: Any) -> None:
    for width in (1, 2, 7, 60, 300):
        x = vectors(rows=3, width=width)
        packed = compress(kind, 8, x, salts(3), KEY)
        agreed = arrays(kind, 8, width)
        assert packed.keys() == agreed.keys()
        for name, array in agreed.items():
            assert packed[name].shape == (2, 3, array.width)
            assert packed[name].dtype == (array.dtype or x.dtype)


@pytest.mark.parametrize("kind", KINDS)
def test_zeros_stay_zero_and_a_vector_does_not_depend_on_its_company(kind: Any) -> None:
    x, salt = vectors(rows=5), salts(5)
    x[1, 2] = 0
    read = through(kind, 8, x, salt)
    assert not read[1, 2].any()
    for p in range(2):
        for r in range(5):
            assert torch.equal(read[p, r], through(kind, 8, x[p, r], salt[p, r]))


@pytest.mark.parametrize("kind", ["scalar", "lattice"])
def test_another_salt_is_another_dither(kind: Any) -> None:
    x, one = vectors(rows=5), torch.zeros(2, 5, 1, dtype=torch.uint8)
    assert not torch.equal(through(kind, 8, x, one), through(kind, 8, x, one + 1))


@pytest.mark.parametrize("levels", [4, 8, 16])
def test_at_equal_bytes_levels_lose_less_than_the_lattice(levels: int) -> None:
    """As the page says: covering the dither costs the lattice more than its shape gains."""
    x = vectors(width=60)
    lost = {kind: float((through(kind, levels, x, salts()) - x).square().mean()) for kind in ("scalar", "lattice")}
    assert lost["scalar"] < lost["lattice"]
    sizes = [sum(a.size(x.dtype) for a in arrays(kind, levels, 60).values()) for kind in ("scalar", "lattice")]
    assert sizes[0] == sizes[1]


def test_figures_of_the_page() -> None:
    assert lattice_step(16) / math.sqrt(3) == pytest.approx(0.093, abs=5e-4)
    assert sum(a.size(torch.float32) for a in arrays("scalar", 16, 60).values()) == 35
    assert sum(a.size(torch.float32) for a in arrays("topk", 16, 60).values()) == 40
