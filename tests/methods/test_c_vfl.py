"""C-VFL against plain PyTorch, with a wire that loses what the compressor loses; and the bytes it saves."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from colonnade.methods import CVFL, FlexVFL
from colonnade.methods._compress import compress, expand, first_salt, shared_key
from colonnade.models.encoders import ModelSettings
from colonnade.privacy.events import LabelExposure
from tests.federations import digits
from tests.methods.plain_local import ADAMS, SGDS, Snapshots, assert_same, networks, opened
from tests.methods.plain_split import LINEAR, MLP
from tests.trainers import open_trainer

SEED = 0  # of open_trainer


class LossyWire:
    """What arrives of a vector; counts each party's messages for their salts."""

    def __init__(self, method: CVFL) -> None:
        self.m, self.messages, self.rounds, self.lost = method, dict[str, int](), 0, dict[str, Tensor]()
        self.key = torch.tensor(shared_key(SEED))

    def through(self, x: Tensor, salt: Tensor) -> Tensor:
        levels = 2**self.m.bits
        packed = compress(self.m.compressor, levels, x, salt, self.key)
        return expand(self.m.compressor, levels, packed, x.shape[-1], self.key, x.dtype)

    def embedding(self, name: str, h: Tensor) -> Tensor:
        count = self.messages.get(name, 0)
        self.messages[name] = count + 1
        keys = torch.tensor(shared_key(SEED, name)).view(1, 1, 1)
        return self.through(h, first_salt(h[None], keys, torch.tensor([count]))[0])

    def server(self, name: str, value: Tensor) -> Tensor:
        if name == "0.weight":
            self.rounds += 1
        wanted = value + self.lost.get(name, 0.0)
        flat = wanted.T if wanted.dim() == 2 else wanted  # nn.Linear keeps (out, in)
        salt = torch.tensor([[self.rounds % 256]], dtype=torch.uint8)
        read = self.through(flat.reshape(1, -1), salt).view(flat.shape)
        read = read.T if wanted.dim() == 2 else read
        if self.m.error_feedback:
            self.lost[name] = wanted - read
        return read


@pytest.mark.parametrize("compressor", ["scalar", "lattice", "topk"])
@pytest.mark.parametrize(("model", "feedback"), [(LINEAR, False), (MLP, True)], ids=["linear", "mlp and feedback"])
def test_local_steps_against_a_compressed_snapshot(compressor: Any, model: ModelSettings, feedback: bool) -> None:
    rules = ADAMS if feedback else SGDS
    method = CVFL(**rules, local_steps=3, compressor=compressor, bits=3, error_feedback=feedback)
    trainer = opened(method, model)
    plain, wire = networks(trainer, method), LossyWire(method)
    paces = dict.fromkeys(plain.encoders, 3)
    assert_same(trainer, plain, Snapshots(plain, 3, paces, wire.embedding, wire.server).round)


def test_the_wire_carries_bits() -> None:
    """Embeddings of 60 numbers: 240 bytes in float32, 30 + 5 with 16 levels; the row numbers come on top."""
    sizes = {}
    for method in (FlexVFL(local_steps=1), CVFL(local_steps=1), CVFL(local_steps=1, compressor="topk")):
        options = {"model": ModelSettings(hidden=8, embedding=60), "dtype": "float32", "evaluate_every": 0}
        run = open_trainer(digits(), method, rounds=1, schedule={"batch": 512}, **options).train()
        sizes[getattr(method, "compressor", "none")] = (run.traffic.up, run.traffic.down)
    up, down = sizes["none"]
    assert up / sizes["scalar"][0] == pytest.approx(240 / 35, rel=0.03)
    assert up / sizes["topk"][0] == pytest.approx(240 / 40, rel=0.03)
    assert down / sizes["scalar"][1] > 5  # all embeddings go down, in codes


def test_labels_and_embeddings_reach_everybody() -> None:
    assert CVFL.exposes is LabelExposure.FULL
