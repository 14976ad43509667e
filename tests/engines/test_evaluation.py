"""Scores against scikit-learn's, and how evaluation chooses the model."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import confusion_matrix

from colonnade.evaluate.chance import class_report
from colonnade.evaluate.metrics import find_metric
from colonnade.fit import fit
from colonnade.methods import VIMADMMJ
from colonnade.tasks import TASKS
from colonnade.tasks.multiclass import Multiclass
from tests.federations import small
from tests.trainers import TINY

RNG = np.random.default_rng(0)


def test_the_class_report_is_sklearns() -> None:
    logits, truth = torch.from_numpy(RNG.normal(size=(200, 4))), torch.from_numpy(RNG.integers(4, size=200))
    report = class_report(Multiclass(4).codes(logits), truth, 4)
    confusion = confusion_matrix(truth, logits.argmax(1), labels=range(4))
    assert report["confusion"] == confusion.tolist()
    np.testing.assert_allclose(report["class_accuracy"], confusion.diagonal() / confusion.sum(1))
    assert report["class_accuracy_std"] == pytest.approx(np.std(report["class_accuracy"]))


@pytest.mark.parametrize("task", list(TASKS))
def test_every_task_learns_something(task: str) -> None:
    federation = small(rows=200, task=task)
    run = fit(federation, VIMADMMJ(), rounds=30, model=TINY)
    metric = find_metric(run.metric)
    worst = run.result["test_interval"][0 if metric.better == "higher" else 1]
    assert metric.sign() * (worst - run.result["baseline_score"]) > 0  # better than a constant guess
    assert ("confusion" in run.result) == (task in ("multiclass", "binary"))
    predicted = run.predict({p.name: p.columns[:7] for p in federation.parties})
    assert len(predicted) == 7
