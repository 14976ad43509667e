"""The examples of docs/local-models.md, carried out as they stand there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import run_example

PAGE = Path(__file__).parents[2] / "docs" / "local-models.md"


def test_an_estimator_of_scikit_learn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names = run_example(PAGE, 0)
    assert float(capsys.readouterr().out.removeprefix("AUC ")) > 0.85
    assert "local.stage.0.0" in names["run"].model.part("bank").tensors


def test_a_regressor_of_ones_own_trains_saves_and_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names = run_example(PAGE, 1)
    assert capsys.readouterr().out.startswith("AUC 0.9")
    assert names["again"].fingerprint() == names["run"].fingerprint()
