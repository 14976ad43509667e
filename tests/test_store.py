"""One transaction: what was sent is in the ledger, what was written is found again, and a full disk loses nothing."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from colonnade import store as module
from colonnade.errors import GateError, RunError, Unwritable
from colonnade.privacy.gate import EMPTY, Gate, repeat
from colonnade.privacy.ledger import Entry, Ledger
from colonnade.privacy.sealed import Array, Release, Upload
from colonnade.store import Store, TensorTable
from colonnade.wire.messages import Purpose


def release(number: int, ledger: Ledger) -> Release:
    upload = Upload({"h": torch.full((1, 2, 3), float(number))})
    return Gate("run", ledger, {"h": Array(3)}).release(upload, ["bank"], number, Purpose.TRAIN, 2).releases[0]


def same(left: dict[str, Tensor], right: dict[str, Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[k], right[k]) for k in left)


class TestOutbox:
    def test_the_last_round_can_be_repeated_byte_for_byte(self, tmp_path: Path) -> None:
        store, ledger = Store(tmp_path / "x.db"), Ledger()
        for number in (1, 2):
            before, sent = len(ledger), release(number, ledger)
            store.commit({"number": number}, {}, ledger=ledger.since(before), outbox=[(0, sent)])
        assert store.sent(1) == []
        assert store.sent(2) == [(0, "TRAIN", sent.payload)]
        again = repeat(ledger, "bank", "TRAIN", 2, store.sent(2)[0][2])
        assert (again.payload, again.digest) == (sent.payload, sent.digest)

    def test_what_is_not_in_the_ledger_is_not_sent(self, tmp_path: Path) -> None:
        store, ledger = Store(tmp_path / "x.db"), Ledger()
        sent = release(1, ledger)
        with pytest.raises(sqlite3.IntegrityError, match="not in the ledger"):
            store.commit({"number": 1}, {}, outbox=[(0, sent)])
        assert store.snapshot() is None  # nothing of it was written
        with pytest.raises(GateError, match="not in the ledger"):
            repeat(Ledger(), "bank", "TRAIN", 1, sent.payload)

    def test_what_was_sent_cannot_change(self, tmp_path: Path) -> None:
        store, ledger = Store(tmp_path / "x.db"), Ledger()
        store.commit({"number": 1}, {}, ledger=ledger.since(0), outbox=[])
        sent = release(1, ledger)
        store.commit({"number": 1}, {}, ledger=ledger.since(0), outbox=[(0, sent)])
        with sqlite3.connect(tmp_path / "x.db") as by_hand:
            for change in ("update outbox set payload = 'x'", "insert or replace into outbox select * from outbox"):
                with pytest.raises(sqlite3.IntegrityError, match="cannot change"):
                    by_hand.execute(change)


class TestTensors:
    @given(st.lists(st.lists(st.integers(0, 59), max_size=20), min_size=1, max_size=12), st.booleans())
    @settings(max_examples=30)
    def test_rows_that_change_now_and_then_are_found_again(self, rounds: list[list[int]], restarts: bool) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "LARGE", 64)
            db = sqlite3.connect(":memory:", isolation_level=None)
            db.executescript(module._SCHEMA)
            table, dual = TensorTable(db), torch.zeros(60, 3)
            for number, rows in enumerate(rounds, start=1):
                dual[rows] += number
                other = {"board": torch.full((2, 9, 4), float(number // 3)), "small": torch.tensor(number)}
                small = table.write({"dual": dual, **other})
                table = TensorTable(db) if restarts else table
                assert same(module.load(small) | TensorTable(db).read(), {"dual": dual, **other})
                journaled = sum(len(module.load(b)["rows"]) for (b,) in db.execute("select body from journal"))
                assert journaled <= 60 + 18  # never longer than the tensors themselves

    def test_a_large_tensor_that_hardly_changes_is_hardly_written(self, tmp_path: Path) -> None:
        store, dual = Store(tmp_path / "x.db"), torch.zeros(50_000, 10)
        store.commit({}, {"dual": dual})
        dual[7] = 1.0
        store.commit({}, {"dual": dual})
        with sqlite3.connect(tmp_path / "x.db") as db:
            assert db.execute("select sum(length(body)) from journal").fetchone()[0] < 1000
        found = Store(tmp_path / "x.db").snapshot()
        assert found is not None
        assert torch.equal(found.tensors["dual"], dual)

    def test_a_tensor_that_is_gone_stays_gone(self, tmp_path: Path) -> None:
        store = Store(tmp_path / "x.db")
        store.commit({}, {"a": torch.zeros(200, 200), "b": torch.ones(200, 200)})
        store.commit({}, {"b": torch.ones(200, 200)})
        found = Store(tmp_path / "x.db").snapshot()
        assert found is not None
        assert found.tensors.keys() == {"b"}


def test_a_commit_without_tensors_leaves_them_and_adds_to_the_ledger(tmp_path: Path) -> None:
    store = Store(tmp_path / "x.db")
    store.commit({"number": 1}, {"small": torch.ones(3), "large": torch.ones(300, 100)})
    ledger = Ledger()
    for number in (2, 3):
        ledger.record(Entry("first", "coordinator", EMPTY, Purpose.PREDICT, number, 1, f"{number}" * 64))
        store.commit({"number": number}, None, ledger=ledger.since(number - 2))
    found = Store(tmp_path / "x.db").snapshot()
    assert found is not None and found.facts == {"number": 3}
    assert torch.equal(found.tensors["small"], torch.ones(3)) and torch.equal(
        found.tensors["large"], torch.ones(300, 100)
    )
    first, second = store.lines()
    assert store.lines_after(first["chain"]) == [second] and store.lines_after(second["chain"]) == []
    assert store.lines_after("0" * 64) is None


def test_a_store_that_cannot_be_written_says_so_and_keeps_what_it_had(tmp_path: Path) -> None:
    store = Store(tmp_path / "x.db")
    store.commit({"number": 1}, {"dual": torch.zeros(300, 100)})
    store._db.execute(f"pragma max_page_count = {store._db.execute('pragma page_count').fetchone()[0]}")
    with pytest.raises(Unwritable, match=r"x\.db cannot be written .* nothing of this round was sent"):
        store.commit({"number": 2}, {"dual": torch.ones(300, 100), "more": torch.ones(900, 100)})
    found = Store(tmp_path / "x.db").snapshot()
    assert found is not None
    assert found.facts == {"number": 1}
    store._db.execute("pragma max_page_count = 100000")
    store.commit({"number": 2}, {"dual": torch.ones(300, 100)})
    later = Store(tmp_path / "x.db").snapshot()
    assert later is not None
    assert bool(later.tensors["dual"].all())


def test_unwritable_is_a_run_error() -> None:
    assert issubclass(Unwritable, RunError)
