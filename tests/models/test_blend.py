"""Weights of models that were trained apart, against generic optimisers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from colonnade.models import blend
from colonnade.models.blend import Blend, fit_blend
from colonnade.tasks import TASKS


def made_up(task: str, models: int = 5, rows: int = 300, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Predictions (M, B, K): the first two know something, the fourth is wrong; and targets (B, K)."""
    rng = np.random.default_rng(seed)
    outputs = 1 if task == "binary" else 4
    parts = rng.normal(size=(models, rows, outputs)) * 3
    score = parts[0] + 0.5 * parts[1] - 0.5 * parts[3] + 2 * rng.normal(size=(rows, outputs)) + 1
    if task == "multiclass":
        return torch.from_numpy(parts), F.one_hot(torch.from_numpy(score.argmax(axis=1)), outputs).double()
    if task == "count":
        return torch.from_numpy(parts / 5), torch.from_numpy(rng.poisson(np.exp(score / 5)) * 1.0)
    return torch.from_numpy(parts), torch.from_numpy(score if task == "regression" else (score > 0) * 1.0)


def penalised(task: str, parts: Tensor, targets: Tensor, place: Tensor) -> Tensor:
    """The definition, with torch's own losses."""
    models = len(parts)
    weights, bias = place[:models], place[models:]
    logits = sum(w * part for w, part in zip(weights, parts, strict=True)) + bias
    assert isinstance(logits, Tensor)
    if task == "multiclass":
        loss = F.cross_entropy(logits, targets, reduction="sum")
    elif task == "regression":
        loss = F.mse_loss(logits, targets, reduction="sum") / 2
    elif task == "count":
        loss = F.poisson_nll_loss(logits, targets, log_input=True, reduction="sum")
    else:
        loss = -(targets * F.logsigmoid(logits) + (1 - targets) * F.logsigmoid(-logits)).sum()
    return loss + blend.RIDGE / 2 * ((weights - 1 / models).square().sum() + bias.square().sum())


@pytest.mark.parametrize("task", list(TASKS))
@pytest.mark.parametrize("chunk", [2**22, 500], ids=["at once", "in pieces"])
def test_agrees_with_a_bounded_generic_optimiser(task: str, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blend, "CELLS", chunk)
    parts, targets = made_up(task)
    models, _, outputs = parts.shape

    def both(values: np.ndarray) -> tuple[float, np.ndarray]:
        place = torch.from_numpy(values).requires_grad_()
        value = penalised(task, parts, targets, place)
        (slope,) = torch.autograd.grad(value, place)
        return value.item(), slope.numpy()

    start = np.concatenate([np.full(models, 1 / models), np.zeros(outputs)])
    bounds = [(0, None)] * models + [(None, None)] * outputs
    options = {"maxiter": 5000, "ftol": 1e-15, "gtol": 1e-10}
    slow = minimize(both, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    found = fit_blend(TASKS[task](parts.shape[2]), parts, targets)
    place = torch.cat([found.weights, found.bias])
    assert float(penalised(task, parts, targets, place)) <= slow.fun + 1e-8
    torch.testing.assert_close(place, torch.from_numpy(slow.x), atol=1e-5, rtol=0)
    assert found.weights[3] == 0.0 and found.weights[0] > found.weights[1] > 0


def test_agrees_with_logistic_regression(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blend, "RIDGE", 1e-9)
    parts, targets = made_up("binary")
    parts = parts[:2]  # both know something, so no bound is active
    slow = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000).fit(parts[:, :, 0].T.numpy(), targets[:, 0].numpy())
    found = fit_blend(TASKS["binary"](1), parts, targets)
    np.testing.assert_allclose(found.weights, slow.coef_[0], atol=1e-5)
    np.testing.assert_allclose(found.bias, slow.intercept_, atol=1e-5)


def test_beliefs_instead_of_labels() -> None:
    """Soft targets are fitted too: with the model's own probabilities nothing has to change."""
    parts, _ = made_up("multiclass")
    found = fit_blend(TASKS["multiclass"](4), parts, parts.mean(dim=0).softmax(dim=1))
    torch.testing.assert_close(found.weights, torch.full((5,), 0.2).double(), atol=1e-8, rtol=0)
    torch.testing.assert_close(found.bias, torch.zeros(4).double(), atol=1e-8, rtol=0)


@pytest.mark.parametrize("task", list(TASKS))
@pytest.mark.parametrize("size", [0.0, 1e-30, 1e30, 1e200])
def test_outputs_of_any_size_give_finite_weights(task: str, size: float) -> None:
    parts, targets = made_up(task)
    found: Blend = fit_blend(TASKS[task](parts.shape[2]), parts * size, targets)
    assert bool(torch.isfinite(found.weights).all()) and bool(torch.isfinite(found.bias).all())
    assert bool((found.weights >= 0).all())


def test_separable_labels_keep_the_weights_small() -> None:
    """Without the ridge they would grow for ever."""
    labels = (torch.arange(40) % 2).double()[:, None]
    found = fit_blend(TASKS["binary"](1), (2 * labels - 1)[None], labels)
    assert 1 < float(found.weights[0]) < 10


def test_one_row() -> None:
    found = fit_blend(TASKS["regression"](1), torch.ones(2, 1, 1), torch.full((1, 1), 5.0))
    assert bool(torch.isfinite(found.weights).all())
