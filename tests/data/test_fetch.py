"""Finding and downloading files: checked, atomic, and clear about what is missing."""

from __future__ import annotations

import hashlib
import urllib.request
from pathlib import Path

import pytest

from colonnade.data.fetch import DataFile, cache_dir, fetch, places, verify
from colonnade.errors import DataError, MissingData

CONTENT = b"columns" * 1000


def published(*urls: str, content: bytes = CONTENT, kind: str = "sha256") -> DataFile:
    return DataFile("numbers.bin", f"{kind}:{hashlib.new(kind, content).hexdigest()}", urls)


@pytest.fixture
def remote(tmp_path: Path) -> str:
    path = tmp_path / "remote.bin"
    path.write_bytes(CONTENT)
    return path.as_uri()


def test_the_named_folder_comes_before_the_cache(tmp_path, cache):
    for folder in (tmp_path / "mine", cache / "set"):
        folder.mkdir(parents=True)
        (folder / "numbers.bin").write_bytes(CONTENT)
    assert fetch(published(), places("set", tmp_path / "mine")) == tmp_path / "mine" / "numbers.bin"
    assert fetch(published(), places("set")) == cache / "set" / "numbers.bin"


def test_the_named_folder_may_hold_the_set_s_own_folder(tmp_path):
    (tmp_path / "mine" / "set").mkdir(parents=True)
    (tmp_path / "mine" / "set" / "numbers.bin").write_bytes(CONTENT)
    assert fetch(published(), places("set", str(tmp_path / "mine"))).parent.name == "set"


@pytest.mark.parametrize("kind", ["sha256", "md5"])
def test_a_download_is_kept_in_the_cache(remote, cache, kind):
    path = fetch(published(remote, kind=kind), places("set"))
    assert path == cache / "set" / "numbers.bin"
    assert path.read_bytes() == CONTENT
    assert [p.name for p in path.parent.iterdir()] == ["numbers.bin"]
    assert fetch(published(), places("set"), download=False) == path


def test_the_next_address_is_tried(remote):
    assert fetch(published("file:///nowhere/numbers.bin", remote), places("set")).read_bytes() == CONTENT


def test_a_missing_file_is_named_with_places_address_and_reason(tmp_path, cache):
    file = published("https://example.org/numbers.bin")
    with pytest.raises(MissingData) as caught:
        fetch(file, places("set", tmp_path / "mine"))
    for part in ("numbers.bin", str(tmp_path / "mine"), str(cache / "set"), "https://example.org/numbers.bin",
                 "no network in tests", "--data-dir"):  # fmt: skip
        assert part in str(caught.value)


def test_downloading_can_be_switched_off(remote, cache):
    with pytest.raises(MissingData, match=r"switched off \(file:"):
        fetch(published(remote), places("set"), download=False)
    assert not cache.exists()


def test_a_file_without_address_says_so():
    with pytest.raises(MissingData, match="no address to download it from"):
        fetch(published(), places("set"))


def test_a_local_file_with_another_checksum_is_refused(tmp_path):
    (tmp_path / "numbers.bin").write_bytes(b"other")
    wanted, got = hashlib.sha256(CONTENT).hexdigest(), hashlib.sha256(b"other").hexdigest()
    with pytest.raises(DataError, match=f"numbers.bin is damaged.*{got}, needed {wanted}; delete it"):
        fetch(published(), places("set", tmp_path))


def test_a_download_with_another_checksum_leaves_nothing(remote, cache):
    with pytest.raises(DataError, match=r"numbers.bin is damaged.*needed"):
        fetch(published(remote, content=b"other"), places("set"))
    assert list((cache / "set").iterdir()) == []


@pytest.mark.parametrize("error", [OSError("connection reset"), KeyboardInterrupt()])
def test_an_interrupted_download_leaves_nothing(cache, monkeypatch, error):
    class Broken:
        def __enter__(self):
            return self

        def __exit__(self, *reason):
            return None

        def read(self, size):
            if hasattr(self, "begun"):
                raise error
            self.begun = True
            return CONTENT[:100]

    monkeypatch.setattr(urllib.request, "urlopen", lambda url, timeout: Broken())
    expected = MissingData if isinstance(error, OSError) else KeyboardInterrupt
    with pytest.raises(expected):
        fetch(published("https://example.org/numbers.bin"), places("set"))
    assert list((cache / "set").iterdir()) == []


def test_a_cache_that_cannot_be_written_is_a_clear_error(tmp_path, remote, monkeypatch):
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("COLONNADE_DATA", str(tmp_path / "file"))
    with pytest.raises(MissingData, match=r"numbers\.bin.*remote\.bin: .*[Nn]ot a directory"):
        fetch(published(remote), places("set"))


def test_an_unreadable_file_is_named(tmp_path):
    with pytest.raises(DataError, match=f"{tmp_path} cannot be read"):
        verify(tmp_path, "md5:0")


def test_the_cache_is_the_variable_or_the_home_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("COLONNADE_DATA", str(tmp_path))
    assert cache_dir() == tmp_path
    monkeypatch.delenv("COLONNADE_DATA")
    assert cache_dir() == Path.home() / ".cache" / "colonnade"
