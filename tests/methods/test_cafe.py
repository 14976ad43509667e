"""CAFE's set-up against FedAvg of padded networks in plain PyTorch, and what its page says."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from colonnade.methods import CAFE
from colonnade.models.encoders import ModelSettings
from colonnade.models.heads import HeadSettings
from colonnade.models.optimise import SGD
from colonnade.privacy.events import LabelExposure
from tests.federations import small
from tests.trainers import open_trainer, party_tensors, rounds_of

FEDERATION = small(rows=60)
M, D, HIDDEN, WIDTH, ROUNDS = 4, 5, 6, 4, 6
RAW = ModelSettings(hidden=HIDDEN, embedding=WIDTH, scale_columns="never")
PLAIN_SGD = SGD(lr=0.1, momentum=0.0, weight_decay=0.0)


def padded(k: int) -> torch.Tensor:
    """Party k's columns in slot k of all columns."""
    x = torch.zeros(FEDERATION.rows, M * D).double()
    x[:, k * D : (k + 1) * D] = FEDERATION.parties[k].columns.double()
    return x


def fedavg(trainer: Any, steps: int, root: float) -> torch.Tensor:
    """All logits after the last round: every party holds the whole padded network, and all of it is averaged."""
    held = list(party_tensors(trainer).values())
    slots = torch.cat([h["parameter.1.weight"] for h in held], dim=1)  # everybody starts from all slots
    networks = []
    for h in held:
        layers = [
            nn.Linear(M * D, HIDDEN),
            nn.ReLU(),
            nn.Linear(HIDDEN, WIDTH),
            nn.ReLU(),
            nn.Linear(WIDTH, 3, bias=False),
        ]
        network = nn.Sequential(*layers).double()
        values = [slots, h["parameter.1.bias"], h["parameter.3.weight"], h["parameter.3.bias"], h["head.weight.0"].T]
        network.load_state_dict(dict(zip(network.state_dict(), values, strict=True)))
        networks.append(network)
    for number in range(1, ROUNDS + 1):
        rows = trainer.coordinator.schedule.plan(number).rows
        mean = {name: sum(n.state_dict()[name] for n in networks) / M for name in networks[0].state_dict()}
        if number == 1:
            mean = {name: value if name == "0.weight" else root * value for name, value in mean.items()}
        for k, network in enumerate(networks):
            network.load_state_dict(mean)
            optimiser = torch.optim.SGD(network.parameters(), PLAIN_SGD.lr)
            for _ in range(steps):
                optimiser.zero_grad()
                F.cross_entropy(network(padded(k)[rows]), FEDERATION.labels[rows]).backward()
                optimiser.step()
    with torch.no_grad():
        return sum(network(padded(k)) for k, network in enumerate(networks)) / M


@pytest.mark.parametrize("steps", [1, 3])
def test_it_is_fedavg_of_padded_networks(steps: int) -> None:
    method = CAFE(local_steps=steps, optimiser=PLAIN_SGD)
    options = {"model": RAW, "rounds": ROUNDS, "evaluate_every": 0, "schedule": {"batch": 12}}
    trainer = open_trainer(FEDERATION, method, **options)
    expected, wrong = fedavg(trainer, steps, M**0.5), fedavg(trainer, steps, 1.0)
    ours = trainer.train().logits({p.name: p.columns for p in FEDERATION.parties})
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-10)
    assert (ours - wrong).abs().max() > 1e-3


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_what_is_averaged_is_equal_everywhere_after_it_was_taken(layers: int) -> None:
    """And what is agreed on has the size of what is sent, for every head."""
    model = RAW.model_copy(update={"head": HeadSettings(layers=layers)})
    trainer = open_trainer(FEDERATION, CAFE(optimiser=PLAIN_SGD), model=model, rounds=2, evaluate_every=0)
    taken = [e.down.groups[0]["theta"] for e in rounds_of(trainer) if e.down.groups]
    assert len(taken) == 2
    assert all(torch.equal(theta[0], theta[k]) for theta in taken for k in range(M))


def test_parties_of_another_shape_are_not_averaged_with_these() -> None:
    trainer = open_trainer(small(widths=(5, 3, 5, 3)), CAFE(), model=RAW, rounds=2, evaluate_every=0)
    sizes = [[len(part["theta"]) for part in e.down.groups] for e in rounds_of(trainer) if e.down.groups]
    assert sizes == [[2, 2], [2, 2]]


def test_labels_go_down_once() -> None:
    trainer = open_trainer(FEDERATION, CAFE(), model=RAW, rounds=2, evaluate_every=0)
    assert [sorted(e.down.common) for e in rounds_of(trainer)] == [["targets"], [], [], []]
    assert CAFE.exposes is LabelExposure.FULL
