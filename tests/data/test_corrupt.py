"""Noise on one party, and on nothing else."""

from __future__ import annotations

import pytest
import torch

from colonnade.data.corrupt import add_noise
from colonnade.errors import ConfigError
from colonnade.federation import Federation


@pytest.fixture
def pair() -> Federation:
    columns = torch.zeros(2000, 2, 3)
    return Federation.from_arrays({"a": columns, "b": columns}, torch.arange(2000) % 2, whole=columns)


def test_only_the_named_party_changes(pair):
    noisy = add_noise(pair, "b", 3.0, seed=1)
    assert torch.equal(noisy.parties[0].columns, pair.parties[0].columns)
    values = noisy.parties[1].columns
    assert values.dtype == torch.float32
    assert abs(float(values.std()) - 3.0) < 0.1
    assert abs(float(values.mean())) < 0.1
    assert not pair.parties[1].columns.any()


def test_the_clean_whole_is_forgotten(pair):
    noisy = add_noise(pair, "b", 1.0)
    assert noisy.whole is None
    assert noisy.pooled().parties[0].columns[:, 6:].any()


def test_the_same_address_gives_the_same_noise(pair):
    first = add_noise(pair, "a", 1.0, seed=5).parties[0].columns
    assert torch.equal(first, add_noise(pair, "a", 1.0, seed=5).parties[0].columns)
    assert not torch.equal(first, add_noise(pair, "a", 1.0, seed=6).parties[0].columns)
    assert not torch.equal(first, add_noise(pair, "b", 1.0, seed=5).parties[1].columns)


def test_some_rows_get_the_noise_they_would_get_with_all(pair):
    rows = torch.tensor([3, 7])
    everywhere = add_noise(pair, "a", 1.0).parties[0].columns
    some = add_noise(pair, "a", 1.0, rows=rows).parties[0].columns
    assert torch.equal(some[rows], everywhere[rows])
    assert int(some.flatten(1).any(dim=1).sum()) == 2


@pytest.mark.parametrize(
    ("party", "std", "says"),
    [("c", 1.0, "no party called 'c'; parties: a, b"), ("a", -1.0, "std = -1"), ("a", float("inf"), "std = inf")],
)
def test_a_wrong_party_or_deviation_is_refused(pair, party, std, says):
    with pytest.raises(ConfigError, match=says):
        add_noise(pair, party, std)
