"""The list of people who withdrew, and the marks of models."""

from __future__ import annotations

import json
import stat
import threading
from pathlib import Path

import pytest

from colonnade.errors import DataError, RunError, Unwritable
from colonnade.withdrawn import Confirmation, confirm, mark, read_mark, read_withdrawn, withdraw


def test_ids_are_entered_once_with_time_and_reason(tmp_path: Path) -> None:
    path = tmp_path / "withdrawn.json"
    assert read_withdrawn(path).people == ()
    assert withdraw(path, ["a", "b", "a"], reason="a  letter\n") == ["a", "b"]
    assert withdraw(path, ["b", "c"], by="telco") == ["c"]
    known = read_withdrawn(path)
    assert [(one.id, one.by, one.reason) for one in known.people] == [
        ("a", "here", "a letter"), ("b", "here", "a letter"), ("c", "telco", ""),
    ]  # fmt: skip
    assert all(one.time.endswith("Z") for one in known.people)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not list(tmp_path.glob("*.part"))


def test_a_confirmation_replaces_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "withdrawn.json"
    withdraw(path, ["a"])
    for rows in (1, 2):
        confirm(path, "telco", Confirmation("2026-05-03T00:00:00Z", "f" * 64, rows))
    known = read_withdrawn(path)
    assert known.ids == {"a"} and known.confirmed["telco"].rows == 2


@pytest.mark.parametrize("content", ["", "[]", '{"format": 2}', '{"format": 1, "people": [{"id": ""}]}'])
def test_a_list_that_cannot_be_read_is_not_an_empty_one(tmp_path: Path, content: str) -> None:
    path = tmp_path / "withdrawn.json"
    path.write_text(content)
    with pytest.raises(RunError, match="nobody knows who withdrew"):
        read_withdrawn(path)
    with pytest.raises(RunError, match="nobody knows who withdrew"):
        withdraw(path, ["a"])
    assert path.read_text() == content


def test_bad_entries_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "withdrawn.json"
    with pytest.raises(DataError, match="needed at least one"):
        withdraw(path, [""])
    with pytest.raises(DataError, match="at most 300"):
        withdraw(path, ["a"], reason="x" * 301)
    assert not path.exists()


def test_several_writers_lose_nobody(tmp_path: Path) -> None:
    path = tmp_path / "withdrawn.json"
    threads = [threading.Thread(target=withdraw, args=(path, [f"id-{n}"])) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert read_withdrawn(path).ids == {f"id-{n}" for n in range(8)}


def test_full_disk_leaves_the_old_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "withdrawn.json"
    withdraw(path, ["a"])
    before = path.read_bytes()
    monkeypatch.setattr("os.fsync", lambda file: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(Unwritable, match="No space left"):
        withdraw(path, ["b"])
    assert path.read_bytes() == before


def test_marks_add_up(tmp_path: Path) -> None:
    assert read_mark(tmp_path) is None
    assert str(mark(tmp_path, [4])) == "trained with 1 row of a person who withdrew since"
    found = mark(tmp_path, [4, 7])
    assert str(found) == "trained with 2 rows of people who withdrew since" == str(read_mark(tmp_path))
    assert json.loads((tmp_path / "withdrawn.json").read_text())["rows"] == [4, 7]
