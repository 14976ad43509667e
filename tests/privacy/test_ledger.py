"""The ledger and the store it is kept in: append-only, and whole or not at all."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from colonnade.errors import RunError
from colonnade.privacy.ledger import Entry, Ledger
from colonnade.store import Store
from colonnade.wire.messages import Purpose
from tests.releases import released


def release(number: int = 1, owner: str = "bank", purpose: Purpose = Purpose.TRAIN) -> Entry:
    return released(owner, "none", number, purpose, 20, f"digest {number}", sigma=0.5)


class TestLedger:
    def test_it_only_grows(self) -> None:
        ledger = Ledger()
        for n in range(3):
            ledger.record(release(n))
        assert [r.number for r in ledger] == [0, 1, 2]
        assert [r.number for r in ledger.since(1)] == [1, 2]
        public = {name for name in dir(ledger) if not name.startswith("_")}
        none_takes_one_back = {"record", "put_back", "expect", "settle", "since", "holds", "counts", "precision", "has"}
        assert public == none_takes_one_back

    def test_what_was_announced_stands_where_it_was(self) -> None:
        ledger = Ledger([release(0)])
        ledger.expect(lambda: [release(1), release(2)])
        ledger.expect(lambda: [release(3)])
        ledger.record(release(4))
        assert [r.number for r in ledger] == [0, 1, 2, 3, 4]

    @pytest.mark.parametrize(
        ("look", "seen"),
        [
            (len, 1),
            (lambda ledger: ledger.holds("digest 1"), True),
            (lambda ledger: ledger.precision("bank"), 0.0),
            (lambda ledger: len(ledger.since(0)), 1),
            (lambda ledger: ledger.counts(), {("bank", Purpose.TRAIN): 1}),
        ],
    )
    def test_whoever_looks_waits_for_what_was_announced(self, look: Callable[[Ledger], object], seen: object) -> None:
        ledger, asked = Ledger(), []
        ledger.expect(lambda: [asked.append(1) or release(1)])  # type: ignore[func-returns-value]
        assert not asked
        assert look(ledger) == seen
        assert asked == [1]

    def test_whoever_waits_for_one_announcement_does_not_wait_for_later_ones(self) -> None:
        ledger, asked = Ledger(), []

        def announced(number: int) -> Callable[[], list[Entry]]:
            return lambda: asked.append(number) or [release(number)]  # type: ignore[func-returns-value]

        first = ledger.expect(announced(1))
        first()
        second = ledger.expect(announced(2))
        first()
        assert asked == [1]
        second()
        assert asked == [1, 2] and len(ledger) == 2

    def test_what_was_announced_and_failed_is_not_forgotten(self) -> None:
        ledger, tries = Ledger(), iter([False, True])

        def entries() -> list[Entry]:
            if not next(tries):
                raise KeyboardInterrupt
            return [release(1)]

        ledger.expect(entries)
        with pytest.raises(KeyboardInterrupt):
            len(ledger)
        assert ledger.holds("digest 1")

    def test_reading_it_gives_no_handle_to_change_it(self) -> None:
        ledger = Ledger([release()])
        list(ledger).clear()
        assert isinstance(ledger.since(0), tuple)
        with pytest.raises(AttributeError):
            next(iter(ledger)).number = 2  # type: ignore[misc]
        assert len(ledger) == 1

    def test_a_list_it_was_made_from_is_not_its_own(self) -> None:
        releases = [release()]
        ledger = Ledger(releases)
        releases.clear()
        assert len(ledger) == 1

    def test_counts_and_digests(self) -> None:
        ledger = Ledger([release(1), release(2), release(3, purpose=Purpose.EVALUATE), release(4, "telco")])
        assert ledger.counts() == {
            ("bank", Purpose.TRAIN): 2,
            ("bank", Purpose.EVALUATE): 1,
            ("telco", Purpose.TRAIN): 1,
        }
        assert ledger.holds("digest 3")
        assert not ledger.holds("digest 5")

    def test_a_release_survives_json(self) -> None:
        assert Entry.from_json(json.loads(json.dumps(release().to_json()))) == release()


def commit(store: Store, number: int, **parts: Any) -> None:
    added: dict[str, Any] = {
        "history": [{"round": number}],
        "traffic": [{"number": number}],
        "ledger": [release(number)],
    }
    store.commit({"number": number}, {"x": torch.full((2,), float(number))}, **{**added, **parts})


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path / "run.db")
    yield store
    store.close()


class TestStore:
    def test_nothing_before_the_first_commit(self, store: Store) -> None:
        assert store.snapshot() is None
        assert not store.begun
        with pytest.raises(RunError, match="holds no run"):
            store.about()

    def test_what_it_is_is_written_once(self, store: Store) -> None:
        store.describe({"id": "a"})
        assert store.begun
        with pytest.raises(sqlite3.IntegrityError):
            store.describe({"id": "b"})
        assert store.about() == {"id": "a"}

    def test_state_is_replaced_and_lists_grow(self, store: Store) -> None:
        for n in (1, 2):
            commit(store, n)
        saved = store.snapshot()
        assert saved is not None
        assert saved.facts == {"number": 2}
        assert torch.equal(saved.tensors["x"], torch.full((2,), 2.0))
        assert saved.history == [{"round": 1}, {"round": 2}]
        assert saved.traffic == [{"number": 1}, {"number": 2}]
        assert saved.ledger == [release(1), release(2)]

    def test_tensors_come_back_as_they_were(self, store: Store) -> None:
        shared = torch.arange(12.0).view(3, 4)
        tensors = {
            "whole": shared,
            "a view of it": shared,
            "a row of it": shared[1],
            "turned": shared.mT,
            "strided": shared[:, ::2],
            "integers": torch.tensor(2**62),
            "flags": torch.tensor([True, False]),
            "none": torch.zeros(0, 3),
            "leaf": torch.ones(2, requires_grad=True),
        }
        store.commit({}, tensors, history=[], traffic=[], ledger=[])
        saved = store.snapshot()
        assert saved is not None
        assert saved.tensors.keys() == tensors.keys()
        for name, value in tensors.items():
            assert saved.tensors[name].dtype is value.dtype
            assert torch.equal(saved.tensors[name], value.detach())

    @pytest.mark.parametrize("part", ["history", "traffic", "ledger"])
    def test_a_commit_that_fails_changes_nothing(self, store: Store, part: str) -> None:
        commit(store, 1)

        def breaks() -> Iterator[Any]:
            yield release(2) if part == "ledger" else {"round": 2}
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            commit(store, 2, **{part: breaks()})
        saved = store.snapshot()
        assert saved is not None
        assert saved.facts == {"number": 1}
        assert saved.history == [{"round": 1}]
        assert saved.ledger == [release(1)]
        commit(store, 3)  # and the store is still usable
        assert len(store.snapshot().ledger) == 2  # type: ignore[union-attr]

    def test_another_process_sees_the_last_commit(self, store: Store) -> None:
        commit(store, 1)
        other = Store(store.path)
        store._db.execute("begin immediate")
        store._db.execute("insert into history (body) values ('half')")
        assert other.snapshot().history == [{"round": 1}]  # type: ignore[union-attr]
        store._db.execute("rollback")
        other.close()

    @pytest.mark.parametrize(
        "statement",
        [
            "update ledger set body = '{}'",
            "update ledger set id = 7",
            "delete from ledger",
            "delete from ledger where id = 1",
            "insert or replace into ledger (id, body) values (1, '{}')",
        ],
    )
    def test_the_ledger_is_append_only_even_by_hand(self, store: Store, statement: str) -> None:
        commit(store, 1)
        by_hand = sqlite3.connect(store.path)
        with pytest.raises(sqlite3.Error, match="append-only"):
            by_hand.execute(statement)
        by_hand.close()
        assert store.snapshot().ledger == [release(1)]  # type: ignore[union-attr]

    @pytest.mark.parametrize("content", [b"not a database at all, but text" * 40, b"SQLite format 3\0" + bytes(500)])
    def test_a_file_that_is_no_store(self, tmp_path: Path, content: bytes) -> None:
        (tmp_path / "run.db").write_bytes(content)
        with pytest.raises(RunError, match=r"run\.db"):
            Store(tmp_path / "run.db").about()

    @pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
    def test_a_truncated_store(self, tmp_path: Path, share: float) -> None:
        store = Store(tmp_path / "run.db")
        store.describe({"id": "a"})
        store.commit({}, {"x": torch.zeros(20_000)}, history=[], traffic=[], ledger=[release(n) for n in range(99)])
        store.close()  # also folds the write-ahead log into the file
        content = (tmp_path / "run.db").read_bytes()
        (tmp_path / "run.db").write_bytes(content[: int(share * len(content))])
        with pytest.raises(RunError, match=r"run\.db"):
            read = Store(tmp_path / "run.db")
            read.about()
            read.snapshot()

    def test_a_store_of_another_format(self, store: Store) -> None:
        store._db.execute("insert into about values (1, 99, '{}')")
        with pytest.raises(RunError, match="format 99"):
            store.about()
