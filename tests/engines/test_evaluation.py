"""Scores against scikit-learn's, and how evaluation chooses the model."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, confusion_matrix, r2_score

from colonnade.evaluate.metrics import accuracy, class_report, decide, probabilities, score
from colonnade.federation import Task
from colonnade.fit import fit
from colonnade.methods import VIMADMMJ
from tests.exchanges import TINY
from tests.federations import small

RNG = np.random.default_rng(0)


def test_accuracy_is_sklearns() -> None:
    logits, truth = torch.from_numpy(RNG.normal(size=(200, 5))), torch.from_numpy(RNG.integers(5, size=200))
    assert score(Task.MULTICLASS, logits, truth) == pytest.approx(accuracy_score(truth, logits.argmax(1)))


@pytest.mark.parametrize(("task", "width"), [(Task.BINARY, 1), (Task.MULTILABEL, 4)])
def test_accuracy_per_label(task: Task, width: int) -> None:
    logits, truth = (
        torch.from_numpy(RNG.normal(size=(200, width))),
        torch.from_numpy(RNG.integers(2, size=(200, width))),
    )
    expected = np.mean([accuracy_score(truth[:, k], logits[:, k] > 0) for k in range(width)])
    assert accuracy(task, logits, truth.double()) == pytest.approx(expected)


def test_r2_over_all_targets() -> None:
    truth = torch.from_numpy(RNG.normal(size=(200, 3)))
    guess = truth + 0.3 * torch.from_numpy(RNG.normal(size=(200, 3)))
    expected = r2_score(truth, guess, multioutput="variance_weighted")
    assert score(Task.REGRESSION, guess, truth) == pytest.approx(expected)
    assert score(Task.REGRESSION, truth, truth) == 1.0


def test_the_class_report_is_sklearns() -> None:
    logits, truth = torch.from_numpy(RNG.normal(size=(200, 4))), torch.from_numpy(RNG.integers(4, size=200))
    report = class_report(decide(Task.MULTICLASS, logits), truth, 4)
    confusion = confusion_matrix(truth, logits.argmax(1), labels=range(4))
    assert report["confusion"] == confusion.tolist()
    np.testing.assert_allclose(report["class_accuracy"], confusion.diagonal() / confusion.sum(1))
    assert report["class_accuracy_std"] == pytest.approx(np.std(report["class_accuracy"]))


def test_decisions_and_probabilities() -> None:
    logits = torch.tensor([[2.0, -1.0], [-3.0, 0.5]])
    assert decide(Task.MULTICLASS, logits).tolist() == [0, 1]
    assert decide(Task.MULTILABEL, logits).tolist() == [[1, 0], [0, 1]]
    assert torch.equal(decide(Task.REGRESSION, logits), logits)
    torch.testing.assert_close(probabilities(Task.MULTICLASS, logits).sum(1), torch.ones(2))
    torch.testing.assert_close(probabilities(Task.BINARY, logits), torch.sigmoid(logits))


@pytest.mark.parametrize("task", Task)
def test_every_task_learns_something(task: Task) -> None:
    federation = small(rows=200, task=task)
    run = fit(federation, VIMADMMJ(), rounds=30, model=TINY)
    chance = {Task.MULTICLASS: 0.4, Task.BINARY: 0.6, Task.MULTILABEL: 0.6, Task.REGRESSION: 0.2}[task]
    assert run.score is not None
    assert run.score > chance
    assert ("confusion" in run.result) == (task in (Task.MULTICLASS, Task.BINARY))
    predicted = run.predict({p.name: p.columns[:7] for p in federation.parties})
    assert len(predicted) == 7
