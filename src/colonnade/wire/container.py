"""Bytes of a message: a header of plain JSON values and named buffers, in one safetensors container.

Its Rust reader checks offsets and sizes; on top of that a message must carry our version and stay below a size
limit. No torch in here, so that commands which only send notices start at once; `codec.py` has the tensors.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from colonnade.errors import WireError

VERSION = 1
Header = dict[str, Any]  # what a message says of itself; nothing in it is trusted
LIMIT = 32_000_000  # bytes per message, in every engine alike, so that all send the same ones
HEADER_LIMIT = 2**20
DAMAGE = (SafetensorError, ValueError, TypeError, KeyError, AttributeError)  # what safetensors raises about bytes


def pack(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> bytes:
    """One message as bytes; what is in the arrays is for the caller to check."""
    metadata = {"colonnade": json.dumps({"version": VERSION, **header}, separators=(",", ":"))}
    payload = save(dict(arrays), metadata)
    if len(payload) > LIMIT:
        raise WireError(f"a message of {len(payload):,} bytes is over the limit of {LIMIT:,}; use a smaller batch")
    return payload


def pack_blobs(header: Mapping[str, Any], blobs: Mapping[str, bytes]) -> bytes:
    """A message of opaque bytes."""
    return pack(header, {name: np.frombuffer(blob, dtype=np.uint8) for name, blob in blobs.items()})


def read_header(payload: bytes, limit: int = LIMIT) -> Header:
    """The header of a message, or `WireError` with the reason; nothing is executed."""
    if len(payload) > limit:
        raise WireError(f"a message of {len(payload):,} bytes is over the limit of {limit:,}")
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


def unpack_blobs(payload: bytes) -> tuple[Header, dict[str, bytes]]:
    """Header and opaque bytes of a message, or `WireError` with the reason."""
    header = read_header(payload)
    try:
        arrays = load(payload)
    except DAMAGE as error:
        raise WireError(f"the message is damaged: {error}") from None
    for name, array in arrays.items():
        if array.dtype != np.uint8:
            raise WireError(f"{name!r} is an array of {array.dtype}; needed bytes")
    return header, {name: array.tobytes() for name, array in arrays.items()}
