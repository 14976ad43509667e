"""SGD and AdamW over a party axis equal `torch.optim` party by party, whoever sits out when."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from colonnade.models.optimise import SGD, AdamW

PARTIES = 3
SHAPES = [(PARTIES, 4, 2), (PARTIES, 5), (PARTIES, 1, 1, 3)]

turns = st.lists(st.lists(st.booleans(), min_size=PARTIES, max_size=PARTIES), min_size=1, max_size=12)
sgds = st.builds(
    SGD,
    lr=st.floats(1e-3, 0.5),
    momentum=st.sampled_from([0.0, 0.5, 0.9]),
    weight_decay=st.sampled_from([0.0, 1e-3, 0.1]),
)
adams = st.builds(
    AdamW,
    lr=st.floats(1e-4, 0.1),
    beta1=st.sampled_from([0.0, 0.9]),
    beta2=st.sampled_from([0.9, 0.999]),
    eps=st.sampled_from([1e-8, 1e-3]),
    weight_decay=st.sampled_from([0.0, 0.01, 0.3]),
)


def torch_optimiser(ours: SGD | AdamW, parameters: list[Tensor]) -> torch.optim.Optimizer:
    if isinstance(ours, SGD):
        return torch.optim.SGD(parameters, ours.lr, ours.momentum, weight_decay=ours.weight_decay)
    return torch.optim.AdamW(parameters, ours.lr, (ours.beta1, ours.beta2), ours.eps, ours.weight_decay)


def follow(ours: SGD | AdamW, active: list[list[bool]], masked: bool) -> tuple[list[Tensor], list[list[Tensor]]]:
    """The same gradients through ours, stacked, and through torch's, one optimiser per party."""
    generator = torch.Generator().manual_seed(len(active))
    stacked = [torch.randn(s, dtype=torch.float64, generator=generator) for s in SHAPES]
    apart = [[p[k].clone().requires_grad_() for p in stacked] for k in range(PARTIES)]
    optimisers = [torch_optimiser(ours, parameters) for parameters in apart]
    state = ours.open(stacked)
    for on in active:
        gradients = [torch.randn(s, dtype=torch.float64, generator=generator) for s in SHAPES]
        mask = torch.tensor(on) if masked else None
        ours.step(stacked, [g.clone() for g in gradients], state, mask)
        for k in range(PARTIES):
            if on[k] or not masked:
                for p, g in zip(apart[k], gradients, strict=True):
                    p.grad = g[k].clone()
                optimisers[k].step()
    return stacked, apart


@settings(max_examples=40)
@given(ours=st.one_of(sgds, adams), active=turns, masked=st.booleans())
def test_equal_to_torch_party_by_party(ours: SGD | AdamW, active: list[list[bool]], masked: bool) -> None:
    stacked, apart = follow(ours, active, masked)
    for i, p in enumerate(stacked):
        for k in range(PARTIES):
            torch.testing.assert_close(p[k], apart[k][i].detach(), rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("ours", [SGD(weight_decay=0.1), AdamW(weight_decay=0.1)], ids=["sgd", "adamw"])
def test_a_party_that_sits_out_keeps_its_state(ours: SGD | AdamW) -> None:
    parameters = [torch.randn(s) for s in SHAPES]
    state = ours.open(parameters)
    for _ in range(3):
        ours.step(parameters, [torch.randn(s) for s in SHAPES], state, None)
    before = [v[1].clone() for v in [*parameters, *state.values()]]
    others = [v[0].clone() for v in [*parameters, *state.values()]]
    ours.step(parameters, [torch.randn(s) for s in SHAPES], state, torch.tensor([True, False, True]))
    assert all(torch.equal(a, v[1]) for a, v in zip(before, [*parameters, *state.values()], strict=True))
    assert not any(torch.equal(a, v[0]) for a, v in zip(others, [*parameters, *state.values()], strict=True))


@pytest.mark.parametrize("ours", [SGD(), AdamW()], ids=["sgd", "adamw"])
def test_float32_stays_float32(ours: SGD | AdamW) -> None:
    parameters = [torch.randn(s) for s in SHAPES]
    state = ours.open(parameters)
    for mask in (None, torch.tensor([True, False, True])):
        ours.step(parameters, [torch.randn(s) for s in SHAPES], state, mask)
    assert all(p.dtype is torch.float32 for p in parameters)


def test_all_in_step_equals_the_mask_of_all() -> None:
    active = [[True] * PARTIES] * 6
    for ours in (SGD(), AdamW()):
        one, _ = follow(ours, active, masked=True)
        other, _ = follow(ours, active, masked=False)
        for a, b in zip(one, other, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-14)
