"""The threat model points at tests and pages that exist."""

from __future__ import annotations

import re

from tests.architecture.source import ROOT

PAGE = (ROOT / "SECURITY.md").read_text()


def test_what_it_points_at_is_there() -> None:
    tests = re.findall(r"`(tests/[^`]+)`", PAGE)
    pages = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", PAGE)
    assert len(tests) > 15 and pages
    assert [path for path in (*tests, *pages) if not (ROOT / path).exists()] == []


def test_sections_that_it_links_to_exist() -> None:
    for page, anchor in re.findall(r"\]\(([^)#:]+)#([^)]*)\)", PAGE):
        heads = re.findall(r"^#+ (.*)$", (ROOT / page).read_text(), re.MULTILINE)
        assert anchor in {re.sub(r"[^\w -]", "", head).lower().replace(" ", "-") for head in heads}


def test_no_address_is_invented() -> None:
    assert "@" not in PAGE and "private reporting" in PAGE
