"""VAFL against plain PyTorch, its weights, and turns in which only some speak."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from colonnade import fit
from colonnade.errors import ConfigError
from colonnade.methods import VAFL, make_method
from colonnade.models.encoders import ModelSettings
from colonnade.models.optimise import SGD, AdamW
from colonnade.privacy.accounting import exact_epsilon
from colonnade.privacy.events import LabelExposure
from colonnade.privacy.mechanism import Unchanged
from colonnade.privacy.promise import Circumstances
from colonnade.privacy.statement import Statement
from colonnade.wire.messages import Purpose
from tests.federations import small
from tests.methods.plain_split import LINEAR, MLP, assert_same_training, golden, read_from_slopes
from tests.trainers import open_trainer

SGDS = {"optimiser": SGD(lr=0.5, momentum=0.9), "server_optimiser": SGD(lr=0.3, momentum=0.0, weight_decay=0.01)}
ADAMS = {"optimiser": AdamW(lr=0.02), "server_optimiser": AdamW(lr=0.03)}


@pytest.mark.parametrize("gradient", ["before", "after"])
@pytest.mark.parametrize("model", [LINEAR, MLP], ids=["linear", "mlp"])
@pytest.mark.parametrize("rules", [SGDS, ADAMS], ids=["sgd", "adamw"])
def test_synchronous_it_is_joint_training_of_one_network(
    rules: dict[str, Any], model: ModelSettings, gradient: str
) -> None:
    assert_same_training(VAFL(**rules, weight_lr=0.2, gradient=gradient), model, {}, weight_lr=0.2)


@pytest.mark.parametrize("share", [0.25, 0.5])
def test_when_some_upload_only_they_learn_with_the_others_last_uploads(share: float) -> None:
    """One of four parties per turn is the published asynchronous way."""
    schedule = {"participation": share, "silent_learn": False}
    assert_same_training(VAFL(**SGDS, weight_lr=0.2), LINEAR, schedule, weight_lr=0.2)


def test_parties_that_uploaded_are_weighted_anew_and_others_are_not() -> None:
    schedule = {"batch": 54, "participation": 0.25, "silent_learn": False}  # one batch: all rows are heard at once
    trainer = open_trainer(small(), VAFL(), rounds=1, evaluate_every=0, schedule=schedule)
    speaker = trainer.coordinator.schedule.plan(1).senders[0]
    trainer.train()
    weights = dict(zip(small().names, trainer.coordinator.state["weight.0"].tolist(), strict=True))
    assert weights.pop(speaker) != 0.25
    assert set(weights.values()) == {0.25}


def test_a_weight_that_does_not_learn_stays() -> None:
    trainer = open_trainer(small(), VAFL(weight_lr=0), rounds=3, evaluate_every=0)
    trainer.train()
    assert torch.equal(trainer.coordinator.state["weight.0"], torch.full((4,), 0.25).double())


def test_embeddings_of_two_widths_cannot_be_added() -> None:
    def encoder(party: str, shape: tuple[int, ...]) -> nn.Module:
        return nn.Linear(shape[0], 3 if party == "party_0" else 4)

    with pytest.raises(ConfigError, match=r"equally wide; got widths \[3, 4\]"):
        open_trainer(small(), VAFL(), encoders=encoder)


def test_a_party_that_knows_one_label_per_class_reads_the_others() -> None:
    assert read_from_slopes(VAFL()) > 0.95
    assert VAFL.exposes is LabelExposure.FULL


def test_its_own_noise_is_at_the_gate_and_counted() -> None:
    """Bounded embeddings with noise: a Gaussian mechanism whose norm is that of all numbers at the bound."""
    run = fit(small((5,) * 3), VAFL(noise=40.0), rounds=3, schedule={"batch": 8}, model={"embedding": 4})
    mine = [r for r in run.ledger if r.owner == "party_0" and r.purpose is Purpose.TRAIN]
    assert {r.mechanism for r in mine} == {"bounded gaussian"}
    mu = math.sqrt(sum(r.rows * 4 / 40.0**2 for r in mine))
    told = Statement.of(run.ledger, run.privacy, Circumstances(run.label_exposure, uploaded=True))
    assert told.epsilon == pytest.approx(exact_epsilon(mu, 1e-5)) and math.isfinite(told.epsilon)
    uploaded = " ".join(sentence for _, answers in told.answers() for sentence in answers)
    assert f"epsilon {told.epsilon:.3f} (exact accountant" in uploaded and "every number at its bound" in uploaded
    assert "Nobody's columns" not in uploaded


def test_noise_on_noise_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"vafl brings noise of its own .bounded gaussian.; leave the mechanism out"):
        fit(small((5,) * 3), VAFL(noise=1.0), mechanism=Unchanged(), rounds=1)
    with pytest.raises(ConfigError, match=r"brings noise of its own .bounded gaussian."):
        fit(small((5,) * 3), VAFL(noise=1.0), privacy={"mechanism": "gaussian", "clip": 1, "sigma": 1}, rounds=1)


def test_the_published_settings() -> None:
    paper = make_method("vafl", preset="paper:nus_wide")
    assert (paper.optimiser.lr, paper.server_optimiser.lr, paper.weight_lr) == (0.3, 0.3, 0.01)


def test_a_short_run_gives_the_numbers_it_always_gave() -> None:
    assert golden(VAFL.paper()) == pytest.approx([-0.056008596, -0.121544691, -0.143293709], abs=1e-7)
