"""Bytes of a message: a header of plain JSON values and named buffers, in one safetensors container.

Its Rust reader checks offsets and sizes; on top of that a message must carry our version and stay below a size
limit. Messages are written here, byte for byte as the library's own writer does it, which copies every number twice.
No torch in here, so that commands which only send notices start at once; `codec.py` has the tensors.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load

from colonnade.errors import WireError

VERSION = 1
Header = dict[str, Any]  # what a message says of itself; nothing in it is trusted
LIMIT = 32_000_000  # bytes per message, in every engine alike, so that all send the same ones
HEADER_LIMIT = 2**20
DAMAGE = (SafetensorError, ValueError, TypeError, KeyError, AttributeError)  # what safetensors raises about bytes
# What safetensors calls the kinds of numbers that may travel (little-endian), in the order in which it writes them.
_KINDS = {"<i8": "I64", "<f8": "F64", "<f4": "F32", "<i4": "I32", "<f2": "F16", "|i1": "I8", "|u1": "U8"}
_ORDER = {kind: place for place, kind in enumerate(_KINDS)}
_compact = json.JSONEncoder(separators=(",", ":"))
_plain = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)  # as the library's writer has names
_Shape = tuple[str, str, tuple[int, ...]]  # an array's name, kind and shape


def pack(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> bytes:
    """One message as bytes; what is in the arrays is for the caller to check."""
    order, places = _layout(tuple((name, array.dtype.str, array.shape) for name, array in arrays.items()))
    about = _plain.encode(_compact.encode({"version": VERSION, **header}))
    text = f'{{"__metadata__":{{"colonnade":{about}}}{places}}}'.encode()
    text += b" " * (-len(text) % 8)
    numbers = [np.ascontiguousarray(arrays[name]).data for name in order]
    size = sum(array.nbytes for array in arrays.values()) + 8 + len(text)
    if size > LIMIT:
        raise WireError(f"a message of {size:,} bytes is over the limit of {LIMIT:,}; use a smaller batch")
    return b"".join([len(text).to_bytes(8, "little"), text, *numbers])


@functools.lru_cache(maxsize=256)  # the messages of a round have few layouts
def _layout(shapes: tuple[_Shape, ...]) -> tuple[list[str], str]:
    """In which order arrays are written, and where each of them lies."""
    for name, kind, _ in shapes:
        if kind not in _KINDS:
            raise WireError(f"array {name!r} has dtype {kind}, which may not travel")
    ordered, places, end = sorted(shapes, key=lambda shape: (_ORDER[shape[1]], shape[0])), "", 0
    for name, kind, sizes in ordered:
        begin, end = end, end + math.prod(sizes) * int(kind[2:])
        place = {"dtype": _KINDS[kind], "shape": sizes, "data_offsets": (begin, end)}
        places += f",{_plain.encode(name)}:{_plain.encode(place)}"
    return [name for name, _, _ in ordered], places


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
