"""The example of docs/tables.md, carried out as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "tables.md"


def test_the_example_trains_saves_loads_and_scores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    found = re.search(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert found is not None
    names: dict[str, object] = {"__name__": "example"}
    exec(compile(found[1], str(PAGE), "exec"), names)  # noqa: S102 - the page's own example
    assert "('stays', 'leaves')" in capsys.readouterr().out
    run, new = names["run"], names["new"]
    bank, telco = names["customers"](600, seed=2)  # type: ignore[operator]
    truth = telco.set_index("subscriber")["churn"]
    told = run.predict(new)  # type: ignore[attr-defined]
    assert told.index.tolist() == bank["customer"].tolist()
    assert (told == truth.loc[told.index]).mean() > 0.85
