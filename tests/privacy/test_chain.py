"""Times and hashes of a ledger: what was changed by hand is named, what an earlier version wrote stays readable."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from colonnade import saved
from colonnade.privacy.chain import CHAIN, GENESIS, Head, last, link, linked, walk
from colonnade.privacy.ledger import Entry, Ledger
from colonnade.saved import LEDGER, append_ledger, read_ledger, write_ledger
from colonnade.store import Store
from tests.releases import released

Lines = list[dict[str, Any]]


def entries(count: int = 5) -> list[Entry]:
    """As an earlier version wrote them: without time, size and hash."""
    return [released("bank", "gaussian", n, rows=n, clip=1.0, sigma=2.0) for n in range(1, count + 1)]


def recorded(count: int = 5) -> Ledger:
    ledger = Ledger()
    for entry in entries(count):
        ledger.record(entry)
    return ledger


def lines_in(path: Path) -> Lines:
    return [json.loads(line) for line in path.read_text().splitlines()]


class TestTime:
    def test_an_entry_has_the_time_at_which_it_was_recorded(self) -> None:
        before = datetime.now(timezone.utc)
        (entry,) = recorded(1)
        told = datetime.fromisoformat(entry.time.replace("Z", "+00:00"))
        assert abs((told - before).total_seconds()) < 60 and entry.time.endswith("Z")

    def test_a_time_is_not_compared_and_not_invented_for_old_entries(self) -> None:
        old = entries(1)[0]
        (new,) = recorded(1)
        assert new == old and new.time and "time" not in old.to_json()
        ledger = Ledger([old])
        ledger.put_back([old])
        assert [entry.time for entry in ledger] == ["", ""]

    def test_a_time_that_is_there_stays(self) -> None:
        ledger = Ledger()
        ledger.record(replace(entries(1)[0], time="2026-01-02T03:04:05.678Z"))
        (entry,) = ledger
        assert entry.time == "2026-01-02T03:04:05.678Z"
        assert Entry.from_json(json.loads(json.dumps(entry.to_json()))).time == entry.time


def test_the_chain_is_as_it_is_written_down() -> None:
    """By hand: hashes are stored, so how they are made never changes."""
    line = {"b": 1, "a": "x", "parameters": [["clip", 1]], "chain": "whatever"}
    # printf '%064d\n{"a":"x","b":1,"parameters":[["clip",1.0]]}' 0 | sha256sum
    assert link(GENESIS, line) == "be0f111108b27aebe5c3a903a9bdaa70f9e25b5fa1f1e33f3957778580c0c029"


WRONG: dict[str, tuple[Callable[[Lines], object], int]] = {
    "fewer rows": (lambda lines: lines[2].update(rows=0), 3),
    "another time": (lambda lines: lines[1].update(time="2020-01-01T00:00:00.000Z"), 2),
    "another mechanism": (lambda lines: lines[0].update(mechanism="none"), 1),
    "another parameter": (lambda lines: lines[3].update(parameters=[["clip", 1.0], ["sigma", 9.0]]), 4),
    "parameters that are none": (lambda lines: lines[3].update(parameters=[1]), 4),
    "one more key": (lambda lines: lines[3].update(note="checked"), 4),
    "one removed": (lambda lines: lines.pop(2), 3),
    "the first removed": (lambda lines: lines.pop(0), 1),
    "two exchanged": (lambda lines: lines.insert(1, lines.pop(3)), 2),
    "one twice": (lambda lines: lines.insert(2, dict(lines[1])), 3),
    "another hash": (lambda lines: lines[4].update(chain="0" * 64), 5),
    "no hash": (lambda lines: lines[2].pop("chain"), 3),
}


class TestWalk:
    def lines(self) -> Lines:
        return list(linked(entry.to_json() for entry in recorded()))

    def test_all_is_well(self) -> None:
        found = walk(self.lines())
        assert found.misfit is None and found.unlinked == 0 and len(found.hashes) == 5

    @pytest.mark.parametrize("what", WRONG)
    def test_the_first_line_that_does_not_fit_is_named(self, what: str) -> None:
        change, place = WRONG[what]
        lines = self.lines()
        change(lines)
        found = walk(lines)
        assert found.misfit == place and found.reason

    def test_lines_of_an_earlier_version_are_covered_by_those_after_them(self) -> None:
        old = [entry.to_json() for entry in entries(2)]
        new = list(linked([entry.to_json() for entry in recorded(2)], last(old)))
        assert (walk([*old, *new]).unlinked, walk([*old, *new]).misfit) == (2, None)
        assert walk([{**old[0], "rows": 7}, old[1], *new]).misfit == 3

    def test_a_head_that_is_none(self) -> None:
        good = {"run": "r", "signer": "bank", "entries": 2, "head": "ab", "time": "now"}
        assert Head.from_json(good).payload != Head.from_json({**good, "entries": 3}).payload
        for bad in ({**good, "entries": "2"}, {**good, "entries": True}, {**good, "run": None}, {}):
            with pytest.raises(ValueError, match="does not say"):
                Head.from_json(bad)


class TestFiles:
    def test_a_file_has_a_chain_that_goes_on(self, tmp_path: Path) -> None:
        ledger = recorded()
        write_ledger(tmp_path, Ledger(list(ledger)[:3]))
        append_ledger(tmp_path / LEDGER, ledger.since(3))
        found = walk(lines_in(tmp_path / LEDGER))
        assert found.misfit is None and len(found.hashes) == 5
        assert found.head == last(entry.to_json() for entry in ledger), "whole or in pieces"
        assert list(read_ledger(tmp_path)) == list(ledger)

    def test_the_chain_of_an_old_file_begins_with_the_next_entry(self, tmp_path: Path) -> None:
        path = tmp_path / LEDGER
        path.write_text("".join(json.dumps(entry.to_json()) + "\n" for entry in entries(2)))
        append_ledger(path, recorded(2))
        assert (walk(lines_in(path)).unlinked, walk(lines_in(path)).misfit) == (2, None)

    def test_writing_again_puts_nothing_right(self, tmp_path: Path) -> None:
        write_ledger(tmp_path, recorded())
        lines = lines_in(tmp_path / LEDGER)
        lines[1]["rows"] = 0
        (tmp_path / LEDGER).write_text("".join(json.dumps(line) + "\n" for line in lines))
        write_ledger(tmp_path, read_ledger(tmp_path))
        assert walk(lines_in(tmp_path / LEDGER)).misfit == 2

    def test_whole_numbers_are_the_same_when_written_again(self, tmp_path: Path) -> None:
        ledger = Ledger()
        ledger.record(replace(entries(1)[0], notes=(("lacking_rows", 3),)))
        write_ledger(tmp_path, ledger)
        write_ledger(tmp_path, read_ledger(tmp_path))
        assert walk(lines_in(tmp_path / LEDGER)).misfit is None

    def test_a_long_file_is_not_read_whole(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(saved, "LONGEST_LINE", 600)
        write_ledger(tmp_path, recorded())
        append_ledger(tmp_path / LEDGER, recorded(1))
        assert walk(lines_in(tmp_path / LEDGER)).misfit is None


class TestStore:
    def test_a_store_has_the_same_chain_as_a_file(self, tmp_path: Path) -> None:
        ledger, store = recorded(), Store(tmp_path / "run.db")
        for some in (list(ledger)[:2], ledger.since(2)):
            store.commit({}, {}, ledger=some)
        write_ledger(tmp_path, ledger)
        assert store.lines() == lines_in(tmp_path / LEDGER)
        assert store.signed_head() is None
        store.close()

    def test_the_end_is_signed_in_the_same_transaction(self, tmp_path: Path) -> None:
        signed: list[tuple[int, str]] = []

        def sign(count: int, head: str) -> dict[str, Any]:
            signed.append((count, head))
            return {"entries": count, "head": head}

        ledger, store = recorded(), Store(tmp_path / "run.db", sign)
        store.commit({}, {}, ledger=ledger.since(3))
        store.commit({}, {})  # nothing was released: nothing to sign
        store.commit({}, {}, ledger=ledger.since(4))
        lines = store.lines()
        assert signed == [(2, lines[1][CHAIN]), (3, lines[2][CHAIN])]
        assert store.signed_head() == {"entries": 3, "head": lines[2][CHAIN]}
        store.close()
