"""FedBCD against plain PyTorch: Q steps along one gradient, in parallel or in turn, with or without a pull back."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from colonnade.errors import ConfigError
from colonnade.methods import FedBCD, SplitLearning, make_method
from colonnade.models.optimise import SGD, AdamW
from colonnade.privacy.events import LabelExposure
from tests.federations import small
from tests.methods.plain_split import LINEAR, MLP, assert_same_training, golden, read_from_slopes
from tests.trainers import open_trainer, party_tensors, rounds_of

SEQUENTIAL = {"order": "sequential"}

SGDS = {"optimiser": SGD(lr=0.1, momentum=0.9), "server_optimiser": SGD(lr=0.3, momentum=0.0, weight_decay=0.01)}
ADAMS = {"optimiser": AdamW(lr=0.01), "server_optimiser": AdamW(lr=0.03)}


@pytest.mark.parametrize("order", ["together", "sequential"])
@pytest.mark.parametrize("proximal", [0.0, 0.1])
@pytest.mark.parametrize("rules", [SGDS, ADAMS], ids=["sgd", "adamw"])
def test_q_steps_along_one_gradient(rules: dict[str, Any], proximal: float, order: str) -> None:
    method = FedBCD(**rules, local_steps=3, proximal=proximal)
    assert_same_training(method, LINEAR, {"order": order}, steps=3, proximal=proximal)


@pytest.mark.parametrize("gradient", ["before", "after"])
def test_with_an_mlp_and_silent_parties(gradient: str) -> None:
    schedule = {"participation": 0.5, "silent_learn": False}
    assert_same_training(FedBCD(**SGDS, local_steps=2, gradient=gradient), MLP, schedule, steps=2)


@pytest.mark.parametrize("engine", ["loop", "stacked"])
def test_in_sequence_one_party_moves_per_round_and_all_have_their_turn(engine: str) -> None:
    trainer = open_trainer(small(), FedBCD(), engine=engine, rounds=4, evaluate_every=0, schedule=SEQUENTIAL)
    before, moved, spoke, rows = party_tensors(trainer), [], [], []
    for one_round in rounds_of(trainer):
        spoke += [ask.senders for ask in one_round.request.queries]
        rows += [ask.rows.tolist() for ask in one_round.request.queries]
        after = party_tensors(trainer)
        moved.append([p for p in before if any(not torch.equal(v, after[p][k]) for k, v in before[p].items())])
        before = after
    assert moved[1:5] == [["party_0"], ["party_1"], ["party_2"], ["party_3"]]
    assert spoke == [("party_0",), ("party_1",), ("party_2",), ("party_3",)]
    assert rows == [rows[0]] * 4  # they follow each other on one batch


def test_who_learns_when_is_the_schedule_s_to_say() -> None:
    with pytest.raises(ConfigError, match=r"unknown key 'order' in \[method fedbcd\]"):
        make_method("fedbcd", {"order": "sequential"})


def test_with_one_step_it_is_split_learning() -> None:
    runs = [
        open_trainer(small(), method, rounds=4, evaluate_every=0).train().fingerprint()
        for method in (FedBCD(**SGDS, local_steps=1), SplitLearning(**SGDS))
    ]
    assert runs[0] == runs[1]


def test_a_party_that_knows_one_label_per_class_reads_the_others() -> None:
    assert read_from_slopes(FedBCD()) > 0.95
    assert FedBCD.exposes is LabelExposure.FULL


def test_the_published_settings() -> None:
    paper = make_method("fedbcd", preset="paper:cifar10")
    assert (paper.optimiser.lr, paper.server_optimiser.lr, paper.server_optimiser.momentum) == (0.005, 0.005, 0.0)


def test_a_short_run_gives_the_numbers_it_always_gave() -> None:
    assert golden(FedBCD.paper()) == pytest.approx([0.0962833, -0.090583792, -0.342139383], abs=1e-7)
