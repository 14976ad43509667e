"""A score that is nearly perfect is doubted where it is told: mostly a column tells the label."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from colonnade.federation import Federation
from colonnade.fit import fit
from colonnade.report import notebook, words
from colonnade.report.too_good import SENTENCE, too_good

ROWS = 400


def run(task: str, leak: bool, rows: int = ROWS) -> Any:
    """A run on labels with noise; with `leak` the telco has them as a column under another name."""
    draw = np.random.default_rng(0)
    x = draw.normal(size=(rows, 3))
    score = x.sum(axis=1) + draw.normal(size=rows)
    labels = {"binary": np.where(score > 0, "yes", "no"), "regression": score, "count": draw.poisson(np.exp(score / 2))}
    bank = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "y": labels[task]})
    telco = pd.DataFrame({"c": x[:, 2], **({"told": labels[task]} if leak else {})})
    federation = Federation.from_tables({"bank": bank, "telco": telco}, labels="y", task=task)  # type: ignore[arg-type]
    return fit(federation, "vimadmm_j", rounds=40, progress=False)


@pytest.mark.parametrize("task", ["binary", "regression", "count"])
def test_a_column_that_tells_the_label_is_suspected(task: str) -> None:
    leaked, honest = run(task, leak=True), run(task, leak=False)
    assert f"Warning: {SENTENCE}" in words.summary(leaked.record())
    assert SENTENCE in notebook.of_run(leaked)
    assert too_good(honest.record()) == []


def test_few_rows_are_right_by_chance() -> None:
    record = run("binary", leak=True).record()
    record["about"]["rows"]["test"] = 29
    assert too_good(record) == []


def test_what_was_not_measured_is_not_doubted() -> None:
    record = run("binary", leak=True).record()
    record["result"]["test_score"] = None
    assert too_good(record) == []
