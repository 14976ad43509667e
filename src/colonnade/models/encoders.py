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
from colonnade.models.resnet import ResNet, Stem, embed
from colonnade.randomness import seeded

Kind = Literal["auto", "linear", "mlp", "cnn", "resnet18", "resnet34"]


class ModelSettings(Settings):
    """The networks of the parties and the shape of their heads."""

    encoder: Kind = Field("auto", description="local network; auto: cnn for (3, H, W) columns, mlp otherwise")
    hidden: int = Field(120, ge=1, description="hidden width of the mlp")
    embedding: int = Field(60, ge=1, description="width of the embedding a party sends")
    dropout: float = Field(0.0, ge=0, lt=1, description="dropout after the hidden layer of the mlp")
    stem: Stem = Field("large", description="first layers of a resnet: for photographs, or small ones for patches")
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
        return embed(F.relu(self.conv4(x)), self.project, self.norm)


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
    if kind == "cnn":
        return ConvNet(shape[0], s.embedding)
    return ResNet(shape[0], s.embedding, 18 if kind == "resnet18" else 34, s.stem)
