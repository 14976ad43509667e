"""The example of docs/estimators.md, carried out as it stands there."""

from __future__ import annotations

from pathlib import Path

import pytest

from colonnade import Model
from colonnade.estimators.kinds import KINDS
from tests.docs.pages import run_example

PAGE = Path(__file__).parents[2] / "docs" / "estimators.md"


def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    run_example(PAGE)
    shown = capsys.readouterr().out
    assert "validation rows, mean of 5 splits: networks" in shown
    assert "'method':" in shown
    assert Model.load(tmp_path / "model").classes == ("leaves", "stays")


def test_every_kind_is_on_the_page() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert [kind for kind in KINDS if f"| `{kind}` |" not in page] == []
