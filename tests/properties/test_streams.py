"""Named streams: 128 bits, no collisions, nothing remembered between calls."""

from __future__ import annotations

import itertools

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from colonnade.randomness import dropout_key, key, permutation, seeded, stream

addresses = st.tuples(st.integers(0, 2**70), st.text(max_size=8), st.text(max_size=8), st.integers(0, 2**40))


@given(addresses, addresses)
def test_distinct_addresses_have_distinct_streams(one: tuple, other: tuple) -> None:
    assert (key(*one) == key(*other)) == (one == other)
    assert (stream(*one).random(4) == stream(*other).random(4)).all() == (one == other)


def test_a_seed_counts_beyond_32_bits() -> None:
    """torch's own CPU generator gives one stream for both."""
    assert not np.array_equal(stream(5, "noise").normal(size=8), stream(5 + 2**32, "noise").normal(size=8))
    assert dropout_key(5, "bank") != dropout_key(5 + 2**32, "bank")


def test_no_collision_in_a_hundred_thousand_keys() -> None:
    """With 32 bits there would be one already from about 65,000 on."""
    parties = [f"party_{k}" for k in range(100)]
    names = list(itertools.product(range(2), ("noise", "rows"), parties, range(250)))
    assert len(names) == 100_000
    assert len({key(*name) for name in names}) == len(names)
    assert len({dropout_key(0, party, plan) for party in parties for plan in range(1000)}) == 100_000


def test_keys_use_all_their_bits() -> None:
    keys = [key(0, "bits", number=t) for t in range(2000)]
    for bit in range(128):
        ones = sum((k >> bit) & 1 for k in keys)
        assert 850 < ones < 1150
    assert all(0 <= dropout_key(0, "bank", t) < 2**62 for t in range(100))


def test_names_cannot_run_into_each_other() -> None:
    assert key(0, "ab", "c") != key(0, "a", "bc")
    assert key(0, "a", "b", 12) != key(0, "a", "b1", 2)
    assert key(0, 'a", "b') != key(0, "a", "b")


def test_a_stream_is_the_same_every_time_it_is_opened() -> None:
    assert np.array_equal(stream(1, "x", "bank", 2).normal(size=5), stream(1, "x", "bank", 2).normal(size=5))


@given(st.integers(1, 50), st.integers(0, 1000))
def test_a_permutation_keeps_every_row(rows: int, plan: int) -> None:
    mixed = permutation(torch.arange(rows) + 7, 0, "rows", plan)
    assert sorted(mixed.tolist()) == list(range(7, rows + 7))


def test_making_a_network_disturbs_nobody() -> None:
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    one = seeded(lambda: torch.nn.Linear(3, 3), 0, "encoder", "bank")
    other = seeded(lambda: torch.nn.Linear(3, 3), 0, "encoder", "bank")
    assert torch.equal(one.weight, other.weight)
    assert torch.equal(before, torch.random.get_rng_state())
