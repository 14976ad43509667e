"""Stacks are the same whichever way their Newton steps are found; what they are: tests/methods/test_one_message.py."""

from __future__ import annotations

import pytest
import torch

from colonnade.models import stacking
from colonnade.tasks import TASKS
from tests.federations import small


@pytest.mark.parametrize("task", list(TASKS))
@pytest.mark.parametrize("weighted", [False, True], ids=["alike", "weighted"])
def test_many_numbers_are_solved_as_few_are(task: str, weighted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = small(task=task, weighted=weighted)
    scores = torch.cat([party.columns[:, :3] for party in whole.parties], dim=1).double()
    targets = whole.task.expand(whole.labels, torch.float64)
    found = []
    for most in (stacking.DIRECT, 0):
        monkeypatch.setattr(stacking, "DIRECT", most)
        found.append(stacking.fit_stack(whole.task, scores, targets, whole.weights))
    assert scores.shape[1] * targets.shape[1] < 128, "few"
    torch.testing.assert_close(found[0].weight, found[1].weight, rtol=0, atol=1e-9)
    torch.testing.assert_close(found[0].bias, found[1].bias, rtol=0, atol=1e-9)
