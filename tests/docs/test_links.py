"""Links of all pages: they lead somewhere, and read as words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.architecture.source import ROOT
from tests.docs.test_readme import anchors

FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[([^\]]+)\]\(([^)#:\s]*)(?:#([\w-]+))?(?: \"[^\"]*\")?\)")
PAGES = sorted(
    path
    for path in ROOT.rglob("*.md")
    if path.relative_to(ROOT).parts[0] in ("docs", "examples", "benchmarks", path.name) and "runs" not in path.parts
)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_somewhere_and_read_as_words(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for words, target, anchor in LINK.findall(FENCE.sub("", text)):
        found = page.parent / target if target else page
        assert found.exists(), target
        if anchor and found.suffix == ".md":
            assert anchor in anchors(found.read_text(encoding="utf-8")), f"{target}#{anchor}"
        assert not re.fullmatch(r"`?[\w./-]+\.md`?", words), f"a link should say what it leads to: {words}"


def test_no_link_is_in_a_block_of_code() -> None:
    for page in PAGES:
        for block in FENCE.findall(page.read_text(encoding="utf-8")):
            assert not re.search(r"\]\([\w./-]+\.md[#)]", block), f"{page}: {block}"
