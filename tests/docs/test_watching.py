"""docs/watching.md: its settings are valid, its links and pictures are there, and every state and event is in it."""

from __future__ import annotations

import re

from colonnade.config import build
from colonnade.watching import runs
from colonnade.web.settings import HttpSection
from tests.architecture.source import ROOT
from tests.cli.settings_doc import tomllib
from tests.docs.test_deployment import anchors

PAGE = ROOT / "docs" / "watching.md"
TEXT = PAGE.read_text(encoding="utf-8")


def test_the_settings_are_valid() -> None:
    (text,) = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)
    assert build(HttpSection, tomllib.loads(text)["http"], "http").page


def test_links_and_pictures_are_there() -> None:
    for target, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", TEXT):
        page = PAGE.parent / target if target else PAGE
        assert page.exists(), target
        if anchor:
            assert anchor in anchors(page.read_text(encoding="utf-8")), (target, anchor)


def test_every_state_is_explained() -> None:
    states = (runs.TRAINS, runs.WAITS, runs.FINISHED, runs.DIVERGED, runs.STOPPED, runs.BEGINS, runs.DAMAGED)
    assert [state for state in states if f"`{state}`" not in TEXT] == []


def test_every_event_of_the_page_is_explained() -> None:
    files = (ROOT / "src" / "colonnade" / "watching").glob("*.py")
    told = set(re.findall(r'notify\("([a-z ]+)"', "\n".join(file.read_text(encoding="utf-8") for file in files)))
    assert told and [event for event in told if f"`{event}`" not in TEXT] == []
