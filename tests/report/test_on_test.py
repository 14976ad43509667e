"""What a report shows of the test rows, by task: curves, tables, and a sentence where something is missing."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_curve

from colonnade.evaluate.answers import Answers, Evaluated
from colonnade.evaluate.binned import binned
from colonnade.report.content import content
from colonnade.report.html import render
from colonnade.report.machine import as_json
from colonnade.report.markdown import as_markdown
from colonnade.report.on_test import on_test
from colonnade.report.record import read_records
from colonnade.tasks import task_about
from tests.report.conftest import train

PICTURES = {
    "binary": ["roc", "precision-recall", "calibration", "gain"],
    "multiclass": ["calibration"],
    "multilabel": [],
    "regression": ["predicted-actual", "residuals", "residual-distribution"],
    "count": ["observed-expected", "residuals", "residual-distribution"],
}
TABLES = {
    "binary": "Gain and lift by tenths of the test rows",
    "multiclass": "Each class against the rest",
    "multilabel": "Each label",
    "regression": "Quantiles of the residuals",
    "count": "Observed and expected counts",
}


@pytest.fixture(scope="module")
def records() -> dict[str, dict[str, Any]]:
    """A short run of every task, whose test rows are many: bins of made-up outputs. Look, do not change."""
    found = {task: train("vimadmm_j", task=task) for task in PICTURES}
    for record in found.values():
        record["result"]["binned"] = json.loads(json.dumps(_many(record)))
    return found


def _many(record: dict[str, Any], rows: int = 400) -> Any:
    task, rng = task_about(record["about"]), np.random.default_rng(0)
    outputs = torch.from_numpy(rng.normal(size=(rows, task.outputs)))
    noisy = outputs + torch.from_numpy(rng.normal(size=outputs.shape))
    truth = task.codes(noisy)
    truth = truth.round() if task.name == "count" else truth
    return binned(Evaluated(task, Answers(outputs, outputs), truth.double() if task.name != "multiclass" else truth))


@pytest.mark.parametrize("task", list(PICTURES))
def test_every_task_has_its_pictures_and_tables(task: str, records: dict[str, dict[str, Any]]) -> None:
    record = records[task]
    shown = on_test(record)
    assert shown is not None
    assert [re.sub(r"^number-\d-", "", p.drawing.name) for p in shown.pictures][: len(PICTURES[task])] == PICTURES[task]
    assert any(table.caption.startswith(TABLES[task]) for table in shown.tables)
    assert "Every point, bar and line of a table stands for at least 10 test rows." in shown.sentences
    page, told = render([record]), content([record])
    assert page.index('id="summary"') < page.index('id="metrics"') < page.index('id="test-rows"')
    assert page.index('id="test-rows"') < page.index('id="curves"') < page.index('id="parties"')
    for picture in shown.pictures:
        assert f'id="{picture.drawing.name}' in page or picture.caption.split(".")[0] in page
        assert len(picture.description) > len(picture.caption)  # the numbers, for those who do not see them
        assert picture.drawing.png().startswith(b"\x89PNG")
    written = as_markdown(told, "pictures")
    assert "## Test rows" in written and all(f"pictures/{p.drawing.name}.png" in written for p in shown.pictures)
    assert json.loads(as_json(told, "pictures"))["runs"][0]["result"]["binned"] == record["result"]["binned"]


def test_the_words_of_a_roc_curve_are_those_of_scikit_learn(records: dict[str, dict[str, Any]]) -> None:
    record = copy.deepcopy(records["binary"])
    rng = np.random.default_rng(8)
    odds = rng.normal(size=2000)
    yes = (rng.random(2000) < 1 / (1 + np.exp(-2 * odds))).astype(float)
    outputs = torch.from_numpy(odds)[:, None]
    task = task_about(record["about"])
    record["result"]["binned"] = binned(Evaluated(task, Answers(outputs, outputs), torch.from_numpy(yes)[:, None]))
    shown = on_test(record)
    assert shown is not None
    false, true, _ = roc_curve(yes, odds)
    found = re.search(r"at a false positive rate of 10 % it finds ([\d.]+) %", shown.pictures[0].description)
    assert found and float(found[1]) == pytest.approx(100 * np.interp(0.1, false, true), abs=1.0)
    gain = re.search(
        r"The 10 % of rows with the highest probability hold ([\d.]+) % of the yes", shown.pictures[3].caption
    )
    best = yes[odds.argsort()[::-1][:200]].sum() / yes.sum()
    assert gain and float(gain[1]) == pytest.approx(100 * best, abs=0.06)
    table = shown.tables[0]
    assert table.rows[0][4] == f"{100 * best:.1f} %" and table.rows[-1][4:] == ("100.0 %", "1.00")


def test_the_diamond_stands_where_the_confusion_matrix_says(records: dict[str, dict[str, Any]]) -> None:
    record = copy.deepcopy(records["binary"])
    shown = on_test(record)
    assert shown is not None and "Diamond: decisions at 0.5." in shown.pictures[0].caption
    record["about"]["row_weights"] = True  # then the matrix counts rows, and the curve their weights
    shown = on_test(record)
    assert shown is not None and "Diamond" not in shown.pictures[0].caption


def test_expected_counts_have_a_band_where_all_rows_count_alike(records: dict[str, dict[str, Any]]) -> None:
    record = copy.deepcopy(records["count"])
    plain = on_test(record)
    assert plain is not None and "band: 95 % of such means" in plain.pictures[0].caption
    record["about"]["row_weights"] = True  # a mean of few heavy rows strays farther
    weighed = on_test(record)
    assert weighed is not None and "band" not in weighed.pictures[0].caption
    drawn = [found.pictures[0].drawing.inline().count("fill-opacity") for found in (plain, weighed)]
    assert drawn[1] < drawn[0]
    totals, means = plain.tables[0], weighed.tables[0]
    assert totals.columns[2:4] == ("expected", "observed")
    assert means.columns[2:4] == ("weighted mean expected", "weighted mean observed")
    rows, mean = int(totals.rows[0][1].replace(",", "")), float(means.rows[0][2])
    assert float(totals.rows[0][2].replace(",", "")) == pytest.approx(rows * mean, rel=0.01)
    assert "counted once" in weighed.tables[-1].caption and "counted once" not in plain.tables[-1].caption


def test_test_rows_of_one_class_have_no_curves(records: dict[str, dict[str, Any]]) -> None:
    record = copy.deepcopy(records["binary"])
    bins = record["result"]["binned"]["scores"]
    bins["yes"] = [0.0] * len(bins["yes"])
    shown = on_test(record)
    assert shown is not None and shown.pictures == () and "all of one class" in shown.sentences[0]


def test_a_run_of_an_earlier_version_says_what_is_missing(records: dict[str, dict[str, Any]]) -> None:
    for task, what in (("binary", "the ROC curve"), ("count", "observed and expected counts")):
        record = copy.deepcopy(records[task])
        del record["result"]["binned"]
        page = " ".join(render([record]).split())
        assert "The run was made by an earlier version of Colonnade, which did not keep" in page and what in page


def test_folders_of_format_1_are_reported_with_that_sentence() -> None:
    folders = sorted(path.parent for path in Path("tests/golden/format1").rglob("run.json"))
    assert folders
    for folder in folders:
        (record,) = read_records([folder])
        shown = on_test(record)
        assert shown is None or (shown.pictures == () and "earlier version" in shown.sentences[0])


def test_what_is_left_out_is_named(records: dict[str, dict[str, Any]]) -> None:
    record = copy.deepcopy(records["binary"])
    record["result"]["binned"] = {"fewest": 10, "left_out": "labels are protected in this run"}
    assert "Curves of the test rows are left out: labels are protected in this run." in render([record])


def test_evaluation_without_noise_is_named(records: dict[str, dict[str, Any]]) -> None:
    record = copy.deepcopy(records["binary"])
    record["privacy"] = {**record["privacy"], "mechanism": "gaussian", "evaluation": "simulated"}
    shown = on_test(record)
    assert shown is not None and "no epsilon covers what is shown here" in shown.sentences[-1]


def test_runs_side_by_side_have_tables_and_no_pictures(records: dict[str, dict[str, Any]]) -> None:
    other = copy.deepcopy(records["binary"])
    other["id"], other["method"]["settings"]["rho"] = "another", 9.0
    told = content([records["binary"], other])
    assert not any("roc" in picture.drawing.name for picture in told.files)
    for group in told.facts["groups"]:
        shown = group["on_test"]
        assert shown is not None and shown.tables and "in a report about this run alone" in shown.sentences[-1]
