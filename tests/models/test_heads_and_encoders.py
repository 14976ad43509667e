"""Heads and built-in encoders: shapes, first values, and which columns they accept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from colonnade.errors import ModelError
from colonnade.models.encoders import ConvNet, ModelSettings, build_encoder
from colonnade.models.heads import HeadSettings, apply_heads, open_heads
from colonnade.models.resnet import ResNet

PARTIES = ("bank", "telco")


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_heads_are_what_their_formula_says(layers: int) -> None:
    head = open_heads(HeadSettings(layers=layers), PARTIES, width=4, outputs=3, seed=0)
    h = torch.randn(2, 5, 4, dtype=torch.float64)
    for k in range(2):
        out = h[k]
        for i in range(layers):
            out = out @ head[f"weight.{i}"][k]
            out = out + head[f"bias.{i}"][k] if layers > 1 else out  # linear heads have no bias, as in the paper
            out = out.clamp(min=0) if i < layers - 1 else out
        torch.testing.assert_close(apply_heads(head, h)[k], out)


def test_a_party_draws_its_head_from_its_own_stream() -> None:
    both = open_heads(HeadSettings(), PARTIES, 4, 3, seed=0)["weight.0"]
    alone = open_heads(HeadSettings(), ("telco",), 4, 3, seed=0)["weight.0"]
    assert torch.equal(both[1:], alone)
    assert not torch.equal(both[0], both[1])
    assert both.abs().max() <= 0.5  # 1 / sqrt(width)
    assert not torch.equal(both, open_heads(HeadSettings(), PARTIES, 4, 3, seed=1)["weight.0"])


@pytest.mark.parametrize(
    ("kind", "shape", "expected"),
    [
        ("auto", (7,), nn.Sequential),
        ("auto", (2, 28), nn.Sequential),
        ("auto", (3, 8, 8), ConvNet),
        ("cnn", (3, 8, 8), ConvNet),
        ("resnet18", (1, 12, 12), ResNet),
        ("resnet34", (3, 12, 12), ResNet),
        ("linear", (2, 3), nn.Sequential),
        ("mlp", (3, 8, 8), nn.Sequential),
    ],
)
def test_every_encoder_gives_embeddings(kind: str, shape: tuple[int, ...], expected: type) -> None:
    net = build_encoder(ModelSettings(encoder=kind, embedding=6), shape, seed=0, party="bank")
    assert isinstance(net, expected)
    assert net(torch.randn(4, *shape)).shape == (4, 6)


def test_weights_come_from_the_partys_stream() -> None:
    def weights(seed: int, party: str) -> torch.Tensor:
        net = build_encoder(ModelSettings(), (5,), seed, party)
        return torch.cat([p.detach().flatten() for p in net.parameters()])

    assert torch.equal(weights(0, "bank"), weights(0, "bank"))
    assert not torch.equal(weights(0, "bank"), weights(0, "telco"))
    assert not torch.equal(weights(0, "bank"), weights(1, "bank"))


@pytest.mark.parametrize(("kind", "parameters"), [("resnet18", 11_176_512), ("resnet34", 21_284_672)])
def test_residual_networks_have_the_published_size(kind: Any, parameters: int) -> None:
    """That of torchvision's without their last layer: 11,689,512 and 21,797,672 with 513,000 in it."""
    net = build_encoder(ModelSettings(encoder=kind, embedding=6), (3, 64, 64), 0, "bank")
    counted = sum(p.numel() for name, p in net.named_parameters() if name.startswith(("stem", "blocks")))
    assert counted == parameters
    convolutions = [m for m in net.modules() if isinstance(m, nn.Conv2d) and m.kernel_size != (1, 1)]
    assert len(convolutions) + 1 == int(kind[-2:])  # the shortcuts are not counted, the last layer is


def test_a_small_stem_keeps_the_pixels_of_a_patch() -> None:
    settings = {stem: ModelSettings(encoder="resnet18", stem=stem, embedding=6) for stem in ("large", "small")}  # type: ignore[arg-type]
    nets: Any = {stem: build_encoder(made, (3, 10, 10), 0, "bank") for stem, made in settings.items()}
    assert nets["large"].stem(torch.zeros(2, 3, 10, 10)).shape == (2, 64, 3, 3)
    assert nets["small"].stem(torch.zeros(2, 3, 10, 10)).shape == (2, 64, 10, 10)
    assert nets["small"].blocks(torch.zeros(2, 64, 10, 10)).shape == (2, 512, 2, 2)


@pytest.mark.parametrize("kind", ["cnn", "resnet18"])
def test_images_are_wanted_by_name(kind: str) -> None:
    with pytest.raises(ModelError, match=f"'{kind}' needs columns of shape"):
        build_encoder(ModelSettings(encoder=kind), (5,), 0, "bank")


def test_the_paper_s_mlp_has_the_published_size() -> None:
    net = build_encoder(ModelSettings(), (2, 28), 0, "bank")
    assert [tuple(p.shape) for p in net.parameters()] == [(120, 56), (120,), (60, 120), (60,)]
    assert np.sum([p.numel() for p in net.parameters()]) == 56 * 120 + 120 + 120 * 60 + 60
