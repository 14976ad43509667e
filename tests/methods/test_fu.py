"""Fu et al. against plain PyTorch and against FDML, and how its gradient gives the labels away."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from colonnade.methods import FDML, Fu, make_method
from colonnade.models.encoders import ModelSettings
from colonnade.privacy.events import LabelExposure
from colonnade.tasks import TASKS
from tests.federations import small
from tests.methods.plain_logits import GENTLE, LINEAR, MLP, RULES, assert_same_training
from tests.trainers import TINY, open_trainer, rounds_of


@pytest.mark.parametrize(("combine", "a"), [("sum", 1.0), ("mean", 0.25)])
@pytest.mark.parametrize("model", [LINEAR, MLP], ids=["linear", "mlp"])
@pytest.mark.parametrize("rule", RULES)
def test_it_is_joint_training_of_all_parties(rule: str, model: ModelSettings, combine: str, a: float) -> None:
    assert_same_training(Fu(optimiser=RULES[rule], combine=combine), model, {}, a=a)


@pytest.mark.parametrize(
    "schedule", [{}, {"participation": 0.5}, {"participation": 0.5, "silent_learn": False}], ids=str
)
def test_several_steps_use_the_received_gradient_again(schedule: dict[str, Any]) -> None:
    assert_same_training(Fu(optimiser=GENTLE, local_steps=3), LINEAR, schedule, steps=3)


@pytest.mark.parametrize("mistake", [{"a": 0.5}, {"fresh": True}, {"steps": 2}], ids=str)
def test_another_method_would_be_noticed(mistake: dict[str, Any]) -> None:
    with pytest.raises(AssertionError, match="not close"):
        assert_same_training(Fu(optimiser=GENTLE, local_steps=3), LINEAR, {}, **{"steps": 3, **mistake})


@pytest.mark.parametrize("task", list(TASKS))
def test_it_takes_the_steps_of_fdml_for_every_task(task: str) -> None:
    """Where the gradient is computed makes no difference to the models; numbers to predict travel in float32."""
    atol = 1e-9 if task in ("multiclass", "binary", "multilabel") else 1e-6
    one, other = (
        open_trainer(small(task=task), method, rounds=5, evaluate_every=0).train().model.flat()
        for method in (Fu(combine="mean"), FDML(combine="mean", gradient="received"))
    )
    assert one.keys() == other.keys()
    for name, value in one.items():
        if "head" in name or "parameter" in name:
            torch.testing.assert_close(value, other[name], rtol=0, atol=atol)


def test_the_one_negative_entry_of_a_row_is_its_label() -> None:
    trainer = open_trainer(small(), Fu(), model=TINY, rounds=1, evaluate_every=0)
    first, second = (one_round for _, one_round in zip(range(2), rounds_of(trainer), strict=False))
    gradient, rows = second.down.common["gradient"], first.request.queries[0].rows
    assert torch.equal((gradient < 0).sum(dim=1), torch.ones(len(rows), dtype=torch.int64))
    assert torch.equal(gradient.argmin(dim=1), small().labels[rows])
    assert Fu.exposes is LabelExposure.FULL


def test_the_published_settings() -> None:
    paper = make_method("fu", preset="paper:cifar10")
    assert (paper.optimiser.lr, paper.optimiser.momentum, paper.combine, paper.local_steps) == (0.008, 0.9, "sum", 1)
