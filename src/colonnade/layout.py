"""Layout of tensors that outlive a round: row-major, at an aligned address, whoever made them.

Matrix products round differently for a row-major and a column-major tensor of equal numbers, on some processors also
for an aligned and an unaligned address. A checkpoint stores numbers and no layout, so a run could only be repeated to
the last bit after a restart if every tensor that is stored already had the layout that reading it back gives. Hence the
contract: state, replies, uploads and checkpoints hold canonical tensors. They are made canonical where they are made or
read (`canonical`), and in debug mode checked where they are used (`check`).
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from colonnade.errors import LayoutError

ALIGNMENT = 64  # bytes; what torch's own allocators give, and what a cache line and the widest registers need
DEBUG = os.environ.get("COLONNADE_DEBUG", "") not in ("", "0")


def is_canonical(value: Tensor) -> bool:
    """Whether a tensor is row-major and begins at an aligned address.

    Of a dimension of size 1 torch calls any stride contiguous. A product reads it all the same: a column whose strides
    are those of a row is multiplied by another routine, with other last bits.
    """
    if not value.is_contiguous() or value.data_ptr() % ALIGNMENT:
        return False
    return 1 not in value.shape or value.stride() == row_major(value.shape)


@functools.lru_cache(maxsize=4096)  # a few shapes, asked for with every tensor of every round
def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides that a tensor of this shape is made with."""
    sizes = [max(1, size) for size in shape]
    return tuple(math.prod(sizes[place + 1 :]) for place in range(len(sizes)))


def canonical(value: Tensor) -> Tensor:
    """The tensor itself where it is canonical, else a canonical copy."""
    return value if is_canonical(value) else value.clone(memory_format=torch.contiguous_format)


def canonical_all(values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Every tensor of a dictionary, canonical."""
    return {name: canonical(value) for name, value in values.items()}


def check(where: str, tensors: Callable[[], Mapping[str, Tensor]]) -> None:
    """In debug mode (COLONNADE_DEBUG=1), refuse a tensor that is not canonical; `where` says who holds it.

    Whole numbers are exact in any layout and are left alone.

    Raises:
        LayoutError: with the name of the first such tensor.
    """
    if not DEBUG:
        return
    for name, value in tensors().items():
        if value.is_floating_point() and not is_canonical(value):
            raise LayoutError(
                f"{where}: tensor {name!r} of shape {tuple(value.shape)} has strides {value.stride()} at an address "
                f"{value.data_ptr() % ALIGNMENT} bytes beyond a multiple of {ALIGNMENT}; pass it through "
                "layout.canonical where it is made, or a restarted run would differ in its last bits"
            )
