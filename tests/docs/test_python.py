"""docs/python.md says what happens: its blocks run one after the other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "python.md"


@pytest.mark.filterwarnings("ignore")
def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 6
    for block in blocks:
        exec(block, names)  # noqa: S102 - the page's own words
    shown = capsys.readouterr().out
    assert shown.startswith("<Run ")
    assert "stopped by the watcher" in shown
    assert "unit PARTY" in shown
    assert (tmp_path / "comparison" / "report.html").is_file()
    assert (tmp_path / "page" / "report.html").is_file()
