"""CELU-VFL against plain PyTorch: caches as lists, cosines row by row, both sides."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from colonnade.methods import CELUVFL, FedBCD, SplitLearning, make_method
from colonnade.methods.celu_vfl import following, remember, trusted
from colonnade.models.encoders import ModelSettings
from colonnade.models.optimise import SGD
from colonnade.privacy.events import LabelExposure
from tests.federations import small
from tests.methods.plain_local import ADAMS, SGDS, Cached, assert_same, networks, opened
from tests.methods.plain_split import LINEAR, MLP, read_from_slopes
from tests.trainers import open_trainer

SILENT = {"participation": 0.5, "silent_learn": False}


@pytest.mark.parametrize("schedule", [{}, SILENT, {"batch": 10}], ids=["all", "silent", "short batches"])
@pytest.mark.parametrize("model", [LINEAR, MLP], ids=["linear", "mlp"])
@pytest.mark.parametrize("rules", [SGDS, ADAMS], ids=["sgd", "adamw"])
def test_exact_and_cached_steps(rules: dict[str, Any], model: ModelSettings, schedule: dict[str, Any]) -> None:
    method = CELUVFL(**rules, local_steps=4, cache=3, uses=3, angle=30.0)
    trainer = opened(method, model, schedule)
    plain = networks(trainer, method)
    reference = Cached(plain, method)
    assert_same(trainer, plain, reference.round)
    cut = sum(w == 0 for w in reference.weights)
    assert 0 < cut < len(reference.weights)  # some rows were too stale, some were not
    assert any(0.87 < w < 0.999 for w in reference.weights)


def test_with_one_step_it_is_split_learning() -> None:
    runs = [
        open_trainer(small(), method, rounds=4, evaluate_every=0).train() for method in (
            CELUVFL(**SGDS, local_steps=1), SplitLearning(**SGDS)
        )
    ]  # fmt: skip
    assert runs[0].models.keys() == runs[1].models.keys()
    for party, model in runs[0].models.items():
        assert all(torch.equal(v, runs[1].models[party][k]) for k, v in model.items())


def test_the_cosine_counts_up_to_the_angle() -> None:
    one = torch.tensor([[1.0, 0.0]] * 4)
    other = torch.tensor([[3.0, 0.0], [1.0, 1.7], [1.0, 1.75], [-1.0, 0.0]])  # 0, 59.5, 60.3 and 180 degrees
    weights = trusted(one, other, 60.0)[:, 0]
    assert weights[0] == pytest.approx(1.0)
    assert weights[1] == pytest.approx((1 + 1.7**2) ** -0.5)
    assert weights[2] == weights[3] == 0


def test_the_cache_goes_round_and_forgets() -> None:
    home = {"last": torch.zeros(1, dtype=torch.int64)}
    for plan in (1, 2, 3):
        remember(home, plan, 3, {"x": torch.zeros(1, 5, 2)}, [1])
    seen = [following(home, 3, 3, [True])[0] for _ in range(8)]
    slots = [None if e is None else int(e.split(".")[1]) for e in seen]
    assert slots == [1, 2, 0, 1, 2, 0, None, None]  # two uses are left for each; the last one put is last in the circle
    remember(home, 4, 3, {"x": torch.zeros(1, 4, 2)}, [1])  # shorter, in the slot of turn 1
    assert [following(home, 3, 3, [True])[0] for _ in range(3)] == ["cache.1.4", "cache.1.4", None]
    assert not home["cache.1.5.number"].any()


def test_cached_steps_are_not_fedbcd_s() -> None:
    """So the weights and the cache matter."""
    rules = {"optimiser": SGD(lr=0.1), "server_optimiser": SGD(lr=0.1, momentum=0.0)}
    runs = [
        open_trainer(small(), method, rounds=4, evaluate_every=0, schedule={"batch": 20}).train().fingerprint()
        for method in (CELUVFL(**rules, local_steps=3), FedBCD(**rules, local_steps=3))
    ]
    assert runs[0] != runs[1]


def test_every_setting_matters_once_the_cache_is_full() -> None:
    """The contract trains three rounds, in which nothing is ever pushed out of the cache."""
    made = {
        open_trainer(small(), method, rounds=9, evaluate_every=0, schedule={"batch": 20}).train().fingerprint()
        for method in (CELUVFL(), CELUVFL(cache=6), CELUVFL(uses=6), CELUVFL(local_steps=5), CELUVFL(angle=1.0))
    }
    assert len(made) == 5


def test_a_party_that_knows_one_label_per_class_reads_the_others() -> None:
    assert read_from_slopes(CELUVFL()) > 0.95
    assert CELUVFL.exposes is LabelExposure.FULL


def test_the_published_settings() -> None:
    paper = make_method("celu_vfl", preset="paper")
    assert (paper.cache, paper.uses, paper.angle) == (5, 5, 60.0)
