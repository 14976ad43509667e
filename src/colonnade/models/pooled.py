"""A convolution of images, ReLU and 2 x 2 mean pooling as one function that never stores the convolution's result.

The first layer of a small CNN makes much of little: 32 channels of three, at full size. Written and read again they are
most of the memory traffic of a step, and with so few channels a library's convolutions leave matrix units idle. Here a
program sees the windows of one image and keeps only the means; the backward pass computes the convolution again.

    u = w * x + b,   y = mean of the 2 x 2 values of max(u, 0)      no derivative in x: nobody asks an image for one

An image gets a channel of ones, and b is its weight: so a layer is one matrix, and what it sees of an image another.

On a GPU both passes are kernels of `pooled_triton.py`. The functions here are the same in plain torch: they say what
the kernels must give, and `kernels_serve` holds them to it before a process uses them.
"""

# Without `from __future__ import annotations`: torch reads the types of an operator from its signature.

import functools
import warnings

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from colonnade.randomness import stream

SIDE = 32  # pixels of an image, whatever it was before it was enlarged
HALF = SIDE // 2
CHANNELS = 4  # of an image, ones and zeros beside its own: the rows of a window then begin where eight bytes do
SEEN = 4  # rows and columns of a window: three, and one that weighs nothing, so that its numbers are a power of two
WINDOW = SEEN * SEEN * CHANNELS
AGREE = 1e-2  # of numbers that have eight bits


def serves(layer: nn.Conv2d, x: Tensor) -> bool:
    """Whether a first layer may be computed so: compiled, on a GPU, in bfloat16, and of few channels."""
    return (
        x.device.type == "cuda"
        and torch.compiler.is_compiling()
        and torch.is_autocast_enabled("cuda")
        and not x.requires_grad
        and x.shape[1] < CHANNELS
        and kernels_serve(x.get_device())
    )


def pooled_convolution(layer: nn.Conv2d, x: Tensor, numbers: torch.dtype = torch.bfloat16) -> Tensor:
    """(B, C, h, w) -> (B, width, 16, 16): images enlarged to 32 x 32, through the layer, ReLU and mean.

    `layer` is a 3 x 3 convolution with padding 1 and a bias, of at most three channels.
    """
    assert layer.bias is not None
    lacking = CHANNELS - x.shape[1]
    large = F.pad(F.interpolate(x, (SIDE, SIDE)), (1, SEEN - 1, 1, SEEN - 2))
    images = F.pad(large, (0, 0, 0, 0, 0, lacking), value=1.0).permute(0, 2, 3, 1).to(numbers).contiguous()
    weight = F.pad(layer.weight, (0, 1, 0, 1, 0, lacking)).permute(2, 3, 1, 0).reshape(WINDOW, -1)
    bias = F.pad(layer.bias.unsqueeze(0), (0, 0, CHANNELS - 1, WINDOW - CHANNELS))  # of the last channel, once
    means: Tensor = pooled(images, weight + bias)
    return means.permute(0, 3, 1, 2)


@torch.library.custom_op("colonnade::pooled", mutates_args=())
def pooled(images: Tensor, weight: Tensor) -> Tensor:
    """(B, 35, 36, 4) images within zeros, (64, width) weights of a window -> (B, 16, 16, width)."""
    if images.is_cuda:
        from colonnade.models.pooled_triton import forward

        return forward(images, weight.to(images))
    means = (windows(images).to(weight) @ weight).relu().mean(1)
    return means.reshape(len(images), HALF, HALF, -1).to(images)


@torch.library.custom_op("colonnade::pooled_slope", mutates_args=())
def pooled_slope(images: Tensor, weight: Tensor, slope: Tensor) -> Tensor:
    """What a slope of the means is in the weights, in their numbers."""
    if images.is_cuda:
        from colonnade.models.pooled_triton import backward

        return backward(images, weight.to(images), slope.to(images)).to(weight)
    seen = windows(images).to(weight)
    given = slope.to(weight).reshape(len(images), 1, HALF * HALF, -1) / 4
    return torch.einsum("bcsk,bcso->ko", seen, torch.where(seen @ weight > 0, given, 0)).contiguous()


def windows(images: Tensor) -> Tensor:
    """(B, 4, 256, 64): what the convolution reads at each corner of each 2 x 2 square of its result."""
    whole = images.unfold(1, SEEN, 1).unfold(2, SEEN, 1)[:, :SIDE, :SIDE]  # (B, 32, 32, channel, row, column)
    squares = whole.permute(0, 1, 2, 4, 5, 3).reshape(len(images), HALF, 2, HALF, 2, WINDOW)
    return squares.permute(0, 2, 4, 1, 3, 5).reshape(len(images), 4, HALF * HALF, WINDOW)


@pooled.register_fake
def _(images: Tensor, weight: Tensor) -> Tensor:
    return images.new_empty(images.shape[0], HALF, HALF, weight.shape[1])


@pooled_slope.register_fake
def _(images: Tensor, weight: Tensor, slope: Tensor) -> Tensor:
    return weight.new_empty(weight.shape)


def _remember(ctx, inputs, output):  # type: ignore[no-untyped-def]
    ctx.save_for_backward(*inputs)


def _slopes(ctx, slope):  # type: ignore[no-untyped-def]
    return None, pooled_slope(*ctx.saved_tensors, slope.contiguous())


pooled.register_autograd(_slopes, setup_context=_remember)


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def kernels_serve(index: int) -> bool:
    """Whether this GPU runs the kernels; a compiler asks while it compiles, and takes the answer for a constant."""
    return _tried(index)


@functools.cache
def _tried(index: int) -> bool:
    """Whether they give what plain torch gives; tried once in a process."""
    draw, device = stream(0, "kernels tried"), torch.device("cuda", index)
    images, weight, slope = (
        torch.from_numpy(draw.standard_normal(shape)).bfloat16()
        for shape in ((5, SIDE + SEEN - 1, SIDE + SEEN, CHANNELS), (WINDOW, 32), (5, HALF, HALF, 32))
    )

    def both(images: Tensor, weight: Tensor, slope: Tensor) -> Tensor:
        found = pooled(images, weight.float()), pooled_slope(images, weight.float(), slope)
        return torch.cat([(value.float() / value.float().norm()).flatten().cpu() for value in found])

    near = both(images, weight, slope)
    try:
        gap = (both(images.to(device), weight.to(device), slope.to(device)) - near).norm()
        why = "" if gap < AGREE else f"their numbers are off by {gap:.2g}"  # also where they are not finite
    except Exception as error:  # whatever a compiler of kernels says of a GPU that it does not know
        why = f"{type(error).__name__}: {error}"
    if why:
        warnings.warn(f"kernels for small images do not serve on {device} ({why}); slower ones do", stacklevel=2)
    return not why
