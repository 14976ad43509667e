"""Every metric in the report: its interval and the constant guess beside it, and the columns of a comparison."""

from __future__ import annotations

import json
from typing import Any

import pytest

from colonnade.errors import ConfigError
from colonnade.evaluate.metrics import METRICS, metrics_of
from colonnade.fit import fit
from colonnade.report.content import content
from colonnade.report.html import render
from colonnade.report.machine import as_json
from colonnade.report.markdown import as_markdown
from colonnade.report.metrics import compared, mean_metrics, metrics_table
from colonnade.report.record import Terms, grouped
from colonnade.report.words import summary
from colonnade.tasks import TASKS, task_about
from tests.federations import small
from tests.report.conftest import train


@pytest.mark.parametrize("task", list(TASKS))
def test_every_metric_of_the_task_has_its_interval_and_its_guess(task: str) -> None:
    record = train("vimadmm_j", task=task)
    table, result = metrics_table(record), record["result"]
    assert table is not None
    assert table.columns == ("metric", "test", "95 % interval", "constant guess", "validation")
    having = metrics_of(task_about(record["about"]))
    assert [row[0].removesuffix(" (chooses the round)") for row in table.rows] == [metric.title for metric in having]
    assert [row[0].endswith(" (chooses the round)") for row in table.rows] == [True] + [False] * (len(having) - 1)
    for metric, row in zip(having, table.rows, strict=True):
        found, validation = result["metrics"][metric.name], result["validation_metrics"][metric.name]
        low, high = found["interval"]
        assert row[1:] == (
            metric.told(found["test"]),
            f"{metric.told(low)} to {metric.told(high)}",
            metric.told(found["baseline"]),
            metric.told(validation),
        )


def test_what_was_not_measured_is_a_dash(record: dict[str, Any]) -> None:
    record["result"]["metrics"]["auc"] = {"test": None, "interval": None, "baseline": None}
    record["result"]["validation_metrics"]["auc"] = None
    table = metrics_table(record)
    assert table is not None
    assert ("AUC", "-", "-", "-", "-") in table.rows


def test_runs_of_the_first_version_have_no_such_table(record: dict[str, Any]) -> None:
    del record["result"]["metrics"]
    assert metrics_table(record) is None


def test_page_markdown_and_json_have_it(record: dict[str, Any]) -> None:
    told = content([record])
    assert "Metrics on the test rows" in render([record])
    assert "## Metrics" in as_markdown(told, "pictures")
    assert json.loads(as_json(told, "pictures"))["runs"][0]["result"]["metrics"] == record["result"]["metrics"]


def test_columns_of_a_comparison_are_chosen(trained: dict[tuple[str, int], dict[str, Any]]) -> None:
    groups = grouped(list(trained.values()))
    usual, asked = compared(groups, Terms()), compared(groups, Terms(metrics=("log_loss", "f1")))
    assert usual.columns[2] == "test accuracy"
    assert asked.columns[2:4] == ("test log loss", "test F1")
    assert asked.columns[4:] == usual.columns[3:]
    both = [trained["vimadmm", seed]["result"]["metrics"]["log_loss"]["test"] for seed in (0, 1)]
    mean = sum(both) / 2
    cell = next(row for row in asked.rows if row[0].startswith("vimadmm ") or row[0] == "vimadmm")[2]
    assert cell == f"{mean:.3f} ± {METRICS['log_loss'].told(abs(both[0] - both[1]) / 2**0.5)}"
    assert mean_metrics(groups[0])["log_loss"]["mean"] == pytest.approx(mean)


def test_the_summary_says_that_rows_and_classes_have_weights() -> None:
    federation = small(weighted=True)
    run = fit(federation, "vimadmm_j", rounds=2, model={"hidden": 6}, class_weights={"2": 4.0})
    told = " ".join(summary(run.record()))
    assert "Rows count by weights of the label holder's, in training and in every metric." in told
    assert "In training classes are weighted: { 2 = 4 }." in told
    table = metrics_table(run.record())
    assert table is not None and table.caption == "Metrics on the test rows, each with its weight"
    assert "weighted" not in " ".join(summary(fit(small(), "vimadmm_j", rounds=2, model={"hidden": 6}).record()))


def test_a_metric_that_the_task_does_not_have_is_refused(trained: dict[tuple[str, int], dict[str, Any]]) -> None:
    groups = grouped(list(trained.values()))
    with pytest.raises(ConfigError, match="'r2' is not for a classes task"):
        compared(groups, Terms(metrics=("r2",)))
    with pytest.raises(ConfigError, match="metric 'nonsense': needed one of"):
        Terms.read({"metrics": ["nonsense"]})
    with pytest.raises(ConfigError, match="needed a list"):
        Terms.read({"metrics": "auc"})
