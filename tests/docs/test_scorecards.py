"""The example of docs/scorecards.md, carried out as it stands there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import run_example

PAGE = Path(__file__).parents[2] / "docs" / "scorecards.md"


def test_the_example_makes_saves_and_uses_a_card(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names = run_example(PAGE)
    shown = capsys.readouterr().out
    assert "Points warn of 'yes'" in shown and "epsilon 2, delta 0, unit LABEL" in shown
    assert names["card"].metrics["auc"] > 0.9


@pytest.mark.parametrize(("epsilon", "rows", "about"), [(2, 300, 7), (1, 300, 17)])
def test_the_noise_that_the_page_names(epsilon: float, rows: int, about: int) -> None:
    import math

    import numpy as np

    from colonnade.models.evidence import Evidence

    keep = 1 / (1 + math.exp(-epsilon))
    found = Evidence.of(np.zeros(rows, dtype=int), np.ones(rows), 1, keep)
    assert round(float(found.noise[0])) == about
    assert f"epsilon {epsilon}" in PAGE.read_text(encoding="utf-8")
