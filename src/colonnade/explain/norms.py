"""How heavily the model weighs each party: the paper's importance, the norm of its head.

Heads at the coordinator were made from what had been released for training: their norms cost nothing. Other server
models have something like it: the rows of the first layer that read a party's embedding, or its weight in a sum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from colonnade.models.schema import Group


@dataclass(frozen=True)
class Norms:
    """One weight per party, and what it is the weight of."""

    of: str
    values: dict[str, float]


def at_coordinator(state: Mapping[str, Tensor], groups: Sequence[Group]) -> Norms | None:
    """Norms that the coordinator can read off its own state; None if it weighs no party by itself."""
    if any(name.startswith("head.") for name in state):
        return Norms("head at the coordinator", _heads(state, groups))
    if "weight.0" in state and all(state[f"weight.{g}"].shape == (len(p.parties),) for g, p in enumerate(groups)):
        return Norms("weight in the sum of the embeddings", _weights(state, groups))
    first = state.get("server.weight.0")
    if first is not None and first.shape[-2] == sum(len(g.parties) * g.width for g in groups):
        return Norms("rows of the server model that read its embedding", _blocks(first, groups))
    return None


def _weights(state: Mapping[str, Tensor], groups: Sequence[Group]) -> dict[str, float]:
    found: dict[str, float] = {}
    for g, group in enumerate(groups):
        found |= dict(zip(group.parties, state[f"weight.{g}"].abs().tolist(), strict=True))
    return found


def _heads(state: Mapping[str, Tensor], groups: Sequence[Group]) -> dict[str, float]:
    found: dict[str, float] = {}
    for g, group in enumerate(groups):
        weights = [v.double().flatten(1) for k, v in state.items() if k.startswith(f"head.{g}.weight")]
        norms = torch.linalg.vector_norm(torch.cat(weights, dim=1), dim=1)  # (P,)
        found |= dict(zip(group.parties, norms.tolist(), strict=True))
    return found


def _blocks(first: Tensor, groups: Sequence[Group]) -> dict[str, float]:
    weight, start = first.reshape(first.shape[-2:]).double(), 0
    found: dict[str, float] = {}
    for group in groups:
        for party in group.parties:
            found[party] = float(torch.linalg.matrix_norm(weight[start : start + group.width]))
            start += group.width
    return found
