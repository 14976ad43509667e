"""A class that is never predicted is named wherever a run is told of, with what to set."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from colonnade.cli.training import facts
from colonnade.evaluate.decision import DecisionSettings
from colonnade.federation import Federation
from colonnade.fit import fit
from colonnade.report import decided, notebook, words
from colonnade.report.html import write_report
from tests.federations import small

ROWS = 600


def rare(share: float = 0.02, **settings: Any) -> Any:
    """A run on labels of which few (or nearly all) are a yes, that ranks rows well."""
    import numpy as np
    import pandas as pd

    draw = np.random.default_rng(0)
    x = draw.normal(size=(ROWS, 4))
    score = x.sum(axis=1) + draw.normal(size=ROWS)
    yes = score > np.quantile(score, 1 - share)
    bank = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "churn": np.where(yes, "yes", "no")})
    telco = pd.DataFrame({"c": x[:, 2], "d": x[:, 3]})
    tables = {"bank": bank, "telco": telco}
    split = {"validation": 0.25, "test": 0.25, "seed": 0, "stratify": True}
    federation = Federation.from_tables(tables, labels="churn", classes=["no", "yes"], split=split)
    return fit(federation, "vimadmm_j", rounds=6, **settings)


@pytest.fixture(scope="module")
def run() -> Any:
    """Nobody is predicted a yes."""
    return rare()


def test_the_verdict_says_that_nobody_is_predicted_a_yes(run: Any) -> None:
    record = run.record()
    told = words.verdict(record)
    assert told.startswith(
        'Better than a constant guess by AUC, but no test row is predicted "yes" at the threshold 0.5, although 3 of '
        "150 are: test AUC"
    )
    assert "train with --set training.decision.decide_by=f1" in told


def test_the_named_setting_cures_it() -> None:
    record = rare(decision=DecisionSettings(decide_by="f1")).record()
    assert decided.never_predicted(record) == []
    assert decided.sentences(record) == []


def test_everybody_predicted_a_yes_is_named_too() -> None:
    record = rare(0.97).record()
    assert 'no test row is predicted "no" at the threshold 0.5' in words.verdict(record)


def test_terminal_page_card_notebook_and_json_name_it(run: Any, tmp_path: Path) -> None:
    told = 'o test row is predicted "yes"'
    record = json.loads(json.dumps(run.record()))
    assert told in " ".join(words.summary(record))
    page = write_report([record], tmp_path)
    for file in (page, page.with_name("model-card.md"), page.with_suffix(".md")):
        text = file.read_text().replace("&#34;", '"')
        assert text.count(told) == 1, file
    assert told in notebook.of_run(run).replace("&quot;", '"')
    assert facts(record, tmp_path)["never_predicted"] == ["yes"]


def test_classes_that_are_never_predicted_are_listed() -> None:
    record = fit(small(), "vimadmm", rounds=1).record()
    counts = record["result"]["confusion"]
    record["result"]["confusion"] = [[sum(row), *([0] * (len(row) - 1))] for row in counts]
    missed = decided.never_predicted(record)
    assert missed == [str(n) for n in range(1, len(counts)) if sum(counts[n])]
    assert decided.one_sided(record).startswith('no test row is predicted "1"')
    assert "class_weights" in decided.remedy(record)


def test_a_class_without_test_rows_is_not_missed() -> None:
    record = fit(small(), "vimadmm", rounds=1).record()
    record["result"]["confusion"] = [[5, 0, 0], [0, 5, 0], [0, 0, 0]]
    record["about"]["class_names"] = ["a", "b", "c"]
    assert decided.never_predicted(record) == []


def test_nothing_is_missed_where_nothing_was_evaluated(tmp_path: Path) -> None:
    """Under noise no rows are evaluated unless somebody says so: there is no table of decisions then."""
    run = rare(0.3, privacy={"mechanism": "gaussian", "clip": 0.01, "epsilon": 4.0})
    record = json.loads(json.dumps(run.record()))
    assert "confusion" not in record["result"] and record["about"]["class_names"] == ["no", "yes"]
    assert facts(record, tmp_path)["never_predicted"] == [] and decided.sentences(record) == []
    assert "test row is predicted" not in write_report([record], tmp_path).read_text()
