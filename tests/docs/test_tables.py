"""The example of docs/tables.md, carried out as it stands there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import run_example

PAGE = Path(__file__).parents[2] / "docs" / "tables.md"


def test_the_example_trains_saves_loads_and_scores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names = run_example(PAGE)
    assert "('stays', 'leaves')" in capsys.readouterr().out
    run, new = names["run"], names["new"]
    bank, telco = names["customers"](600, seed=2)
    truth = telco.set_index("subscriber")["churn"]
    told = run.predict(new)
    assert told.index.tolist() == bank["customer"].tolist()
    assert (told == truth.loc[told.index]).mean() > 0.85
