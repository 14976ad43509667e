"""Bins of the test rows: exact where scikit-learn can say so, and never of a few rows."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from sklearn.calibration import calibration_curve
from sklearn.metrics import (
    confusion_matrix,
    precision_recall_curve,
    precision_recall_fscore_support,
    roc_auc_score,
    roc_curve,
)
from torch import Tensor

from colonnade.evaluate.answers import Answers, Evaluated
from colonnade.evaluate.binned import FEWEST, MOST, PROTECTED, binned, deviance_residuals, histogram, places
from colonnade.fit import fit
from colonnade.record import Binned
from colonnade.report.on_test import Scores
from colonnade.tasks import TASKS
from tests.federations import small

ROWS = 1000


def kept(task: str, outputs: Tensor, truth: Tensor, weights: Tensor | None = None, classes: int = 1) -> Binned:
    made = TASKS[task](classes)
    return binned(Evaluated(made, Answers(outputs, outputs), truth, weights))


def yes_no(rows: int = ROWS, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Log odds (B, 1) and labels (B, 1) that follow them."""
    rng = np.random.default_rng(seed)
    odds = rng.normal(-0.5, 1.5, rows)
    yes = rng.random(rows) < 1 / (1 + np.exp(-odds))
    return torch.from_numpy(odds)[:, None], torch.from_numpy(yes.astype(float))[:, None]


def test_points_of_the_curves_are_points_of_scikit_learn() -> None:
    odds, yes = yes_no()
    scores = Scores.of(kept("binary", odds, yes)["scores"])
    assert len(scores.rows) == MOST
    y, p = yes.numpy()[:, 0], odds.sigmoid().numpy()[:, 0]
    false, true, _ = roc_curve(y, p, drop_intermediate=False)
    at = np.concatenate([[0], np.cumsum(scores.rows)])  # points after so many rows
    np.testing.assert_allclose(scores.alarms(), false[at])
    np.testing.assert_allclose(scores.hits(), true[at])
    precision, recall, _ = precision_recall_curve(y, p)
    np.testing.assert_allclose(scores.precision(), precision[::-1][at[1:]])
    np.testing.assert_allclose(scores.hits()[1:], recall[::-1][at[1:]])


def test_calibration_is_that_of_scikit_learn() -> None:
    odds, yes = yes_no()
    tenths = Scores.of(kept("binary", odds, yes)["scores"]).tenths()
    share, mean = calibration_curve(yes.numpy()[:, 0], odds.sigmoid().numpy()[:, 0], n_bins=10, strategy="quantile")
    assert tenths.rows == (100,) * 10
    np.testing.assert_allclose([a / 100 for a in tenths.yes], share[::-1])
    np.testing.assert_allclose(tenths.mean, mean[::-1], rtol=1e-4)


def test_weighted_rows_count_by_their_weight() -> None:
    odds, yes = yes_no()
    weights = torch.from_numpy(np.random.default_rng(1).integers(1, 4, ROWS).astype(float))
    scores = Scores.of(kept("binary", odds, yes, weights)["scores"])
    y, p, w = yes.numpy()[:, 0], odds.sigmoid().numpy()[:, 0], weights.numpy()
    false, true, _ = roc_curve(y, p, sample_weight=w, drop_intermediate=False)
    at = np.concatenate([[0], np.cumsum(scores.rows)])
    np.testing.assert_allclose(scores.alarms(), false[at])
    np.testing.assert_allclose(scores.hits(), true[at])


@pytest.mark.parametrize("rows", [10, 19, 20, 137, 999, 1001, 5003])
@pytest.mark.parametrize("levels", [0, 1, 3, 40])
def test_no_bin_is_small_and_equal_scores_are_together(rows: int, levels: int) -> None:
    rng = np.random.default_rng(rows)
    by = torch.from_numpy(rng.normal(size=rows) if not levels else rng.integers(0, levels, rows).astype(float) ** 2)
    place = places(by, MOST)
    counts = torch.bincount(place)
    assert int(counts.min()) >= FEWEST and len(counts) <= MOST
    for value in by.unique():
        assert len(place[by == value].unique()) == 1
    order = by.argsort()
    assert bool((place[order].diff() >= 0).all())  # rising with the score


def test_a_frequent_score_leaves_no_small_bin_beside_it() -> None:
    by = torch.cat([torch.zeros(3), torch.ones(200), torch.full((4,), 2.0), torch.arange(3.0, 16.0)])
    assert torch.bincount(places(by, MOST)).tolist() == [203, 17]


@pytest.mark.parametrize("weighted", [False, True])
def test_each_class_against_the_rest(weighted: bool) -> None:
    rng = np.random.default_rng(2)
    outputs = torch.from_numpy(rng.normal(size=(300, 3)))
    truth = torch.from_numpy(np.where(rng.random(300) < 0.6, outputs.argmax(dim=1).numpy(), rng.integers(0, 3, 300)))
    weights = torch.from_numpy(rng.random(300) + 0.5) if weighted else None
    found = kept("multiclass", outputs, truth, weights, classes=3)
    w = None if weights is None else weights.numpy()
    decided, sure = outputs.argmax(dim=1).numpy(), outputs.softmax(dim=1).numpy()
    precision, recall, f1, _ = precision_recall_fscore_support(truth.numpy(), decided, sample_weight=w)
    for k, one in enumerate(found["each"]):
        auc = roc_auc_score(truth.numpy() == k, outputs.log_softmax(dim=1).numpy()[:, k], sample_weight=w)
        assert [one["precision"], one["recall"], one["f1"], one["auc"]] == pytest.approx(
            [precision[k], recall[k], f1[k], auc]
        )
        assert one["rows"] == int((truth == k).sum())
    top = found["top"]
    right = decided == truth.numpy()
    assert sum(top["yes"]) == pytest.approx(right.sum() if w is None else w[right].sum(), rel=1e-4)
    assert len(top["rows"]) == 10 and min(top["rows"]) >= FEWEST
    assert top["lowest"][0] == pytest.approx(sure.max(axis=1).min(), abs=1e-4)


