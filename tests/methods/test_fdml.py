"""FDML against plain PyTorch, and what its page says of labels, bytes and settings."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from colonnade.errors import ConfigError
from colonnade.fit import fit
from colonnade.methods import FDML, make_method
from colonnade.methods.base import Method
from colonnade.models.encoders import ModelSettings
from colonnade.privacy.events import LabelExposure
from colonnade.schedule import RoundPlan
from tests.federations import small
from tests.mechanisms import Noise
from tests.methods.plain_logits import (
    FEDERATION,
    GENTLE,
    LINEAR,
    MLP,
    RULES,
    Plain,
    assert_same_training,
    plain_of,
)
from tests.trainers import TINY, open_trainer, rounds_of


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


class Delayed:
    """FDML with bounded delay: the others' logits from the very models that they had when they last saw a row.

    No table of logits: every party's model is copied at each of its rounds, and what another party hears of it is
    computed anew from the copy. `delays` are in turns of a party's own: turn t here, model of turn v there, t - v.
    """

    def __init__(self, plain: Plain) -> None:
        self.plain, self.delays = plain, list[int]()
        self.models: dict[str, list[nn.Module]] = {name: [] for name in plain.networks}
        self.seen: dict[str, dict[int, int]] = {name: {} for name in plain.networks}  # row -> turn of its own

    def plan(self, plan: RoundPlan) -> None:
        (name,) = plan.senders
        p, rows = self.plain, plan.rows.tolist()
        self.models[name].append(copy.deepcopy(p.networks[name]))
        now = len(self.models[name])
        self.seen[name] |= dict.fromkeys(rows, now)
        others = torch.stack([self.heard(name, row, now) for row in rows])
        p.optimisers[name].zero_grad()
        own = p.networks[name](p.columns[name][plan.rows])
        F.cross_entropy(others + own, p.federation.labels[plan.rows]).backward()
        p.optimisers[name].step()

    def heard(self, name: str, row: int, now: int) -> torch.Tensor:
        """The sum of the others' logits of one row."""
        total = torch.zeros(3).double()
        for other in self.models.keys() - {name}:
            if row in self.seen[other]:
                plan = self.seen[other][row]
                self.delays.append(now - plan)
                total += self.models[other][plan - 1](self.plain.columns[other][row][None])[0].detach()
        return total


def delayed(batch: int, rounds: int = 28, **schedule: Any) -> int:
    """Train both ways, compare every logit, and give the largest delay."""
    method = FDML(optimiser=RULES["sgd"])
    turns = {"batch": batch, "order": "asynchronous", "speeds": {"party_0": 4.0, "party_2": 0.5}, **schedule}
    trainer = open_trainer(FEDERATION, method, model=LINEAR, rounds=rounds, evaluate_every=0, schedule=turns)
    reference, rows = Delayed(plain_of(trainer, method)), FEDERATION.split.test
    for number in range(1, rounds + 1):
        reference.plan(trainer.coordinator.schedule.plan(number))
    ours = trainer.train().logits({p.name: p.columns[rows] for p in FEDERATION.parties})
    torch.testing.assert_close(ours.double(), reference.plain.logits(rows), rtol=0, atol=1e-10)
    return max(reference.delays)


@pytest.mark.parametrize("order", ["own", "shared"])
@pytest.mark.parametrize("staleness", [1, 3])
def test_asynchronous_turns_with_a_bound_are_the_published_bounded_delay(staleness: int, order: str) -> None:
    """All rows in a round: nobody hears logits of more than `staleness` turns ago, and some hear such old ones."""
    assert delayed(36, staleness=staleness, rows=order) == staleness


@pytest.mark.parametrize(("order", "most"), [("own", 2 * (3 - 1)), ("shared", 3 - 1)])
def test_with_batches_a_row_s_last_visit_adds_to_the_delay(order: str, most: int) -> None:
    """Three batches an epoch: two visits to a row lie at most 5 turns apart, or in one order for all exactly 3."""
    largest = delayed(12, staleness=2, rows=order, shuffle="once" if order == "shared" else "epoch")
    assert 2 < largest <= 2 + most


def test_without_a_bound_the_delay_grows() -> None:
    assert delayed(36) > 5


@pytest.mark.parametrize("mistake", [{"a": 0.5}, {"fresh": False}, {"steps": 2}], ids=str)
def test_another_method_would_be_noticed(mistake: dict[str, Any]) -> None:
    method = FDML(optimiser=GENTLE, local_steps=3)
    with pytest.raises(AssertionError, match="not close"):
        assert_same_training(method, LINEAR, {}, **{"fresh": True, "steps": 3, **mistake})


def test_noise_on_a_party_s_own_upload_does_not_come_back_to_it_in_fresh_steps() -> None:
    """One party: with nobody else to hear, fresh steps do not see the noise at all, received ones do."""

    def logits(method: Method, noise: Noise | None) -> torch.Tensor:
        options = {"mechanism": noise, "rounds": 3, "evaluate_every": 0}
        held = open_trainer(small(widths=(5,)), method, **options).train().model.flat()
        return torch.cat([v.flatten() for k, v in sorted(held.items()) if "parameter" in k])

    for gradient, same in (("fresh", True), ("received", False)):
        method = FDML(gradient=gradient)
        assert torch.allclose(logits(method, Noise(0.5)), logits(method, None), rtol=0, atol=1e-9) == same


def test_labels_go_down_once_one_byte_per_row() -> None:
    trainer = open_trainer(small(), FDML(), model=TINY, rounds=3, evaluate_every=0)
    down = [one_round.down.common for one_round in rounds_of(trainer)]
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
    run = fit(small(task="regression"), FDML(combine=combine), rounds=150, evaluate_every=10)
    assert run.result["validation_score"] > 0.8
