"""The registry of data sets, and the one that needs no file."""

from __future__ import annotations

import inspect

import pytest
import torch

from colonnade.data import sets
from colonnade.errors import ConfigError, MissingData


def test_every_set_is_registered_under_its_own_name():
    assert list(sets.SETS) == ["digits", "mnist", "cifar10", "nus_wide", "modelnet40"]
    for name, load in sets.SETS.items():
        assert load is getattr(sets, name)
        assert {"parties", "seed"} <= set(inspect.signature(load).parameters)


def test_digits_are_strips_of_the_whole():
    federation = sets.digits()
    assert federation.name == "digits-8"
    assert federation.names[0] == "party_1"
    assert [tuple(p.columns.shape) for p in federation.parties] == [(1797, 1, 8)] * 8
    torch.testing.assert_close(torch.cat([p.columns for p in federation.parties], dim=1), federation.whole)
    assert float(federation.whole.max()) == 1.0
    split = federation.split
    assert [len(split.train), len(split.validation), len(split.test)] == [1258, 180, 359]


def test_digits_split_depends_on_the_seed_only():
    assert torch.equal(sets.digits(seed=1).split.test, sets.digits(parties=2, seed=1).split.test)
    assert not torch.equal(sets.digits(seed=1).split.test, sets.digits(seed=2).split.test)


def test_load_set_is_the_function_by_name():
    assert sets.load_set("digits", parties=2, seed=3).names == ("party_1", "party_2")


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("mnits", {}, "no data set called 'mnits'; did you mean 'mnist'"),
        ("adult", {}, "no data set called 'adult'; known: digits, mnist"),
        ("digits", {"partys": 2}, "unknown key 'partys' in .data set digits.; did you mean 'parties'"),
        ("digits", {"parties": "many"}, "data set digits: parties = 'many' is not valid: input should be a valid int"),
        ("mnist", {"split": "rows"}, "split = 'rows' is not valid: input should be 'strips' or 'subsets'"),
        ("digits", {"parties": 9}, "parties = 9: images of 8 rows"),
    ],
)
def test_wrong_names_and_options_are_refused_with_a_hint(name, options, says):
    with pytest.raises(ConfigError, match=says):
        sets.load_set(name, **options)


@pytest.mark.parametrize("name", ["mnist", "cifar10", "nus_wide", "modelnet40"])
def test_a_set_that_is_not_here_says_where_it_was_looked_for(name, tmp_path, cache):
    with pytest.raises(MissingData) as caught:
        sets.load_set(name, data_dir=str(tmp_path / "mine"))
    for part in (str(tmp_path / "mine"), str(tmp_path / "mine" / name), str(cache / name), "https://", "--data-dir"):
        assert part in str(caught.value)
