"""The kernels of `pooled.py` for GPUs. A program takes one image, corner by corner of its 2 x 2 squares.

The windows of a corner are a (256, 64) matrix, so products are those of matrix units, and nothing but images, weights
and means goes through memory. Sums over images are made in a fixed order.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

import torch
import triton
import triton.language as tl
from torch import Tensor

TOGETHER = 4  # images of one program of the backward pass: fewer sums to add up later, and still work for every unit
WARPS = 8
REGISTERS = 128  # of a thread of the forward pass: so a multiprocessor takes two programs at once
STAGES = 1  # more would keep windows of several images in shared memory: twice what there is


def forward(images: Tensor, weight: Tensor) -> Tensor:
    """`pooled.pooled`."""
    width = weight.shape[1]
    out = images.new_empty(images.shape[0], 16, 16, width)
    shape = {"WIDTH": width, "num_warps": WARPS, "num_stages": STAGES, "maxnreg": REGISTERS}
    _forward[(len(images),)](images, weight.contiguous(), out, **shape)
    return out


def backward(images: Tensor, weight: Tensor, slope: Tensor) -> Tensor:
    """`pooled.pooled_slope`."""
    programs, width, count = triton.cdiv(len(images), TOGETHER), weight.shape[1], len(images)
    out = images.new_empty(programs, *weight.shape, dtype=torch.float32)
    shape = {"WIDTH": width, "TOGETHER": TOGETHER, "num_warps": WARPS, "num_stages": STAGES}
    _backward[(programs,)](images, weight.contiguous(), slope, out, count, **shape)
    return out.sum(0)


@triton.jit
def _windows(images, image, corner: tl.constexpr):
    """(256, 64): images are 35 rows of 36 pixels of 4 channels, and a window is 4 x 4 pixels."""
    square, cell = tl.arange(0, 256), tl.arange(0, 64)
    first = (square // 16 * 2 + corner // 2) * 36 + square % 16 * 2 + corner % 2
    return tl.load(images + image * 5040 + first[:, None] * 4 + (cell // 16 * 144 + cell % 16)[None, :])


@triton.jit
def _forward(images, weight, out, WIDTH: tl.constexpr):
    image = tl.program_id(0).to(tl.int64)  # times the numbers of an image: more than 32 bits hold, of many images
    square, cell, channel = tl.arange(0, 256), tl.arange(0, 64), tl.arange(0, WIDTH)
    w = tl.load(weight + cell[:, None] * WIDTH + channel[None, :])
    total = tl.zeros((256, WIDTH), dtype=tl.float32)
    for corner in tl.static_range(4):
        total += tl.maximum(tl.dot(_windows(images, image, corner), w), 0.0)
    place = image * 256 * WIDTH + square[:, None] * WIDTH + channel[None, :]
    tl.store(out + place, (total * 0.25).to(out.dtype.element_ty))


@triton.jit
def _backward(images, weight, slope, out, count, WIDTH: tl.constexpr, TOGETHER: tl.constexpr):
    program = tl.program_id(0)
    square, cell, channel = tl.arange(0, 256), tl.arange(0, 64), tl.arange(0, WIDTH)
    w = tl.load(weight + cell[:, None] * WIDTH + channel[None, :])
    total = tl.zeros((64, WIDTH), dtype=tl.float32)
    for number in range(TOGETHER):
        image = program.to(tl.int64) * TOGETHER + number
        there = image < count
        image = tl.minimum(image, count - 1)  # the last program reads one again, and counts it once
        place = image * 256 * WIDTH + square[:, None] * WIDTH + channel[None, :]
        given = tl.where(there, tl.load(slope + place), 0.0)
        for corner in tl.static_range(4):
            seen = _windows(images, image, corner)
            passed = tl.where(tl.dot(seen, w) > 0, given, 0.0).to(seen.dtype)
            total = tl.dot(tl.trans(seen), passed, total)
    tl.store(out + program * 64 * WIDTH + cell[:, None] * WIDTH + channel[None, :], total * 0.25)
