"""The pieces: blinding commutes and hides, parts are whole, workers forget, settings are checked."""

from __future__ import annotations

import time
from typing import Any

import pytest

from colonnade.align.parts import PART, Parts, cut, parts_of, random_order
from colonnade.align.private import POINT, blind, blind_again, new_key
from colonnade.align.settings import AlignSettings
from colonnade.align.workers import Workers
from colonnade.config import build
from colonnade.errors import ConfigError, WireError


def points(blob: bytes) -> list[bytes]:
    return [blob[at : at + POINT] for at in range(0, len(blob), POINT)]


def test_blinding_twice_is_the_same_in_either_order() -> None:
    a, b, ids = new_key(), new_key(), ["x", "y", "ß", "a,b"]
    one, two = blind(ids, "n", a), blind(ids, "n", b)
    assert blind_again(one, b, "w") == blind_again(two, a, "w")
    assert len(set(points(one)) | set(points(two))) == 8


def test_alignments_of_different_names_have_nothing_in_common() -> None:
    key = new_key()
    assert blind(["x"], "one", key) == blind(["x"], "one", key) != blind(["x"], "two", key)


def test_a_point_that_is_none_is_refused_without_showing_it() -> None:
    with pytest.raises(WireError, match="party 'x' sent a blinded id that is no point of the curve") as error:
        blind_again(b"\x02" + b"\xff" * 32, new_key(), "party 'x'")
    assert "ff" not in str(error.value)


@pytest.mark.parametrize("ids", [1, PART - 1, PART, PART + 1, 3 * PART + 7])
def test_parts_make_the_whole_in_any_order(ids: int) -> None:
    items = list(range(ids))
    assert [i for part in range(parts_of(ids)) for i in cut(items, part)] == items
    whole = b"".join(number.to_bytes(POINT, "big") for number in items)
    parts = Parts(ids, "the whole")
    for part in reversed(range(parts.total)):
        assert not parts.complete
        body = whole[part * PART * POINT : (part + 1) * PART * POINT]
        parts.check(part, body)
        parts.put(part, body)
    assert parts.complete and parts.points() == points(whole)


def test_an_order_is_a_permutation_and_never_the_same() -> None:
    orders = [random_order(500).tolist() for _ in range(3)]
    assert all(sorted(order) == list(range(500)) for order in orders)
    assert len({tuple(order) for order in orders}) == 3


def test_workers_forget_what_was_given_before() -> None:
    def slowly(answer: bytes) -> bytes:
        time.sleep(0.02)
        return answer

    with Workers(1) as workers:
        for number in range(3):
            workers.give(("old", number), slowly, b"old")
        workers.forget()
        workers.give("new", slowly, b"new")
        results: list[Any] = []
        while not results:
            results = workers.finished()
        time.sleep(0.1)
        assert results + workers.finished() == [("new", b"new")]


def test_what_goes_wrong_in_a_worker_is_raised_where_results_are_taken() -> None:
    with Workers(1) as workers:
        workers.give("bad", blind_again, b"\0" * POINT, new_key(), "party 'x'")
        with pytest.raises(WireError, match="party 'x'"):
            while True:
                workers.finished()


@pytest.mark.parametrize(
    ("chosen", "sentence"),
    [
        ({"name": "Big", "parties": ["a"]}, "name"),
        ({"name": "x", "parties": []}, "parties"),
        ({"name": "x", "parties": ["a.b"]}, "parties"),
        ({"name": "x", "parties": ["a"], "own": ["a"]}, "named twice"),
        ({"name": "x", "parties": ["coordinator"]}, "label holder itself"),
        ({"name": "x", "parties": ["a"], "keep": "some"}, "keep"),
        ({"name": "x", "parties": ["a"], "kep": "all"}, "did you mean 'keep'"),
    ],
)
def test_settings_are_checked(chosen: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        build(AlignSettings, chosen, "align")
