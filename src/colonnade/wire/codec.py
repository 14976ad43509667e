"""Arrays and a small header to bytes and back. Never pickle.

The container (`container.py`) checks version, size, offsets and the header; here a message must also have only
allowed dtypes and only finite numbers. Nothing of a message is used before all of that holds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from safetensors.torch import load
from torch import Tensor

from colonnade.errors import WireError
from colonnade.layout import canonical_all
from colonnade.wire.container import DAMAGE, LIMIT, Header, pack, read_header

ALLOWED = (torch.float16, torch.float32, torch.float64, torch.int8, torch.uint8, torch.int32, torch.int64)


def encode(header: Mapping[str, Any], arrays: Mapping[str, Tensor], *, known_finite: bool = False) -> bytes:
    """One message as bytes; refuses dtypes that may not travel and non-finite numbers.

    A gate that has just checked a whole cohort's numbers says `known_finite`, and they are not checked again.
    """
    ready = {}
    for name, array in arrays.items():
        _check(name, array, known_finite)
        ready[name] = array.detach().cpu().contiguous().numpy()  # the same bytes as torch's writer, in less time
    return pack(header, ready)


def decode(payload: bytes, limit: int = LIMIT) -> tuple[Header, dict[str, Tensor]]:
    """Header and arrays (canonical) of a message, or `WireError` with the reason; nothing is executed."""
    header = read_header(payload, limit)
    try:
        arrays = load(payload)
    except DAMAGE as error:
        raise WireError(f"the message is damaged: {error}") from None
    for name, array in arrays.items():
        _check(name, array)
    return header, canonical_all(arrays)


def _check(name: str, array: Tensor, known_finite: bool = False) -> None:
    if array.dtype not in ALLOWED:
        raise WireError(f"array {name!r} has dtype {array.dtype}, which may not travel")
    if array.is_floating_point() and not known_finite and not all_finite(array):
        raise WireError(f"array {name!r} holds NaN or infinite values")


def all_finite(*arrays: Tensor) -> bool:
    """Whether every number is finite.

    A finite sum has no NaN and no infinity in it, and takes one pass over memory instead of five; a sum may
    also overflow, so only if it is not finite is each number checked. A GPU is asked once about all of its arrays.
    """
    far = [array.sum(dtype=torch.float64) for array in arrays if array.is_cuda]
    if far and not all(map(math.isfinite, torch.stack(far).tolist())):
        return all(bool(torch.isfinite(array).all()) for array in arrays)
    near = [array for array in arrays if not array.is_cuda]
    return all(math.isfinite(array.sum().item()) or bool(torch.isfinite(array).all()) for array in near)
