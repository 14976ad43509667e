"""Flex-VFL against plain PyTorch: steps by speed, against a snapshot that stands still."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from colonnade.errors import ConfigError
from colonnade.methods import FlexVFL, make_method
from colonnade.methods._server import join
from colonnade.methods._snapshot import columns_of, paces
from colonnade.models.encoders import ModelSettings
from colonnade.privacy.events import LabelExposure
from colonnade.schedule import RoundPlan
from tests.federations import mixed_encoder, small
from tests.methods.plain_local import ADAMS, SGDS, Snapshots, assert_same, networks, opened
from tests.methods.plain_split import FEDERATION, LINEAR, MLP
from tests.trainers import open_trainer, rounds_of

SPEEDS = {"party_1": 0.5, "party_2": 2.0, "party_3": 0.1}
PACES = {"party_0": 4, "party_1": 2, "party_2": 8, "party_3": 1}


def untouched(name: str, value: Any) -> Any:
    return value


@pytest.mark.parametrize("model", [LINEAR, MLP], ids=["linear", "mlp"])
@pytest.mark.parametrize("rules", [SGDS, ADAMS], ids=["sgd", "adamw"])
@pytest.mark.parametrize("speeds", [{}, SPEEDS], ids=["alike", "speeds"])
def test_local_steps_against_a_snapshot(speeds: dict[str, float], rules: dict[str, Any], model: ModelSettings) -> None:
    method = FlexVFL(**rules, local_steps=4)
    trainer = opened(method, model, {"speeds": speeds})
    plain = networks(trainer, method)
    paces = PACES if speeds else dict.fromkeys(PACES, 4)
    assert_same(trainer, plain, Snapshots(plain, 4, paces, untouched, untouched).round)


@pytest.mark.parametrize("turns", [{"participation": 0.5, "silent_learn": False}, {"order": "asynchronous"}], ids=str)
def test_with_silent_parties(turns: dict[str, Any]) -> None:
    method = FlexVFL(**SGDS, local_steps=4)
    trainer = opened(method, MLP, {"speeds": SPEEDS, **turns})
    plain = networks(trainer, method)
    assert_same(trainer, plain, Snapshots(plain, 4, PACES, untouched, untouched).round)


def test_steps_that_the_schedule_names_win_over_speeds() -> None:
    method = FlexVFL(**SGDS, local_steps=4)
    trainer = opened(method, LINEAR, {"speeds": SPEEDS, "steps": {"party_2": 3, "party_0": 5}})
    plain = networks(trainer, method)
    paces = PACES | {"party_2": 3, "party_0": 5}
    assert_same(trainer, plain, Snapshots(plain, 4, paces, untouched, untouched).round)


@given(st.integers(1, 200), st.integers(1, 400))
def test_a_party_takes_what_fits_into_the_time_out(steps: int, hundredths: int) -> None:
    plan = RoundPlan(1, torch.arange(2), ("a",), ("a", "b"), (), (("b", hundredths / 100),))
    assert paces(plan, steps) == {"b": max(1, steps * hundredths // 100)}


def test_speeds_are_the_schedule_s_to_say() -> None:
    with pytest.raises(ConfigError, match=r"unknown key 'speeds' in \[method flex_vfl\]"):
        make_method("flex_vfl", {"speeds": [1.0, 2.0]})


def test_everybody_s_embeddings_and_all_labels_reach_every_party() -> None:
    """So the page must say so."""
    trainer = opened(FlexVFL(), LINEAR)
    first, second = (e for _, e in zip(range(2), rounds_of(trainer), strict=False))
    assert first.down.common["targets"].tolist() == FEDERATION.labels[FEDERATION.split.train].tolist()
    assert second.down.common["everyone"].shape == (12, 4 * 4)
    assert FlexVFL.exposes is LabelExposure.FULL


def test_two_groups_find_their_own_columns() -> None:
    """Parties of two architectures: the own block of the server's first layer is where `join` put it."""
    trainer = open_trainer(small(), FlexVFL(**SGDS, local_steps=1), encoders=mixed_encoder, rounds=1, evaluate_every=0)
    schema = trainer.coordinator.schema
    parts = [torch.full((len(g.parties), 2, g.width), 0.0) for g in schema.groups]
    for number, party in enumerate(schema.parties):
        g, place = schema.position(party)
        parts[g][place] = number
    for number, party in enumerate(schema.parties):
        at, width = columns_of(schema, party)
        assert (join(parts)[:, at : at + width] == number).all()
    assert len(schema.groups) == 2
