"""Run folders of version 0.1 still load, predict what they predicted, report and account."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from colonnade.errors import ColonnadeError
from colonnade.report.html import write_report
from colonnade.run import Run

FOLDERS = sorted(path for path in (Path(__file__).parents[1] / "golden" / "format1").iterdir() if path.is_dir())


@pytest.fixture(params=FOLDERS, ids=lambda path: path.name)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy: predictions add to a run's ledger."""
    return Path(shutil.copytree(request.param, tmp_path / "run"))


def expected(folder: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    return read


def test_it_predicts_what_it_predicted(folder: Path) -> None:
    run, then = Run.load(folder), expected(folder)
    assert run.fingerprint() == then["fingerprint"]
    columns = {name: np.array(values, dtype=np.float32) for name, values in then["columns"].items()}
    then_said = torch.tensor(then["logits"], dtype=torch.float64)
    torch.testing.assert_close(run.logits(columns).double(), then_said, rtol=1e-5, atol=1e-6)
    assert run.result["test_score"] == then["score"]


def test_it_is_reported(folder: Path, tmp_path: Path) -> None:
    run = Run.load(folder)
    page = write_report([run.record()], tmp_path / "report", page_only=True).read_text(encoding="utf-8")
    assert run.method.name in page
    assert "<html" in page


def test_raw_tables_need_preprocessing_that_was_not_stored(tmp_path: Path) -> None:
    source = next(path for path in FOLDERS if path.name == "tables")
    run = Run.load(shutil.copytree(source, tmp_path / "run"))
    bank = pd.DataFrame({"customer": [1], "income": [0.3], "job": ["a"]})
    with pytest.raises(ColonnadeError, match=r"stored|arrays"):
        run.predict({"bank": bank, "telco": pd.DataFrame({"customer": [1], "calls": [0.1]})})
