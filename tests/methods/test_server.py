"""The server model that several methods share: its order, its gradients, its dropout, its steps."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from colonnade.methods._server import apart, apply_server, get_server, join, open_server, server_gradients, step_server
from colonnade.methods._steps import task_loss
from colonnade.models.heads import HeadSettings
from colonnade.models.optimise import SGD, AdamW
from colonnade.models.schema import Group, Schema
from colonnade.randomness import stream
from colonnade.tasks.multiclass import Multiclass

GROUPS = (Group(("a", "c"), 3), Group(("b",), 2))


def schema(layers: int, dropout: float = 0.25, seed: int = 1) -> Schema:
    head = HeadSettings(layers=layers, dropout=dropout)
    device = torch.device("cpu")
    return Schema(("a", "b", "c"), GROUPS, Multiclass(4), 10, torch.arange(10), head, seed, torch.float64, device)


def opened(layers: int, dropout: float = 0.25, optimiser: SGD | AdamW | None = None) -> dict[str, Tensor]:
    state: dict[str, Tensor] = {}
    open_server(state, schema(layers, dropout), optimiser or SGD())
    return state


def drawn(*shape: int) -> Tensor:
    return torch.from_numpy(stream(0, f"test {shape}").normal(size=shape))


def loss(state: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
    return task_loss(Multiclass(4), apply_server(get_server(state), x).unsqueeze(0), y)


def test_joined_parts_come_apart_again() -> None:
    parts = [drawn(2, 5, 3), drawn(1, 5, 2)]
    joined = join(parts)
    assert joined.shape == (5, 8)
    assert torch.equal(joined[:, :3], parts[0][0])
    assert torch.equal(joined[:, 6:], parts[1][0])
    for one, other in zip(parts, apart(joined, parts), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_gradients_are_those_of_finite_differences(layers: int) -> None:
    state, x, y = opened(layers, dropout=0.0), drawn(6, 8), torch.eye(4).double()[[0, 1, 2, 3, 0, 1]]
    slopes, slope = server_gradients(state, x, y, Multiclass(4), 1)
    for name, values, found in [("x", x, slope), *((k, v, slopes[k]) for k, v in get_server(state).items())]:
        nudge = torch.zeros_like(values)
        nudge.view(-1)[-1] = 1e-6
        ends = [
            loss(state, x + s * nudge, y)
            if name == "x"
            else loss({**state, f"server.{name}": values + s * nudge}, x, y)
            for s in (1, -1)
        ]
        assert float(ends[0] - ends[1]) / 2e-6 == pytest.approx(float(found.view(-1)[-1]), abs=1e-8)


def test_dropout_depends_on_the_round_and_is_off_without_hidden_layers() -> None:
    x, y = drawn(6, 8), torch.eye(4).double()[[0, 1, 2, 3, 0, 1]]
    for layers, differs in ((1, False), (2, True)):
        state = opened(layers)
        first, again, later = (server_gradients(state, x, y, Multiclass(4), plan)[1] for plan in (1, 1, 2))
        assert torch.equal(first, again)
        assert torch.equal(first, later) is not differs


@pytest.mark.parametrize("optimiser", [SGD(lr=0.1), AdamW(lr=0.1)], ids=["sgd", "adamw"])
def test_steps_lower_the_loss_and_leave_the_old_tensors_alone(optimiser: SGD | AdamW) -> None:
    state, x, y = opened(2, 0.0, optimiser), drawn(6, 8), torch.eye(4).double()[[0, 1, 2, 3, 0, 1]]
    held = {k: v.clone() for k, v in state.items()}
    old, before = dict(state), float(loss(state, x, y))
    for plan in range(1, 4):
        step_server(state, server_gradients(state, x, y, Multiclass(4), plan)[0], optimiser, plan)
    assert float(loss(state, x, y)) < before
    assert all(torch.equal(old[k], held[k]) for k in held)


def test_another_seed_is_another_model_and_a_width_may_be_given() -> None:
    one, other = {}, {}
    open_server(one, schema(1), SGD(), width=5)
    open_server(other, schema(1, seed=2), SGD(), width=5)
    assert one["server.weight.0"].shape == (1, 5, 4)
    assert not torch.equal(one["server.weight.0"], other["server.weight.0"])
