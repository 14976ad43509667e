"""Copies of networks are those of `copy.deepcopy`, hooks and tied weights included."""

from __future__ import annotations

import copy
from collections import OrderedDict

import torch
from torch import Tensor, nn

from colonnade.models.copies import copied, without_numbers


class Tied(nn.Module):
    """Two names for one weight, a layer outside the list of layers, a plain tensor, a buffer and a hook."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)
        self.second.weight = self.first.weight
        self.aside = [self.first]
        self.plain, self.own = torch.ones(2), OrderedDict[str, int]()
        self.register_buffer("kept", torch.arange(3))
        self.first.bias.requires_grad_(False)
        self.first.register_forward_hook(lambda layer, given, got: got + 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x)) + self.plain.sum()  # type: ignore[no-any-return]


def inside(module: nn.Module) -> dict[str, object]:
    """Every attribute of every layer that may change."""
    held = {f"{at}.{k}": v for at, layer in module.named_modules() for k, v in vars(layer).items()}
    return {k: v for k, v in held.items() if isinstance(v, (Tensor, dict, list))}


def test_a_copy_computes_the_same_and_shares_nothing() -> None:
    network, x = Tied(), torch.randn(4, 3)
    copy_ = copied(network)
    assert isinstance(copy_, Tied)
    assert inside(copy_).keys() == inside(copy.deepcopy(network)).keys()
    assert not {id(v) for v in inside(copy_).values()} & {id(v) for v in inside(network).values()}
    assert copy_.second.weight is copy_.first.weight
    assert copy_.aside[0] is copy_.first
    assert torch.equal(copy_(x), network(x))
    with torch.no_grad():
        for tensor in (*copy_.parameters(), *copy_.buffers()):
            tensor.zero_()
    copy_.first.register_forward_pre_hook(lambda layer, given: None)
    assert network.first.weight.any()
    assert dict(network.named_buffers())["kept"].any()
    assert not network.first._forward_pre_hooks


def test_a_structure_runs_with_the_numbers_of_the_network() -> None:
    network, x = Tied(), torch.randn(4, 3)
    structure = without_numbers(network)
    tensors = dict(structure.named_parameters()) | dict(structure.named_buffers())
    assert {t.device.type for t in tensors.values()} == {"meta"}
    frozen = {name: p.requires_grad for name, p in network.named_parameters()}
    assert {name: p.requires_grad for name, p in structure.named_parameters()} == frozen
    numbers = dict(network.named_parameters()) | dict(network.named_buffers())
    assert torch.equal(torch.func.functional_call(structure, numbers, (x,)), network(x))
    assert network.first.weight.device.type == "cpu"
