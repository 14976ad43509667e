"""Combinations of every set of parties, against slower programs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from colonnade.models import subsets
from colonnade.models.subsets import all_subsets, combine, fit_subsets
from colonnade.tasks import Task, find_task

ROWS = 120


def drawn(task: str, outputs: int, parties: int = 3) -> tuple[Task, Tensor, Tensor, Tensor]:
    """A task, scores (M, B, K) of parties of which the first two overlap, targets and how much rows count."""
    rng = np.random.default_rng(outputs)
    scores = rng.normal(size=(parties, ROWS, outputs))
    scores[1] = 0.8 * scores[0] + 0.4 * scores[1]
    total = torch.from_numpy(scores.sum(axis=0) - 0.5 + rng.normal(size=(ROWS, outputs)))
    made = {
        "binary": (total > 0).double(),
        "multilabel": (total > 0).double(),
        "multiclass": torch.nn.functional.one_hot(total.argmax(dim=1), max(outputs, 2)).double(),
        "regression": total,
        "count": torch.from_numpy(rng.poisson(np.exp(0.4 * total.clamp(-3, 3).numpy()))).double(),
    }[task]
    counts = torch.from_numpy(rng.uniform(0.5, 2, ROWS))
    return find_task(task)(outputs), torch.from_numpy(scores), made, counts


def test_sets_are_numbered_by_their_bits() -> None:
    assert all_subsets(3).tolist() == [[bool(number >> k & 1) for k in range(3)] for number in range(1, 8)]


@pytest.mark.parametrize(
    ("task", "outputs"), [("binary", 1), ("multiclass", 3), ("multilabel", 2), ("regression", 2), ("count", 1)]
)
def test_every_set_is_at_the_minimum_that_a_general_optimiser_finds(task: str, outputs: int) -> None:
    kind, scores, targets, counts = drawn(task, outputs)
    sets = all_subsets(3)
    found = fit_subsets(kind, scores, targets, sets, counts)
    for number, present in enumerate(sets):
        chosen = present.nonzero()[:, 0]

        def loss(at: np.ndarray, chosen: Tensor = chosen) -> float:
            w, b = torch.from_numpy(at[: len(chosen)]), torch.from_numpy(at[len(chosen) :])
            logits = torch.einsum("m,mbk->bk", w, scores[chosen]) + b
            ridge = subsets.RIDGE / 2 * float((w - 1).square().sum() + b.square().sum())
            return float(kind.loss(logits, targets, counts)) + ridge

        start = np.concatenate([np.ones(len(chosen)), np.zeros(outputs)])
        slow = minimize(loss, start, method="L-BFGS-B", options={"ftol": 1e-14, "gtol": 1e-9})
        ours = torch.cat([found.weights[number][chosen], found.bias[number]]).numpy()
        assert loss(ours) <= slow.fun + 1e-9
        np.testing.assert_allclose(ours, slow.x, atol=2e-3)
        assert not found.weights[number][~present].any()


def test_yes_and_no_is_a_logistic_regression(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subsets, "RIDGE", 1e-9)
    kind, scores, targets, _ = drawn("binary", 1)
    found = fit_subsets(kind, scores, targets, torch.tensor([[True, False, True]]))
    features = scores[[0, 2], :, 0].T.numpy()
    slow = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000).fit(features, targets[:, 0].numpy())
    np.testing.assert_allclose(found.weights[0][[0, 2]], slow.coef_[0], rtol=1e-4)
    np.testing.assert_allclose(found.bias[0], slow.intercept_, rtol=1e-4)


def test_pieces_of_the_rows_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    kind, scores, targets, counts = drawn("multiclass", 3)
    whole = fit_subsets(kind, scores, targets, all_subsets(3), counts)
    monkeypatch.setattr(subsets, "CELLS", 700)
    pieces = fit_subsets(kind, scores, targets, all_subsets(3), counts)
    torch.testing.assert_close(whole.weights, pieces.weights, rtol=0, atol=1e-9)


def test_one_label_and_one_row_stay_finite() -> None:
    for rows in (1, 5):
        scores, targets = 50 * torch.randn(2, rows, 1, dtype=torch.float64), torch.ones(rows, 1)
        found = fit_subsets(find_task("binary")(1), scores, targets, all_subsets(2))
        assert found.weights.isfinite().all() and found.bias.isfinite().all()


def test_what_stands_in_the_place_of_an_absent_party_is_not_read() -> None:
    scores = torch.stack([torch.ones(4, 1), torch.full((4, 1), torch.nan)])
    told = combine(torch.tensor([2.0, 5.0]).double(), torch.tensor([0.5]).double(), scores, torch.tensor([True, False]))
    assert told.tolist() == [[2.5]] * 4


@pytest.mark.parametrize("size", [30.0, 300.0, 1e6])
@pytest.mark.parametrize("task", ["binary", "count"])
def test_a_party_that_makes_up_large_numbers_gets_no_weight(task: str, size: float) -> None:
    """They begin at a loss that is infinite, or nearly so, and end at the minimum all the same."""
    kind, scores, targets, counts = drawn(task, 1)
    scores[2] = size * torch.from_numpy(np.random.default_rng(0).normal(size=(ROWS, 1)))
    found = fit_subsets(kind, scores, targets, all_subsets(3), counts)
    assert bool(found.fitted.all())
    assert float(found.weights[6, 2].abs()) < 1 / size  # of all three
    assert float((found.weights[6, :2] - found.weights[2, :2]).abs().max()) < 0.2  # of the first two


def test_numbers_beyond_all_measure_have_no_combination() -> None:
    kind, scores, targets, counts = drawn("count", 1)
    scores[2] = 1e300
    found = fit_subsets(kind, scores, targets, all_subsets(3), counts)
    assert found.fitted.tolist() == [True] * 3 + [False] * 4
    assert not bool(found.weights[3:].any())
