"""docs/faults.md names a test for every case; each of them exists."""

from __future__ import annotations

import re

from tests.architecture.source import ROOT

NAMED = re.compile(r"`(test_\w+\.py)::(test_\w+)`")


def test_every_test_that_the_page_names_exists() -> None:
    named = NAMED.findall((ROOT / "docs" / "faults.md").read_text(encoding="utf-8"))
    assert len(named) > 40
    for file, test in named:
        source = (ROOT / "tests" / "deploy" / file).read_text(encoding="utf-8")
        assert f"def {test}(" in source, f"{file}::{test}"
