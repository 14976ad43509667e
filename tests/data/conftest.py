"""No test here may use the network or the user's cache."""

from __future__ import annotations

import os
import urllib.request
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of this test's own; only file: addresses can be opened."""
    real = urllib.request.urlopen

    def local_only(url, **options):
        if not url.startswith("file:"):
            raise OSError("no network in tests")
        return real(url, **options)

    monkeypatch.setattr(urllib.request, "urlopen", local_only)
    monkeypatch.setenv("COLONNADE_DATA", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder with the real data sets."""
    beside = Path(__file__).parents[2] / ".." / "shared" / "data"
    folder = Path(os.environ.get("COLONNADE_SHARED_DATA", beside))
    if not folder.is_dir():
        pytest.skip("no real data: neither COLONNADE_SHARED_DATA nor ../shared/data is a folder")
    return folder
