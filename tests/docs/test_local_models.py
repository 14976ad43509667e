"""The example of docs/local-models.md, carried out as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "local-models.md"


def test_the_example_trains_saves_and_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    found = re.search(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert found is not None
    names: dict[str, object] = {"__name__": "example"}
    exec(compile(found[1], str(PAGE), "exec"), names)  # noqa: S102 - the page's own example
    assert capsys.readouterr().out.startswith("AUC 0.9")
    assert names["again"].fingerprint() == names["run"].fingerprint()  # type: ignore[attr-defined]
