"""The changelog can be read: known headings, short items, no list that never ends."""

from __future__ import annotations

import re

from tests.architecture.source import ROOT

TEXT = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
HEADINGS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Privacy"}
MOST_LETTERS = 260  # of an item: what changed, for whom, and where to read on
MOST_ITEMS = 12  # in a row, without a line that says what they are about


def test_its_headings_are_those_of_the_format() -> None:
    assert set(re.findall(r"^### (.+)$", TEXT, re.MULTILINE)) <= HEADINGS


def test_an_item_is_short() -> None:
    items = re.findall(r"^- (.*(?:\n  .*)*)", TEXT, re.MULTILINE)
    assert items
    long = [item for item in items if len(re.sub(r"\]\([^)]*\)", "]", item)) > MOST_LETTERS]
    assert long == []


def test_items_stand_in_groups() -> None:
    groups = re.findall(r"(?:^- .*\n(?:  .*\n)*)+", TEXT, re.MULTILINE)
    assert max(group.count("\n- ") + 1 for group in groups) <= MOST_ITEMS
