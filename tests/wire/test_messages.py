"""Orders and traffic: what the coordinator says survives the wire, and bytes are counted where they fall."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from colonnade.errors import WireError
from colonnade.methods import VIMADMM
from colonnade.wire.codec import decode, encode
from colonnade.wire.messages import (
    Purpose,
    Query,
    Request,
    common_arrays,
    prefixed,
    read_common,
    read_request,
    request_arrays,
    request_header,
    unprefixed,
)
from colonnade.wire.traffic import Traffic
from tests.contracts.registry import NAMES, covering, make
from tests.federations import small
from tests.trainers import ENGINES, open_trainer, rounds_of

EVERYONE = ("bank", "telco", "shop")
some = st.lists(st.sampled_from(EVERYONE), unique=True).map(tuple)
queries = st.builds(
    Query,
    st.sampled_from(Purpose),
    some,
    st.lists(st.integers(0, 2**31 - 1), max_size=6).map(lambda r: torch.tensor(r).long()),
)
orders = st.builds(
    Request,
    number=st.integers(0, 10**6),
    queries=st.lists(queries, max_size=3).map(tuple),
    learners=some | st.just(EVERYONE),
    steps=st.lists(st.tuples(st.sampled_from(EVERYONE), st.integers(0, 50)), max_size=3).map(tuple),
    keep=st.booleans(),
    stop=st.none() | st.text(max_size=20),
)


@given(orders)
def test_a_request_survives_the_wire(request: Request) -> None:
    header, arrays = decode(encode(request_header(request, EVERYONE), request_arrays(request)))
    read = read_request(header, arrays, EVERYONE)
    assert (read.number, read.learners, read.steps, read.keep, read.stop) == (
        request.number, request.learners, request.steps, request.keep, request.stop,
    )  # fmt: skip
    assert len(read.queries) == len(request.queries)
    for got, sent in zip(read.queries, request.queries, strict=True):
        assert (got.purpose, got.senders) == (sent.purpose, sent.senders)
        assert torch.equal(got.rows, sent.rows)


def test_everyone_is_one_character_however_many_they_are() -> None:
    crowd = tuple(f"party_{k}" for k in range(1000))
    request = Request(1, (Query(Purpose.TRAIN, crowd, torch.arange(4)),), crowd)
    assert len(json.dumps(request_header(request, crowd))) < 200


@pytest.mark.parametrize(
    "change",
    [
        {"asks": [{"purpose": "STEAL", "speakers": "*"}]},
        {"asks": [{"speakers": "*"}]},
        {"asks": 3},
        {"number": "many"},
        {"steps": [["bank"]]},
        {"learners": None},
    ],
)
def test_a_malformed_request_is_refused(change: dict[str, Any]) -> None:
    header = {**request_header(Request(1), EVERYONE), **change}
    with pytest.raises(WireError, match="malformed"):
        read_request(header, {"rows.0": torch.arange(2)}, EVERYONE)


def test_a_request_without_its_rows_is_refused() -> None:
    request = Request(1, (Query(Purpose.TRAIN, EVERYONE, torch.arange(2)),))
    with pytest.raises(WireError, match="malformed"):
        read_request(request_header(request, EVERYONE), {}, EVERYONE)


def test_prefixes() -> None:
    arrays = {"v": torch.ones(1), "w.0": torch.zeros(1)}
    assert unprefixed("common", {**prefixed("common", arrays), "rows.0": torch.ones(1)}) == arrays


class TestTraffic:
    @pytest.mark.parametrize(("name", "engine"), [(n, e) for n, e in covering(ENGINES) if n in NAMES])
    def test_every_byte_is_counted_once(self, name: str, engine: str) -> None:
        trainer = open_trainer(small(), make(name, local_steps=1), engine=engine, rounds=5, evaluate_every=2)
        up = down = common = evaluating = evaluation_up = 0
        parties = len(trainer.federation.parties)
        for e in rounds_of(trainer):
            rows = sum(4 * len(a.rows) for a in e.request.queries if a.purpose is Purpose.EVALUATE)
            common += len(e.down.everyone.payload) - rows
            evaluating += rows
            down += sum(len(r.payload) for r in e.down.own.values())
            for query, releases in zip(e.request.queries, e.collected.releases, strict=True):
                size = sum(len(r.payload) for r in releases)
                up, evaluation_up = (
                    (up + size, evaluation_up) if query.purpose is Purpose.TRAIN else (up, evaluation_up + size)
                )
        traffic = trainer.coordinator.traffic
        assert traffic.up == up
        assert traffic.down == down + parties * common
        assert traffic.multicast == up + down + common
        assert traffic.evaluation == evaluation_up + parties * evaluating
        assert sum(v["up"] for v in traffic.per_party().values()) == up
        assert traffic.until(10**9) == traffic.up + traffic.down

    def test_the_sizes_are_the_published_ones(self) -> None:
        """Up b d_f, down (b + d_f) d_c folded, in numbers of eight bytes, plus headers."""
        trainer = open_trainer(small(), VIMADMM(), rounds=3, evaluate_every=0, schedule={"batch": 54})
        for _ in rounds_of(trainer):
            pass
        second = trainer.coordinator.traffic.rounds[1]
        b, d_f, d_c = 54, 4, 3
        assert 0 < second.up[0] - 8 * b * d_f < 250
        assert 0 < second.down[0] - 8 * (b + d_f) * d_c - 4 * b < 700

    def test_what_is_counted_later_stands_in_its_order(self) -> None:
        """A request is sealed after the next one has begun, but counted where it was made."""
        traffic = Traffic(("bank", "telco"))

        def count(number: int) -> None:
            traffic.begin(number).multicast_down += number

        traffic.later(lambda: count(1))
        traffic.later(lambda: count(2))
        traffic.begin(3).multicast_down += 3
        traffic.later(lambda: count(3))  # made again after a restart
        assert [(r.number, r.multicast_down) for r in traffic.rounds] == [(1, 1), (2, 2), (3, 3)]

    def test_it_survives_json(self) -> None:
        trainer = open_trainer(small(), VIMADMM(), rounds=3, evaluate_every=1)
        for _ in rounds_of(trainer):
            pass
        traffic = trainer.coordinator.traffic
        again = Traffic.from_json(traffic.parties, json.loads(json.dumps(traffic.to_json())))
        assert again.to_json() == traffic.to_json()
        assert (again.up, again.down, again.evaluation) == (traffic.up, traffic.down, traffic.evaluation)
        assert traffic.to_json(2) == traffic.to_json()[2:]

    def test_a_silent_party_sends_nothing(self) -> None:
        trainer = open_trainer(
            small(), VIMADMM(), rounds=4, evaluate_every=0, schedule={"batch": 20, "participation": 0.5}
        )
        for _ in rounds_of(trainer):
            pass
        for n in range(1, 5):
            senders = trainer.coordinator.schedule.plan(n).senders
            sent = trainer.coordinator.traffic.rounds[n - 1].up
            assert [bool(size) for size in sent] == [party in senders for party in trainer.federation.names]


class TestBits:
    @given(st.integers(1, 40), st.integers(1, 3))
    def test_labels_of_yes_and_no_are_read_again(self, rows: int, labels: int) -> None:
        flags = (torch.arange(rows * labels) % 3 == 1).view(rows, labels)
        common = {"targets": flags, "weights": torch.rand(rows)}
        arrays = common_arrays(common)
        assert arrays["flags.targets"].numel() == (rows + 7) // 8 * labels
        found = read_common(arrays)
        assert found.keys() == common.keys()
        assert all(torch.equal(found[name], value) for name, value in common.items())

    def test_a_message_is_as_long_whatever_bytes_it_holds(self) -> None:
        for value in (0, 1, 2):
            assert set(common_arrays({"codes": torch.full((9,), value, dtype=torch.uint8)})) == {"common.codes"}

    @pytest.mark.parametrize(
        "length", [torch.tensor([17]), torch.tensor([8]), torch.tensor([1, 2]), torch.tensor([-1]), None]
    )
    def test_bits_that_are_no_labels(self, length: torch.Tensor | None) -> None:
        arrays = {"flags.targets": torch.zeros(2, dtype=torch.uint8)} | (
            {} if length is None else {"length.targets": length}
        )
        with pytest.raises(WireError, match="the bits of 'targets'"):
            read_common(arrays)
