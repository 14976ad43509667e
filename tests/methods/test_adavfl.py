"""AdaVFL: the steps against plain PyTorch, the choice of their number against trying all of them."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from colonnade.errors import ConfigError
from colonnade.methods import AdaVFL, make_method
from colonnade.privacy.events import LabelExposure
from colonnade.schedule import RoundPlan
from tests.federations import small
from tests.methods.plain_logits import LINEAR, RULES, assert_same_training
from tests.trainers import TINY, open_trainer, rounds_of

PARTIES = [f"party_{k}" for k in range(4)]
SPEEDS = {"party_0": 2.0, "party_1": 1.5, "party_2": 1.0, "party_3": 0.5}


def predicted(method: AdaVFL, steps: tuple[int, ...], seconds: list[float]) -> float:
    """T(Q) R(Q), as the page prints it."""
    round_time = method.overhead + max(q * s for q, s in zip(steps, seconds, strict=True))
    return round_time * sum((1 + method.drift * (q - 1) ** 2) / q for q in steps) / len(steps)


@settings(max_examples=60, deadline=None)
@given(
    seconds=st.lists(st.floats(0.01, 1.0), min_size=1, max_size=4),
    overhead=st.floats(0.0, 5.0),
    drift=st.floats(0.0, 0.5),
)
def test_no_other_step_counts_are_predicted_to_be_faster(seconds: list[float], overhead: float, drift: float) -> None:
    method = AdaVFL(local_steps=6, overhead=overhead, drift=drift)
    chosen = tuple(method.choose_steps(torch.tensor(seconds, dtype=torch.float64)).tolist())
    best = min(predicted(method, steps, seconds) for steps in product(range(1, 7), repeat=len(seconds)))
    assert predicted(method, chosen, seconds) <= best * (1 + 1e-9)


def test_slow_parties_take_fewer_steps_and_nobody_waits_for_nothing() -> None:
    """Numbers of the page's example, by hand: 7 is the best common number, and 10 the most that ever pays."""
    method = AdaVFL(local_steps=20)
    even = method.choose_steps(torch.ones(3, dtype=torch.float64))
    assert even.tolist() == [7, 7, 7]
    uneven = method.choose_steps(torch.tensor([1.0, 2.0, 8.0], dtype=torch.float64)).tolist()
    assert uneven == sorted(uneven, reverse=True)
    assert uneven[0] == 10 and uneven[2] < 7


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("schedule", [{}, {"participation": 0.5}], ids=str)
def test_its_steps_are_plain_steps_beside_frozen_others(schedule: dict[str, Any], rule: str) -> None:
    """With a choice in every round from the first; to choose later, after rounds of `local_steps`, is another run."""
    method = AdaVFL(optimiser=RULES[rule], local_steps=4, overhead=0.5, drift=0.0)
    chosen = method.choose_steps(1 / torch.tensor(list(SPEEDS.values()), dtype=torch.float64)).tolist()
    assert chosen == [4, 3, 2, 1]
    always = method.model_copy(update={"reestimate_every": 1})
    steps, schedule = dict(zip(PARTIES, chosen, strict=True)), {**schedule, "speeds": SPEEDS}
    assert_same_training(always, LINEAR, schedule, fresh=True, steps=steps)
    with pytest.raises(AssertionError, match="not close"):
        assert_same_training(method, LINEAR, schedule, fresh=True, steps=steps)


def test_seconds_are_seen_before_they_are_used_and_averaged() -> None:
    """By hand: the mean of three rounds' measurements, then the choice, then the next three."""
    method = AdaVFL(jitter=0.5, reestimate_every=3)
    schedule = {"speeds": SPEEDS}
    trainer = open_trainer(small(), method, model=TINY, rounds=7, evaluate_every=0, seed=4, schedule=schedule)
    sent = [dict(e.request.steps) for e in rounds_of(trainer)][1:8]  # round n + 1 says with what to learn from n
    seen = torch.tensor([[method.measured(4, p, n) / SPEEDS[p] for p in PARTIES] for n in range(1, 8)]).double()
    first, second = (method.choose_steps(seen[a : a + 3].mean(dim=0)).tolist() for a in (0, 3))
    steps = [[uploaded.get(party, 10) for party in PARTIES] for uploaded in sent]
    assert steps == [[10] * 4] * 2 + [first] * 3 + [second] * 2
    assert first != second
    history = {entry["round"]: entry.get("steps", {}) for entry in trainer.coordinator.history}
    assert [history[number] for number in range(1, 8)] == sent  # what a run's clock reads


def test_without_error_a_step_takes_what_the_speed_says() -> None:
    plan = RoundPlan(3, torch.arange(2), ("a", "b"), ("a", "b", "c"), (), (("b", 2.0), ("c", 0.25)))
    method = AdaVFL()
    chosen = method.choose_steps(torch.tensor([1.0, 0.5, 4.0], dtype=torch.float64)).tolist()
    assert list(method.steps_of(plan, 1).values()) == chosen
    assert method.steps_of(replace(plan, number=2), 1) == {}
    assert AdaVFL(jitter=0.1).measured(1, "a", 5) != AdaVFL(jitter=0.1).measured(1, "a", 6)


def test_a_party_that_learns_alone_waits_for_nobody() -> None:
    """Its number is the best for a round of its own: a slow party then takes as many as anyone, if talking is dear."""
    alone = RoundPlan(3, torch.arange(2), ("c",), ("c",), (), (("c", 0.25),))
    method = AdaVFL(overhead=1000.0)
    assert method.steps_of(alone, 1) == {"c": 10}


def test_speeds_are_the_schedule_s_to_say() -> None:
    with pytest.raises(ConfigError, match=r"unknown key 'speeds' in \[method adavfl\]"):
        make_method("adavfl", {"speeds": 10.0})


def test_labels_go_down_once() -> None:
    trainer = open_trainer(small(), AdaVFL(), model=TINY, rounds=2, evaluate_every=0)
    down = [sorted(one_round.down.common) for one_round in rounds_of(trainer)]
    assert down == [["targets"], ["total"], ["total"], []]
    assert AdaVFL.exposes is LabelExposure.FULL
