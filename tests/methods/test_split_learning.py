"""Split Learning against plain PyTorch, and what its page says of labels and settings."""

from __future__ import annotations

from typing import Any

import pytest

from colonnade.methods import SplitLearning, make_method
from colonnade.models.encoders import ModelSettings
from colonnade.models.optimise import SGD, AdamW
from colonnade.privacy.events import LabelExposure
from tests.methods.plain_split import LINEAR, MLP, assert_same_training, golden, read_from_slopes

SGDS = {"optimiser": SGD(lr=0.2, momentum=0.9), "server_optimiser": SGD(lr=0.3, momentum=0.0, weight_decay=0.01)}
ADAMS = {"optimiser": AdamW(lr=0.02), "server_optimiser": AdamW(lr=0.03)}


@pytest.mark.parametrize("gradient", ["before", "after"])
@pytest.mark.parametrize("model", [LINEAR, MLP], ids=["linear", "mlp"])
@pytest.mark.parametrize("rules", [SGDS, ADAMS], ids=["sgd", "adamw"])
def test_it_is_joint_training_of_one_network(rules: dict[str, Any], model: ModelSettings, gradient: str) -> None:
    assert_same_training(SplitLearning(**rules, gradient=gradient), model, {})


@pytest.mark.parametrize("silent_learn", [True, False])
def test_silent_parties_count_with_their_last_word(silent_learn: bool) -> None:
    schedule = {"participation": 0.5, "silent_learn": silent_learn}
    assert_same_training(SplitLearning(**SGDS), LINEAR, schedule)


@pytest.mark.parametrize("mistake", [{"after": False}, {"steps": 2}], ids=str)
def test_another_method_would_be_noticed(mistake: dict[str, Any]) -> None:
    """The gradient of the other server model, a second step: what the comparison above is there to see."""
    with pytest.raises(AssertionError, match="not close"):
        assert_same_training(SplitLearning(**SGDS, gradient="after"), LINEAR, {}, **mistake)


def test_a_party_that_knows_one_label_per_class_reads_the_others() -> None:
    assert read_from_slopes(SplitLearning()) > 0.95
    assert SplitLearning.exposes is LabelExposure.FULL


def test_the_published_settings() -> None:
    paper = make_method("split_learning", preset="paper:nus_wide")
    assert (paper.optimiser.lr, paper.optimiser.momentum) == (0.5, 0.9)
    assert (paper.server_optimiser.lr, paper.server_optimiser.momentum) == (0.5, 0.0)
    assert paper.gradient == "before"


def test_a_short_run_gives_the_numbers_it_always_gave() -> None:
    assert golden(SplitLearning.paper()) == pytest.approx([0.203696213, -0.071771886, -0.391887372], abs=1e-7)
