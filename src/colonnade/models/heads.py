"""Heads: from an embedding to logits, one per party, always with a leading party axis.

A head is a dict of tensors, so it can travel as it is. Linear heads are bias-free, as in
the paper; non-linear ones are MLPs of 2 or 3 layers with ReLU and dropout between.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from pydantic import Field
from torch import Tensor

from colonnade.config import Settings
from colonnade.gpu import to_device
from colonnade.models.dropout import keyed_mask
from colonnade.randomness import stream

Head = Mapping[str, Tensor]


class HeadSettings(Settings):
    """The shape of a head."""

    layers: int = Field(1, ge=1, le=3, description="1: linear without bias; 2 or 3: MLP")
    dropout: float = Field(0.25, ge=0, lt=1, description="dropout between the layers of an MLP head")


def open_heads(
    settings: HeadSettings, parties: Sequence[str], width: int, outputs: int, seed: int
) -> dict[str, Tensor]:
    """First heads, (P, in, out) per layer, each party from its own stream (torch's uniform rule)."""
    drawn = [_draw(settings.layers, width, outputs, seed, party) for party in parties]
    return {name: torch.stack([d[name] for d in drawn]) for name in drawn[0]}


def _draw(layers: int, width: int, outputs: int, seed: int, party: str) -> dict[str, Tensor]:
    rng, bound = stream(seed, "head", party), 1 / math.sqrt(width)
    head = {}
    for i in range(layers):
        out = outputs if i == layers - 1 else width
        head[f"weight.{i}"] = torch.from_numpy(rng.uniform(-bound, bound, (width, out)))
        if layers > 1:
            head[f"bias.{i}"] = torch.from_numpy(rng.uniform(-bound, bound, (1, out)))
    return head


def apply_heads(head: Head, h: Tensor, drop: float = 0.0, key: Tensor | None = None, draw: Tensor | int = 0) -> Tensor:
    """(P, B, d_f) -> (P, B, d_c). Dropout only where a (P, 1, 1) key is given: both sides must agree otherwise."""
    layers = sum(name.startswith("weight") for name in head)
    for i in range(layers):
        weight = head[f"weight.{i}"]
        h = torch.baddbmm(head[f"bias.{i}"], h, weight) if f"bias.{i}" in head else torch.bmm(h, weight)
        if i < layers - 1:
            h = h.relu()
            if key is not None and drop:
                h = h * keyed_mask(h, drop, key + i, draw)
    return h


def dropout_keys(keys: Sequence[int], device: torch.device) -> Tensor:
    """Per-party dropout keys in the shape `apply_heads` needs."""
    return to_device(torch.tensor(list(keys), dtype=torch.int64), device).view(-1, 1, 1)
