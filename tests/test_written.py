"""Files that people's decisions stand in: whole, on the disk before they have their name, and for their owner only."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from colonnade.deploy.decision import write_kept
from colonnade.errors import ColonnadeError
from colonnade.service.versions import ask_for_training
from colonnade.web.callers import add_caller
from colonnade.withdrawn import withdraw

WRITERS: dict[str, Callable[[Path, int], object]] = {
    "decision.json": lambda folder, n: write_kept(folder / "decision.json", {"approved": n}),
    "models.json": lambda folder, n: ask_for_training(folder),
    "callers.json": lambda folder, n: add_caller(folder / "callers.json", f"shop-{n}", ["predict"]),
    "withdrawn.json": lambda folder, n: withdraw(folder / "withdrawn.json", [f"id-{n}"]),
}


@pytest.mark.parametrize("name", WRITERS)
def test_what_cannot_reach_the_disk_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Without that a power cut after the rename leaves an empty file in place of the old one."""
    WRITERS[name](tmp_path, 1)
    before = (tmp_path / name).read_bytes()
    monkeypatch.setattr(os, "fsync", lambda file: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(ColonnadeError, match="No space left"):
        WRITERS[name](tmp_path, 2)
    assert (tmp_path / name).read_bytes() == before


@pytest.mark.parametrize("name", WRITERS)
def test_the_content_is_on_the_disk_before_the_name_and_the_name_before_anybody_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    done: list[str] = []
    flush, rename = os.fsync, Path.replace

    def flushed(file: int) -> None:
        done.append("folder" if stat.S_ISDIR(os.fstat(file).st_mode) else "content")
        flush(file)

    def renamed(self: Path, target: Path) -> Path:
        done.append("name")
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", flushed)
    monkeypatch.setattr(Path, "replace", renamed)
    WRITERS[name](tmp_path, 1)
    assert done == ["content", "name", "folder"]


@pytest.mark.parametrize("name", ["decision.json", "callers.json", "withdrawn.json"])
def test_only_its_owner_reads_it(tmp_path: Path, name: str) -> None:
    (tmp_path / f"{name}.part").write_text("of an interrupted writing")
    (tmp_path / f"{name}.part").chmod(0o666)
    WRITERS[name](tmp_path, 1)
    assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600


def test_a_write_that_takes_a_part_only_is_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the system may do on a disk that is nearly full: the file of callers was cut off, and nobody could call."""
    real = os.write
    monkeypatch.setattr(os, "write", lambda file, content: real(file, bytes(content)[:40]))
    add_caller(tmp_path / "callers.json", "shop", ["predict"])
    monkeypatch.undo()
    add_caller(tmp_path / "callers.json", "desk", ["watch"])  # which reads it
