"""Local networks: from a party's columns to an embedding. Any `nn.Module` may stand in for one."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from colonnade.config import Settings
from colonnade.errors import ModelError
from colonnade.models.heads import HeadSettings
from colonnade.randomness import seeded

Kind = Literal["auto", "linear", "mlp", "cnn", "resnet18"]


class ModelSettings(Settings):
    """The networks of the parties and the shape of their heads."""

    encoder: Kind = Field("auto", description="local network; auto: cnn for (3, H, W) columns, mlp otherwise")
    hidden: int = Field(120, ge=1, description="hidden width of the mlp")
    embedding: int = Field(60, ge=1, description="width of the embedding a party sends")
    dropout: float = Field(0.0, ge=0, lt=1, description="dropout after the hidden layer of the mlp")
    scale_columns: Literal["auto", "always", "never"] = Field(
        "auto", description="standardise each party's columns; auto: unless the data set already is"
    )
    head: HeadSettings = Field(HeadSettings(), description="heads: layers and dropout")


class ConvNet(nn.Module):
    """The small CNN of the paper's CIFAR experiments: four convolutions, one BatchNorm at the end."""

    def __init__(self, channels: int, embedding: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.conv3 = nn.Conv2d(64, 64, 3, padding=1)
        self.conv4 = nn.Conv2d(64, 128, 3, padding=1)
        self.project = nn.Linear(128, embedding)
        self.norm = nn.BatchNorm1d(embedding)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, h, w) -> (B, embedding); patches are first enlarged to 32 x 32."""
        x = F.interpolate(x, (32, 32))
        for layer in (self.conv1, self.conv2, self.conv3):
            x = F.avg_pool2d(F.relu(layer(x)), 2)
        return _embed(F.relu(self.conv4(x)), self.project, self.norm)


class _Block(nn.Module):
    """Two 3 x 3 convolutions and a shortcut (He et al., 2016)."""

    def __init__(self, width_in: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width_in, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or width_in != width:
            self.shortcut = nn.Sequential(nn.Conv2d(width_in, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x: Tensor) -> Tensor:
        inner = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(inner + self.shortcut(x))


class ResNet18(nn.Module):
    """ResNet-18 with the embedding layer of the paper's ModelNet40 experiments."""

    def __init__(self, channels: int, embedding: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(channels, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        )
        blocks: list[nn.Module] = []
        width_in = 64
        for width, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
            blocks += [_Block(width_in, width, stride), _Block(width, width, 1)]
            width_in = width
        self.blocks = nn.Sequential(*blocks)
        self.project = nn.Linear(512, embedding)
        self.norm = nn.BatchNorm1d(embedding)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, h, w) -> (B, embedding)."""
        return _embed(self.blocks(self.stem(x)), self.project, self.norm)


def _embed(x: Tensor, project: nn.Linear, norm: nn.BatchNorm1d) -> Tensor:
    """(B, C, h, w) -> (B, embedding), never rounded to bfloat16.

    Rows differ little before the norm, which divides by that little: rounding there would grow a hundredfold.
    """
    with torch.autocast(x.device.type, enabled=False):
        return F.relu(norm(project(x.mean(dim=(2, 3), dtype=project.weight.dtype))))


def build_encoder(settings: ModelSettings, shape: tuple[int, ...], seed: int, party: str) -> nn.Module:
    """The local network of one party for columns of `shape`, its weights from the party's own stream."""
    return seeded(lambda: _build(settings, shape), seed, "encoder", party)


def _build(s: ModelSettings, shape: tuple[int, ...]) -> nn.Module:
    kind = s.encoder
    if kind == "auto":
        kind = "cnn" if len(shape) == 3 and min(shape[1:]) > 4 else "mlp"
    width = int(torch.Size(shape).numel())
    if kind == "linear":
        return nn.Sequential(nn.Flatten(), nn.Linear(width, s.embedding))
    if kind == "mlp":
        drop = [nn.Dropout(s.dropout)] if s.dropout else []
        first, last = nn.Linear(width, s.hidden), nn.Linear(s.hidden, s.embedding)
        return nn.Sequential(nn.Flatten(), first, nn.ReLU(), *drop, last, nn.ReLU())
    if len(shape) != 3:
        raise ModelError(f"encoder {kind!r} wants columns of shape (channels, height, width); these are {shape}")
    return ConvNet(shape[0], s.embedding) if kind == "cnn" else ResNet18(shape[0], s.embedding)
