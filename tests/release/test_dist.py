"""A release says one version everywhere, and has in it what it needs."""

from __future__ import annotations

import shutil
import tarfile
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

import colonnade
from tests.architecture.source import ROOT
from tests.python_files import as_module

SAID = ("src/colonnade/__init__.py", "CITATION.cff", "CHANGELOG.md")


@pytest.fixture
def dist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = as_module(ROOT / "tools/dist.py")
    for name in SAID:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copytree(ROOT / "src/colonnade/report/templates", tmp_path / "src/colonnade/report/templates")
    monkeypatch.setattr(module, "ROOT", tmp_path)
    return module


def change(root: Path, name: str, old: str, new: str) -> None:
    text = (root / name).read_text(encoding="utf-8")
    assert old in text
    (root / name).write_text(text.replace(old, new, 1), encoding="utf-8")


def test_package_changelog_and_citation_say_one_version(dist: ModuleType) -> None:
    assert dist.version() == colonnade.__version__
    assert dist.disagreements() == []


def test_another_version_is_named(dist: ModuleType) -> None:
    change(dist.ROOT, "CITATION.cff", f"version: {colonnade.__version__}", "version: 9.9.9")
    assert dist.disagreements() == ["CITATION.cff says 9.9.9"]


def test_a_tag_needs_its_heading(dist: ModuleType) -> None:
    said = colonnade.__version__
    assert dist.disagreements("v9.9.9")[0] == "the tag is v9.9.9"
    change(dist.ROOT, "CHANGELOG.md", f"## [Unreleased], to become {said}", f"## [{said}] - 2026-12-01")
    assert dist.disagreements(f"v{said}") == []
    change(dist.ROOT, "CHANGELOG.md", f"## [{said}]", "## [Unreleased]\n\n## [0.0.1]")
    assert "a release needs" in dist.disagreements(f"v{said}")[0]


def test_what_is_missing_in_a_file_is_named(dist: ModuleType, tmp_path: Path) -> None:
    wheel, sdist = tmp_path / "x.whl", tmp_path / "x.tar.gz"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("colonnade/__init__.py", "")
        file.writestr("tests/x.py", "")
    told = dist.in_wheel(wheel)
    assert "tests/x.py is outside of the package" in told
    assert "colonnade/py.typed is missing" in told
    with tarfile.open(sdist, "w:gz") as tar:
        tar.add(ROOT / "LICENSE", "colonnade-0/LICENSE")
    assert "pyproject.toml is missing" in dist.in_sdist(sdist)
    assert "LICENSE is missing" not in dist.in_sdist(sdist)
