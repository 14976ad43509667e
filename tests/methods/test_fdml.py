"""FDML against plain PyTorch, and what its page says of labels, bytes and settings."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from colonnade.errors import ConfigError
from colonnade.federation import Task
from colonnade.fit import fit
from colonnade.methods import FDML, make_method
from colonnade.methods.base import Method
from colonnade.models.encoders import ModelSettings
from colonnade.privacy.events import LabelExposure
from tests.exchanges import TINY, exchanges, open_trainer
from tests.federations import small
from tests.mechanisms import Noise
from tests.methods.plain_logits import GENTLE, LINEAR, MLP, RULES, assert_same_training


@pytest.mark.parametrize(("combine", "a"), [("sum", 1.0), ("mean", 0.25)])
@pytest.mark.parametrize("model", [LINEAR, MLP], ids=["linear", "mlp"])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("gradient", ["fresh", "received"])
def test_it_is_joint_training_of_all_parties(
    gradient: str, rule: str, model: ModelSettings, combine: str, a: float
) -> None:
    """One step from the sum as it was heard: both ways to take the gradient are the published one."""
    method = FDML(optimiser=RULES[rule], gradient=gradient, combine=combine)
    assert_same_training(method, model, {}, a=a, fresh=False)


@pytest.mark.parametrize("gradient", ["fresh", "received"])
@pytest.mark.parametrize(
    "schedule", [{}, {"participation": 0.5}, {"participation": 0.5, "silent_learn": False}], ids=str
)
def test_several_steps_and_silent_parties(schedule: dict[str, Any], gradient: str) -> None:
    method = FDML(optimiser=GENTLE, gradient=gradient, local_steps=3)
    assert_same_training(method, LINEAR, schedule, fresh=gradient == "fresh", steps=3)


@pytest.mark.parametrize("mistake", [{"a": 0.5}, {"fresh": False}, {"steps": 2}], ids=str)
def test_another_method_would_be_noticed(mistake: dict[str, Any]) -> None:
    method = FDML(optimiser=GENTLE, local_steps=3)
    with pytest.raises(AssertionError, match="not close"):
        assert_same_training(method, LINEAR, {}, **{"fresh": True, "steps": 3, **mistake})


def test_noise_on_a_party_s_own_upload_does_not_come_back_to_it_in_fresh_steps() -> None:
    """One party: with nobody else to hear, fresh steps do not see the noise at all, received ones do."""

    def logits(method: Method, noise: Noise | None) -> torch.Tensor:
        options = {"mechanism": noise, "rounds": 3, "evaluate_every": 0}
        held = open_trainer(small(widths=(5,)), method, **options).train()._flat()
        return torch.cat([v.flatten() for k, v in sorted(held.items()) if "parameter" in k])

    for gradient, same in (("fresh", True), ("received", False)):
        method = FDML(gradient=gradient)
        assert torch.allclose(logits(method, Noise(0.5)), logits(method, None), rtol=0, atol=1e-9) == same


def test_labels_go_down_once_one_byte_per_row() -> None:
    trainer = open_trainer(small(), FDML(), model=TINY, rounds=3, evaluate_every=0)
    down = [exchange.down.common for exchange in exchanges(trainer)]
    assert FDML.exposes is LabelExposure.FULL
    assert [sorted(common) for common in down] == [["targets"], ["total"], ["total"], ["total"], []]
    assert down[0]["targets"].dtype == torch.uint8
    assert torch.equal(down[0]["targets"].long(), small().labels[small().split.train])


def test_the_published_settings() -> None:
    paper = make_method("fdml", preset="paper:nus_wide")
    assert (paper.optimiser.lr, paper.optimiser.momentum, paper.optimiser.weight_decay) == (0.3, 0.9, 1e-3)
    assert (paper.combine, paper.gradient, paper.local_steps) == ("sum", "received", 1)
    with pytest.raises(ConfigError, match="no published settings for 'imagenet'"):
        make_method("fdml", preset="paper:imagenet")


@pytest.mark.parametrize("combine", ["sum", "mean"])
def test_numbers_are_predicted_on_their_own_scale(combine: str) -> None:
    """Of classes only the largest logit counts; a factor forgotten before the sum would show here."""
    run = fit(small(task=Task.REGRESSION), FDML(combine=combine), rounds=150, evaluate_every=10)
    assert run.result["validation_score"] > 0.8
