"""The example of docs/local-models.md, carried out as it stands there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import run_example

PAGE = Path(__file__).parents[2] / "docs" / "local-models.md"


def test_the_example_trains_saves_and_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names = run_example(PAGE)
    assert capsys.readouterr().out.startswith("AUC 0.9")
    assert names["again"].fingerprint() == names["run"].fingerprint()
