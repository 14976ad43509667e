"""Residual networks (He et al., 2016) of 18 and 34 layers as local networks, with an embedding layer at the end."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Depth = Literal[18, 34]
Stem = Literal["large", "small"]

BLOCKS: dict[Depth, tuple[int, ...]] = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3)}  # per stage
WIDTHS = (64, 128, 256, 512)  # of the stages; each but the first halves the image


class Block(nn.Module):
    """Two 3 x 3 convolutions and a shortcut."""

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
        """(B, width_in, h, w) -> (B, width, h / stride, w / stride)."""
        inner = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(inner + self.shortcut(x))


class ResNet(nn.Module):
    """A residual network with the embedding layer of the paper's ModelNet40 experiments.

    The `large` stem is that of ImageNet's photographs and takes an image to a quarter of its size; the `small` one, of
    the CIFAR networks, keeps the size: after the other, 3 x 3 pixels of a patch of 10 x 10 would be left.
    """

    def __init__(self, channels: int, embedding: int, depth: Depth = 18, stem: Stem = "large") -> None:
        super().__init__()
        size, stride, pool = (7, 2, [nn.MaxPool2d(3, 2, 1)]) if stem == "large" else (3, 1, [])
        first = nn.Conv2d(channels, 64, size, stride, size // 2, bias=False)
        self.stem = nn.Sequential(first, nn.BatchNorm2d(64), nn.ReLU(), *pool)
        blocks: list[nn.Module] = []
        width_in = 64
        for stage, (width, count) in enumerate(zip(WIDTHS, BLOCKS[depth], strict=True)):
            for number in range(count):
                blocks.append(Block(width_in, width, 2 if stage and not number else 1))
                width_in = width
        self.blocks = nn.Sequential(*blocks)
        self.project = nn.Linear(512, embedding)
        self.norm = nn.BatchNorm1d(embedding)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, h, w) -> (B, embedding)."""
        first, *rest = self.stem
        x = convolve(first, x)  # type: ignore[arg-type]  # the first layer of the stem
        for layer in rest:
            x = layer(x)
        return embed(self.blocks(x), self.project, self.norm)


def convolve(layer: nn.Conv2d, x: Tensor) -> Tensor:
    """A first convolution: the layer's own result, on a GPU in bfloat16 with zeros beside the image's three channels.

    Matrix units read eight channels at once; a convolution of three is left to slow kernels.
    """
    lacking = -x.shape[1] % 8
    if not lacking or x.device.type != "cuda" or not torch.is_autocast_enabled("cuda"):
        return layer(x)  # type: ignore[no-any-return]
    more = (0, 0, 0, 0, 0, lacking)
    return F.conv2d(F.pad(x, more), F.pad(layer.weight, more), layer.bias, layer.stride, layer.padding)


def embed(x: Tensor, project: nn.Linear, norm: nn.BatchNorm1d) -> Tensor:
    """(B, C, h, w) -> (B, embedding), never rounded to bfloat16.

    Rows differ little before the norm, which divides by that little: rounding there would grow a hundredfold.
    """
    with torch.autocast(x.device.type, enabled=False):
        return F.relu(norm(project(x.mean(dim=(2, 3), dtype=project.weight.dtype))))
