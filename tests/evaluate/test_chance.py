"""What a test score is worth: intervals against SciPy and a bootstrap, constant guesses, and warnings."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import binomtest
from sklearn.dummy import DummyClassifier
from sklearn.metrics import r2_score, roc_auc_score

from colonnade.errors import ColonnadeError, DoubtfulScore
from colonnade.evaluate.chance import auc_interval, interval, measured, share_interval
from colonnade.evaluate.metrics import METRICS
from colonnade.federation import Federation, RowSplit
from colonnade.fit import fit
from colonnade.methods import VIMADMM, VIMADMMJ
from colonnade.tasks.binary import Binary
from colonnade.tasks.multiclass import Multiclass
from colonnade.tasks.multilabel import Multilabel
from colonnade.tasks.regression import Regression
from tests.federations import small
from tests.trainers import TINY

RNG = np.random.default_rng(0)


@pytest.mark.parametrize(("right", "rows"), [(0, 10), (10, 10), (7, 10), (884, 1000), (8876, 10000)])
def test_interval_of_accuracy_is_scipys_exact_one(right: int, rows: int) -> None:
    expected = binomtest(right, rows).proportion_ci(0.95, method="exact")
    assert share_interval(right, rows) == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_interval_of_auc_is_close_to_a_bootstrap() -> None:
    yes = RNG.random(600) < 0.2
    scores = RNG.normal(size=600) + 1.2 * yes
    drawn = [RNG.integers(600, size=600) for _ in range(800)]
    expected = np.quantile([roc_auc_score(yes[at], scores[at]) for at in drawn], [0.025, 0.975])
    found = auc_interval(roc_auc_score(yes, scores), int(yes.sum()), int((~yes).sum()))
    np.testing.assert_allclose(found, expected, atol=0.01)


def test_interval_of_a_perfect_auc_is_not_a_point() -> None:
    low, high = auc_interval(1.0, 5, 5)
    assert high == 1.0 and 0.5 < low < 0.9
    assert auc_interval(0.0, 5, 5) == pytest.approx((0.0, 1 - low))


def test_interval_of_r2_is_close_to_a_bootstrap() -> None:
    truth = RNG.normal(size=(500, 1))
    guess = truth + 0.8 * RNG.normal(size=(500, 1))
    drawn = [RNG.integers(500, size=500) for _ in range(800)]
    expected = np.quantile([r2_score(truth[at], guess[at]) for at in drawn], [0.025, 0.975])
    value = r2_score(truth, guess)
    found = interval(METRICS["r2"], Regression(1), torch.from_numpy(guess), torch.from_numpy(truth), value)
    np.testing.assert_allclose(found, expected, atol=0.03)


def test_constant_guess_is_the_training_rows_most_frequent_class() -> None:
    train, test = np.array([2, 2, 1, 0]), np.array([1, 1, 2, 0, 1])
    dummy = DummyClassifier().fit(np.zeros((4, 1)), train)
    shares = torch.from_numpy(np.bincount(train, minlength=3) / 4)
    found = measured(Multiclass(3), torch.eye(3)[test], torch.from_numpy(test), shares)
    assert found["baseline_class"] == 2
    assert found["baseline_score"] == pytest.approx(dummy.score(np.zeros((5, 1)), test)) == 0.2
    assert found["test_score"] == 1.0 and not found["warnings"]


def test_yes_no_has_auc_and_accuracy_beside_constant_guesses() -> None:
    logits, truth = torch.tensor([[2.0], [1.0], [-1.0], [-2.0]]), torch.tensor([[1.0], [0.0], [0.0], [0.0]])
    found = measured(Binary(1), logits, truth, torch.tensor([0.1]))
    assert (found["test_score"], found["test_accuracy"]) == (1.0, 0.75)
    assert (found["baseline_score"], found["baseline_accuracy"], found["baseline_class"]) == (0.5, 0.75, 0)
    assert found["confusion"] == [[2, 1], [0, 1]]


def test_several_labels_are_compared_with_each_labels_usual_value() -> None:
    truth = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    found = measured(Multilabel(2), 2 * truth - 1, truth, torch.tensor([0.9, 0.2]))
    assert found["baseline_score"] == 0.75 and found["test_score"] == 1.0


def no_signal(rows: int = 400) -> Federation:
    """Columns that know nothing of the label; 88 % of the rows are of class 0."""
    rng = np.random.default_rng(0)
    columns = {name: rng.normal(size=(rows, 3)) for name in ("a", "b")}
    labels = (rng.random(rows) > 0.88).astype(int) + (rng.random(rows) > 0.97)
    return Federation.from_arrays(columns, labels, task="multiclass", split=RowSplit.random(rows, test=0.4))


def test_a_model_no_better_than_guessing_is_warned_of() -> None:
    federation = no_signal()
    with pytest.warns(DoubtfulScore, match="better than a constant guess"):
        run = fit(federation, VIMADMM(), rounds=5, model=TINY)
    majority = (federation.labels[federation.split.test] == 0).double().mean().item()
    assert run.result["baseline_score"] == pytest.approx(majority)
    assert run.score is not None and run.result["test_interval"][0] <= majority
    warning = run.result["warnings"][0]
    assert "better than a constant guess" in warning and f"{100 * majority:.1f} %" in warning


@pytest.mark.filterwarnings("error::colonnade.errors.DoubtfulScore")
def test_a_model_that_learnt_is_not_warned_of() -> None:
    run = fit(small(rows=400), VIMADMM(), rounds=30, model=TINY)
    assert run.result["test_interval"][0] > run.result["baseline_score"]
    assert run.result["warnings"] == []


def test_the_guess_counts_protected_labels_as_they_were_noised() -> None:
    """With epsilon this small the noise decides which class seems frequent: the plain labels are not counted."""
    federation = no_signal()
    privacy = {"labels": {"mechanism": "randomised_response", "epsilon": 1e-3}}
    seen = {
        fit(federation, VIMADMM(), rounds=1, model=TINY, privacy=privacy, seed=seed).result["baseline_class"]
        for seed in range(8)
    }
    assert len(seen) > 1


def test_a_regression_has_no_accuracy() -> None:
    federation = small(task="regression")
    run = fit(federation, VIMADMMJ(), rounds=3, model=TINY)
    assert run.score == run.result["test_score"] and run.score_name == "R2"
    with pytest.raises(ColonnadeError, match=r"regression task has no accuracy; run\.score is its R2"):
        _ = run.accuracy
    assert not hasattr(run, "accuracy")
    train, test = (federation.labels[rows].numpy() for rows in (federation.split.train, federation.split.test))
    dummy = r2_score(test, np.tile(train.mean(axis=0), (len(test), 1)), multioutput="variance_weighted")
    assert run.result["baseline_score"] == pytest.approx(dummy)
    assert all("batch_accuracy" not in entry for entry in run.history)
    assert run.history[0]["batch_mse"] > 0
