"""Arrays and a small header to bytes and back. Never pickle.

The container is safetensors: a length, a JSON header, raw little-endian buffers. Its
Rust reader checks offsets and sizes; on top of that a message must carry our version,
only allowed dtypes and only finite numbers, and stay below a size limit. Nothing of a
message is used before all of that holds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.numpy import save
from safetensors.torch import load
from torch import Tensor

from colonnade.errors import WireError
from colonnade.layout import canonical_all

VERSION = 1
LIMIT = 32_000_000  # bytes per message, in every engine alike, so that all send the same ones
HEADER_LIMIT = 2**20
ALLOWED = (torch.float16, torch.float32, torch.float64, torch.int8, torch.uint8, torch.int32, torch.int64)


def encode(header: Mapping[str, Any], arrays: Mapping[str, Tensor], *, known_finite: bool = False) -> bytes:
    """One message as bytes; refuses dtypes that may not travel and non-finite numbers.

    A gate that has just checked a whole cohort's numbers says `known_finite`, and they are not checked again.
    """
    ready = {}
    for name, array in arrays.items():
        _check(name, array, known_finite)
        ready[name] = array.detach().cpu().contiguous().numpy()  # the same bytes as torch's writer, in less time
    metadata = {"colonnade": json.dumps({"version": VERSION, **header}, separators=(",", ":"))}
    payload = save(ready, metadata)
    if len(payload) > LIMIT:
        raise WireError(f"a message of {len(payload):,} bytes is over the limit of {LIMIT:,}; use a smaller batch")
    return payload


def decode(payload: bytes, limit: int = LIMIT) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Header and arrays (canonical) of a message, or `WireError` with the reason; nothing is executed."""
    if len(payload) > limit:
        raise WireError(f"a message of {len(payload):,} bytes is over the limit of {limit:,}")
    header = _header(payload)
    try:
        arrays = load(payload)
    except (SafetensorError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise WireError(f"the message is damaged: {error}") from None
    for name, array in arrays.items():
        _check(name, array)
    return header, canonical_all(arrays)


def _header(payload: bytes) -> dict[str, Any]:
    length = int.from_bytes(payload[:8], "little")
    if len(payload) < 8 or length > min(HEADER_LIMIT, len(payload) - 8):
        raise WireError("the message is truncated or not a message at all")
    try:
        metadata = json.loads(payload[8 : 8 + length])["__metadata__"]["colonnade"]
        header = json.loads(metadata)
    except (ValueError, KeyError, TypeError, RecursionError):
        raise WireError("the message has no readable header") from None
    if not isinstance(header, dict):
        raise WireError("the message header is not an object")
    if header.get("version") != VERSION:
        raise WireError(f"the message has protocol version {header.get('version')!r}; this is version {VERSION}")
    return header


def _check(name: str, array: Tensor, known_finite: bool = False) -> None:
    if array.dtype not in ALLOWED:
        raise WireError(f"array {name!r} has dtype {array.dtype}, which may not travel")
    if array.is_floating_point() and not known_finite and not all_finite(array):
        raise WireError(f"array {name!r} holds NaN or infinite values")


def all_finite(array: Tensor) -> bool:
    """Whether every number is finite.

    A finite sum has no NaN and no infinity in it, and takes one pass over memory instead of five; a sum may
    also overflow, so only if it is not finite is each number checked.
    """
    return bool(torch.isfinite(array.sum())) or bool(torch.isfinite(array).all())
