"""How pages say that Colonnade is installed: from a clone or a wheel of this version, as no public index has it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from colonnade import __version__
from colonnade.cli.doctor import EXTRAS
from tests.architecture.source import ROOT
from tests.docs.test_links import PAGES

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

INDEX = re.compile(r"pip install [^`&\n]*?[\"']?\bcolonnade(?![-\w])")  # would ask an index, where nothing is installed
WHEEL = re.compile(r"colonnade-([\d.]+)-py3-none-any\.whl")
ADDS = {"docs/install.md": 2, "docs/watching.md": 1}  # where they speak of it as not there, or as installed already
FILES = [*PAGES, ROOT / "examples/organisations/compose.yaml", ROOT / "src/colonnade/deploy/folders.py"]


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_nothing_asks_an_index_for_it(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert len(INDEX.findall(text)) == ADDS.get(file.relative_to(ROOT).as_posix(), 0)
    assert set(WHEEL.findall(text)) <= {__version__}, "the wheel of another version"


def test_the_page_has_every_extra() -> None:
    page = (ROOT / "docs/install.md").read_text(encoding="utf-8")
    with (ROOT / "pyproject.toml").open("rb") as file:
        extras = set(tomllib.load(file)["project"]["optional-dependencies"]) - {"docs", "dev"}
    cells = re.findall(r"^\| (`.*?) \|", page, re.MULTILINE)
    assert {name for cell in cells for name in re.findall(r"`(\w+)`", cell)} == extras
    assert set(EXTRAS) <= extras