def test_a_class_of_a_few_rows_is_not_told() -> None:
    outputs = torch.from_numpy(np.random.default_rng(3).normal(size=(60, 3)))
    truth = torch.tensor([0] * 27 + [1] * 27 + [2] * 6)
    each = kept("multiclass", outputs, truth, classes=3)["each"]
    assert [one["rows"] for one in each] == [27, 27, None]
    assert each[2]["auc"] is None and each[2]["recall"] is None


def test_each_label() -> None:
    rng = np.random.default_rng(4)
    outputs = torch.from_numpy(rng.normal(size=(200, 3)))
    truth = torch.from_numpy((rng.random((200, 3)) < outputs.sigmoid().numpy()).astype(float))
    truth[:, 2] = 0
    truth[:4, 2] = 1  # a rare label
    each = kept("multilabel", outputs, truth, classes=3)["each"]
    for k in (0, 1):
        (_, alarms), (_, hits) = confusion_matrix(truth[:, k], outputs[:, k] > 0)
        assert each[k]["precision"] == pytest.approx(hits / (hits + alarms))
        assert each[k]["auc"] == pytest.approx(roc_auc_score(truth[:, k], outputs[:, k]))
    assert each[2]["rows"] is None


def test_numbers_keep_their_means_and_the_spread_of_residuals() -> None:
    rng = np.random.default_rng(5)
    said = rng.normal(100, 20, 400)
    actual = said + rng.normal(0, 5, 400)
    (found,) = kept("regression", torch.from_numpy(said)[:, None], torch.from_numpy(actual)[:, None])["numbers"]
    order = np.split(said.argsort(), 20)
    for key, values in (("predicted", said), ("actual", actual), ("residual", actual - said)):
        np.testing.assert_allclose(found["bins"][key], [values[part].mean() for part in order], rtol=1e-4, atol=1e-4)  # type: ignore[literal-required]
    np.testing.assert_allclose(found["bins"]["spread"], [(actual - said)[part].std() for part in order], rtol=1e-4)
    assert [share for share, _ in found["quantiles"]] == [0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95]  # 1 % are four rows
    np.testing.assert_allclose(
        [value for _, value in found["quantiles"]],
        np.quantile(actual - said, [share for share, _ in found["quantiles"]]),
        rtol=1e-3,
    )
    assert sum(found["residuals"]["rows"]) == 400 and min(found["residuals"]["rows"]) >= FEWEST


def test_bars_of_a_histogram_have_the_rows_between_their_edges() -> None:
    values = np.random.default_rng(6).normal(size=2000)
    found = histogram(torch.from_numpy(values))
    counts, _ = np.histogram(values, [-np.inf, *found["edges"], np.inf])
    assert max(abs(counts - np.array(found["rows"]))) <= 1  # edges are rounded
    one = histogram(torch.full((30,), 2.5))
    assert one == {"edges": [], "rows": [30]}


def test_residuals_of_counts_are_those_of_the_deviance() -> None:
    mu, y = torch.tensor([0.5, 2.0, 3.0]), torch.tensor([0.0, 2.0, 7.0])
    assert deviance_residuals(mu, y).tolist() == pytest.approx([-1.0, 0.0, (2 * (7 * np.log(7 / 3) - 4)) ** 0.5])
    rng = np.random.default_rng(7)
    log_mean = rng.normal(size=(500, 1))
    counts = torch.from_numpy(rng.poisson(np.exp(log_mean)).astype(float))
    found = kept("count", torch.from_numpy(log_mean), counts)
    (number,) = found["numbers"]
    assert found["deviance"] and number["bins"]["rows"] == [50] * 10
    total = sum(rows * mean for rows, mean in zip(number["bins"]["rows"], number["bins"]["actual"], strict=True))
    assert total == pytest.approx(float(counts.sum()), rel=1e-4)


def test_too_few_rows_and_broken_outputs_are_named() -> None:
    odds, yes = yes_no(9)
    assert kept("binary", odds, yes)["left_out"] == "there are 9 test rows, and each point of a curve needs 10"
    odds, yes = yes_no(200)
    yes[:] = 0
    yes[:9] = 1
    assert kept("binary", odds, yes)["left_out"] == "fewer than 10 test rows are a yes, or a no"
    odds, yes = yes_no(50)
    odds[3] = float("nan")
    assert "not all finite" in kept("binary", odds, yes)["left_out"]


@pytest.mark.parametrize("task", list(TASKS))
def test_every_task_keeps_something_small(task: str) -> None:
    run = fit(small(task=task, rows=200), "vimadmm_j", rounds=2, model={"hidden": 6})
    found = run.result["binned"]
    assert "left_out" not in found
    assert len(json.dumps(found)) < 20_000


def test_protected_labels_leave_the_curves_out() -> None:
    noisy = {"labels": {"mechanism": "randomised_response", "epsilon": 3.0}}
    run = fit(small(), "vimadmm_j", rounds=2, model={"hidden": 6}, privacy=noisy)
    assert run.result["binned"] == {"fewest": FEWEST, "left_out": PROTECTED}
