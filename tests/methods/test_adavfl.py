"""AdaVFL: the steps against plain PyTorch, the choice of their number against trying all of them."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from colonnade.errors import ConfigError
from colonnade.methods import AdaVFL
from colonnade.privacy.events import LabelExposure
from tests.exchanges import TINY, exchanges, open_trainer
from tests.federations import small
from tests.methods.plain_logits import LINEAR, RULES, assert_same_training

PARTIES = [f"party_{k}" for k in range(4)]


def predicted(method: AdaVFL, steps: tuple[int, ...], seconds: list[float]) -> float:
    """T(Q) R(Q), as the page prints it."""
    round_time = method.latency + max(q * s for q, s in zip(steps, seconds, strict=True))
    return round_time * sum((1 + method.drift * (q - 1) ** 2) / q for q in steps) / len(steps)


@settings(max_examples=60, deadline=None)
@given(
    seconds=st.lists(st.floats(0.01, 1.0), min_size=1, max_size=4),
    latency=st.floats(0.0, 5.0),
    drift=st.floats(0.0, 0.5),
)
def test_no_other_step_counts_are_predicted_to_be_faster(seconds: list[float], latency: float, drift: float) -> None:
    method = AdaVFL(local_steps=6, latency=latency, drift=drift)
    chosen = tuple(method.choose_steps(torch.tensor(seconds, dtype=torch.float64)).tolist())
    best = min(predicted(method, steps, seconds) for steps in product(range(1, 7), repeat=len(seconds)))
    assert predicted(method, chosen, seconds) <= best * (1 + 1e-9)


def test_slow_parties_take_fewer_steps_and_nobody_waits_for_nothing() -> None:
    """Numbers of the page's example, by hand: 7 is the best common number, and 10 the most that ever pays."""
    method = AdaVFL(local_steps=20)
    even = method.choose_steps(torch.full((3,), 0.1, dtype=torch.float64))
    assert even.tolist() == [7, 7, 7]
    uneven = method.choose_steps(torch.tensor([0.1, 0.2, 0.8], dtype=torch.float64)).tolist()
    assert uneven == sorted(uneven, reverse=True)
    assert uneven[0] == 10 and uneven[2] < 7


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("schedule", [{}, {"participation": 0.5}], ids=str)
def test_its_steps_are_plain_steps_beside_frozen_others(schedule: dict[str, float], rule: str) -> None:
    """With a choice in every round from the first; to choose later, after rounds of `local_steps`, is another run."""
    method = AdaVFL(optimiser=RULES[rule], local_steps=4, speeds=(20.0, 15.0, 10.0, 5.0), latency=0.05, drift=0.0)
    chosen = method.choose_steps(1 / torch.tensor(method.speeds, dtype=torch.float64)).tolist()
    assert chosen == [4, 3, 2, 1]
    always = method.model_copy(update={"reestimate_every": 1})
    steps = dict(zip(PARTIES, chosen, strict=True))
    assert_same_training(always, LINEAR, schedule, fresh=True, steps=steps)
    with pytest.raises(AssertionError, match="not close"):
        assert_same_training(method, LINEAR, schedule, fresh=True, steps=steps)


def test_seconds_are_seen_before_they_are_used_and_averaged() -> None:
    """By hand: sums of three rounds' draws, then the choice, then a new sum; the clock never runs back."""
    method = AdaVFL(jitter=0.5, reestimate_every=3, speeds=(5.0, 10.0, 20.0, 40.0))
    trainer = open_trainer(small(), method, model=TINY, rounds=7, evaluate_every=0)
    sent = [e.down.common["steps"].tolist() for e in exchanges(trainer) if "steps" in e.down.common]
    state = trainer.coordinator.state
    drawn = torch.stack([method.timed(state, number) for number in range(1, 8)])
    first, second = (method.choose_steps(drawn[a : a + 3].mean(dim=0)).tolist() for a in (0, 3))
    assert sent == [[10] * 4] * 2 + [first] * 3 + [second] * 2
    assert first != second
    used = torch.tensor(sent, dtype=torch.float64)
    torch.testing.assert_close(state["clock"], (1.0 + (used * drawn).amax(dim=1)).sum())
    torch.testing.assert_close(state["seconds"], drawn[6])


def test_without_spread_a_party_takes_what_its_speed_says() -> None:
    state = {"speeds": torch.tensor([2.0, 4.0], dtype=torch.float64), "seed": torch.tensor(1)}
    assert AdaVFL().timed(state, 5).tolist() == [0.5, 0.25]
    assert not torch.equal(AdaVFL(jitter=0.1).timed(state, 5), AdaVFL(jitter=0.1).timed(state, 6))


def test_every_party_needs_a_speed() -> None:
    with pytest.raises(ConfigError, match=r"speeds has 2 numbers for 4 parties; give one for each"):
        open_trainer(small(), AdaVFL(speeds=(1.0, 2.0)))


def test_labels_go_down_once() -> None:
    trainer = open_trainer(small(), AdaVFL(), model=TINY, rounds=2, evaluate_every=0)
    down = [sorted(exchange.down.common) for exchange in exchanges(trainer)]
    assert down == [["targets"], ["steps", "total"], ["steps", "total"], []]
    assert AdaVFL.exposes is LabelExposure.FULL
