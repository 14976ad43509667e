"""The pages of docs/tutorials do what they say, from an empty folder."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from colonnade.config import parse_toml
from tests.architecture.source import ROOT
from tests.docs.followed import Reader
from tests.docs.pages import Stage, steps_of
from tests.docs.test_deployment import anchors
from tests.docs.test_deployment import port as port  # noqa: PLC0414 - a fixture
from tests.forking import forked
from tests.nats_server import needs_nats
from tests.site import inside, install

TUTORIALS = ROOT / "docs" / "tutorials"
PAGES = ("tables", "images", "networks-and-trees", "privacy", "comparing-methods")  # followed in one process
ORGANISATIONS = ("server", "bank", "telco", "hospital")  # each a folder on one laptop
MOST_COMMANDS = 8  # from nothing to a prediction
SECONDS = 600.0  # until the last line
MOST_WORDS = 1000  # of a page that is read in five minutes


def text_of(name: str) -> str:
    return (TUTORIALS / f"{name}.md").read_text(encoding="utf-8")


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", PAGES)
def test_the_page_does_what_it_says(name: str, tmp_path: Path) -> None:
    """Every block, in order; what a page shows is compared."""
    Reader(tmp_path).follow(text_of(name))


@pytest.mark.parametrize("page", sorted(TUTORIALS.glob("*.md")), ids=lambda page: page.stem)
def test_links_lead_somewhere_and_the_page_is_short(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    found = re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", text)
    assert len(found) > 2
    for target, anchor in found:
        there = page.parent / target if target else page
        assert there.exists(), target
        assert not anchor or anchor in anchors(there.read_text(encoding="utf-8")), f"{target}#{anchor}"
    words = len(re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL).split())
    assert words < MOST_WORDS, f"{words} words beside the code"


@needs_nats
@pytest.mark.slow
def test_three_organisations_train_and_predict(tmp_path: Path, port: int) -> None:
    page, tools = text_of("three-organisations"), tmp_path / "tools"
    tools.mkdir()
    folder = tmp_path / "laptop"
    folder.mkdir()
    path = f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}:/usr/sbin"
    environment = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"}
    here = {"--rounds 10": f"--rounds 10 --server localhost:{port}"}  # another test may have the usual port
    folders = {"laptop": folder} | {name: folder / "demo" / name for name in ORGANISATIONS}
    with forked(tools):
        Stage(folders, environment, here, SECONDS).play(page)
    assert sum(step.kind == "bash" for step in steps_of(page)) <= MOST_COMMANDS


def test_a_package_is_made_tested_and_used(tmp_path: Path) -> None:
    """What pip would do is to write down where the package lies and what it offers."""
    page = text_of("adding-a-method")
    assert "\npip install -e .\n" in page
    offered = parse_toml(next(step.text for step in steps_of(page) if step.options.get("file") == "pyproject.toml"))
    install(tmp_path, offered["project"]["name"], offered["project"]["entry-points"])
    typed = page.replace("pip install -e .", "true")
    code = (
        f"import os; from pathlib import Path; os.environ['PYTHONPATH'] = {str(tmp_path)!r}\n"
        f"os.environ['PATH'] = {str(Path(sys.executable).parent)!r} + ':' + os.environ['PATH']\n"
        f"from tests.docs.followed import Reader; Reader(Path.cwd()).follow({typed!r})"
    )
    inside(tmp_path, tmp_path, code)
