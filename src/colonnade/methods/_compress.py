"""Compressors: vectors (..., d) as few bytes, and back; three of them, and what all need to agree on.

    scalar   L levels per value, with subtractive dither: k = floor(x/(s D) + u + L/2), x' = s D (k + 1/2 - L/2 - u),
             D = 2/(L-1), u uniform in [-1/2, 1/2). The error is uniform, |x' - x| <= s/(L-1), whatever x is
    lattice  pairs of values at the nearest point of a hexagonal lattice of L x L points, dither uniform over its cell
    topk     the k = d log2(L)/32 values that are largest in absolute value, with their places

s is the largest absolute value of the vector, so negative values need no care. A code of log2(L) bits per value
(2 log2(L) per pair) is packed into bytes. The dither must be the same on both sides and need not be secret: it is a
hash of the run's key, a salt of one byte that travels with each vector, and the place of the value in it. Steps are
so wide that no point falls outside the L (or L x L) codes, dither included; at equal bytes this costs the lattice
more than its shape gains.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from colonnade.models.dropout import keyed_uniform
from colonnade.privacy.sealed import Array
from colonnade.randomness import key as stream_key

Kind = Literal["scalar", "lattice", "topk"]
Packed = dict[str, Tensor]  # by name, (..., width) each

_ROW = math.sqrt(3) / 2  # distance of two rows of a hexagonal lattice with step 1


def arrays(kind: Kind, levels: int, width: int) -> dict[str, Array]:
    """What a compressed vector of so many values is made of."""
    if kind == "topk":
        kept = top(levels, width)
        return {"values": Array(kept), "places": Array(kept, torch.uint8 if width <= 256 else torch.int32)}
    codes, bits = _codes(kind, levels, width)
    return {
        "codes": Array(-(-codes * bits // 8), torch.uint8),
        "scale": Array(1, torch.float32),
        "salt": Array(1, torch.uint8),
    }


def compress(kind: Kind, levels: int, x: Tensor, salt: Tensor, key: Tensor) -> Packed:
    """Vectors x (..., d) as small arrays; `salt` (..., 1) in bytes chooses their dither, `key` is the run's."""
    if kind == "topk":
        order = x.abs().sort(dim=-1, descending=True, stable=True).indices  # stable: ties as in every engine
        places = order[..., : top(levels, x.shape[-1])]
        return {
            "values": x.gather(-1, places),
            "places": places.to(torch.uint8 if x.shape[-1] <= 256 else torch.int32),
        }
    scale = x.abs().amax(dim=-1, keepdim=True).to(torch.float32)
    unit = x / scale.to(x.dtype).clamp(min=torch.finfo(torch.float32).tiny)
    make = _to_levels if kind == "scalar" else _to_lattice
    _, bits = _codes(kind, levels, x.shape[-1])
    return {"codes": pack(make(unit, levels, salt, key), bits), "scale": scale, "salt": salt.to(torch.uint8)}


def expand(
    kind: Kind, levels: int, packed: Mapping[str, Tensor], width: int, key: Tensor, dtype: torch.dtype
) -> Tensor:
    """The inverse of `compress` but for what was lost: (..., d)."""
    if kind == "topk":
        values = packed["values"].to(dtype)
        out = values.new_zeros((*values.shape[:-1], width))
        return out.scatter_(-1, packed["places"].to(torch.int64).clamp(0, width - 1), values)
    count, bits = _codes(kind, levels, width)
    codes = unpack(packed["codes"].to(torch.uint8), bits, count)
    read = _from_levels if kind == "scalar" else _from_lattice
    return read(codes, levels, packed["salt"], key, dtype)[..., :width] * packed["scale"].to(dtype)


def top(levels: int, width: int) -> int:
    """How many values top-k keeps, for the bytes that L levels take (the places come on top)."""
    return max(1, round(width * math.log2(levels) / 32))


def first_salt(like: Tensor, keys: Tensor, count: Tensor) -> Tensor:
    """A salt (P, B, 1) for each vector of `like` (P, B, d), new for each count (P,) of messages; keys (P, 1, 1)."""
    return (keyed_uniform(like[..., :1], keys, count.view(-1, 1, 1)) * 256).to(torch.uint8)


def shared_key(seed: int, party: str = "") -> int:
    """The key of the dither (no party), or of a party's salts."""
    return stream_key(seed, "dither", party) >> 66


def pack(codes: Tensor, bits: int) -> Tensor:
    """Codes (..., n) of so many bits as bytes, without gaps; the last byte is filled up with zeros."""
    flags = (codes.to(torch.int64).unsqueeze(-1) >> torch.arange(bits, device=codes.device)) & 1
    flat = flags.flatten(-2)
    flat = torch.nn.functional.pad(flat, (0, -flat.shape[-1] % 8))
    weights = 2 ** torch.arange(8, device=codes.device)
    packed: Tensor = (flat.unflatten(-1, (-1, 8)) * weights).sum(dim=-1)
    return packed.to(torch.uint8)


def unpack(packed: Tensor, bits: int, count: int) -> Tensor:
    """The inverse of `pack`."""
    flags = (packed.to(torch.int64).unsqueeze(-1) >> torch.arange(8, device=packed.device)) & 1
    flat = flags.flatten(-2)[..., : count * bits]
    codes: Tensor = (flat.unflatten(-1, (count, bits)) * 2 ** torch.arange(bits, device=packed.device)).sum(dim=-1)
    return codes


def _codes(kind: Kind, levels: int, width: int) -> tuple[int, int]:
    """How many codes a vector has, and the bits of one."""
    bits = round(math.log2(levels))
    return (width, bits) if kind == "scalar" else ((width + 1) // 2, 2 * bits)


def _dither(width: int, salt: Tensor, key: Tensor, dtype: torch.dtype) -> Tensor:
    """(..., width) uniform numbers in [0, 1): a function of key, salt and place."""
    flat = salt.to(torch.int64).reshape(-1, 1)
    like = torch.empty((flat.shape[0], width), dtype=dtype, device=salt.device)
    return keyed_uniform(like, key.view(1, 1), flat).view(*salt.shape[:-1], width)  # by place in the vector only


def _to_levels(unit: Tensor, levels: int, salt: Tensor, key: Tensor) -> Tensor:
    u = _dither(unit.shape[-1], salt, key, unit.dtype) - 0.5
    return (unit * ((levels - 1) / 2) + u + levels / 2).floor().clamp(0, levels - 1)


def _from_levels(codes: Tensor, levels: int, salt: Tensor, key: Tensor, dtype: torch.dtype) -> Tensor:
    u = _dither(codes.shape[-1], salt, key, dtype) - 0.5
    return (codes.to(dtype) + 0.5 - levels / 2 - u) * (2 / (levels - 1))


def _to_lattice(unit: Tensor, levels: int, salt: Tensor, key: Tensor) -> Tensor:
    pairs = torch.nn.functional.pad(unit, (0, unit.shape[-1] % 2)).unflatten(-1, (-1, 2)) / lattice_step(levels)
    at = pairs + _cell(pairs.shape[-2], salt, key, unit.dtype) - _corner(levels, pairs)
    row, column = _nearest(at, levels)
    return row * levels + column


def _from_lattice(codes: Tensor, levels: int, salt: Tensor, key: Tensor, dtype: torch.dtype) -> Tensor:
    row, column = codes // levels, codes % levels
    points = _points(row.to(dtype), column.to(dtype))
    points = points + _corner(levels, points) - _cell(codes.shape[-1], salt, key, dtype)
    return (points * lattice_step(levels)).flatten(-2)


def lattice_step(levels: int) -> float:
    """The distance of neighbours with which L x L points cover the square [-1, 1]^2 and the dither around it."""
    return 1 / ((levels - 1) * _ROW / 2 - 1 / (2 * math.sqrt(3)))


def _corner(levels: int, like: Tensor) -> Tensor:
    """Where row 0 and column 0 lie, in steps, so that the points stand evenly around 0."""
    return like.new_tensor([-(levels - 1) / 2 - 0.25, -(levels - 1) / 2 * _ROW])


def _points(row: Tensor, column: Tensor) -> Tensor:
    """(..., 2) in steps: odd rows are half a step further right."""
    return torch.stack([column + 0.5 * (row % 2), row * _ROW], dim=-1)


def _nearest(at: Tensor, levels: int | None) -> tuple[Tensor, Tensor]:
    """Row and column of the nearest lattice point (of L x L, or of all): the better of the even and the odd rows'."""
    found = []
    for odd in (0, 1):
        row = 2 * ((at[..., 1] / _ROW - odd) / 2).round() + odd
        column = (at[..., 0] - 0.5 * odd).round()
        if levels is not None:
            row, column = row.clamp(odd, levels - 2 + odd), column.clamp(0, levels - 1)
        found.append((row, column, (at - _points(row, column)).square().sum(dim=-1)))
    (row_0, column_0, gap_0), (row_1, column_1, gap_1) = found
    even = gap_0 <= gap_1
    return torch.where(even, row_0, row_1), torch.where(even, column_0, column_1)


def _cell(pairs: int, salt: Tensor, key: Tensor, dtype: torch.dtype) -> Tensor:
    """(..., pairs, 2) uniform over the cell of a lattice point: any fundamental cell, folded around the nearest."""
    w = _dither(2 * pairs, salt, key, dtype).unflatten(-1, (pairs, 2))
    at = torch.stack([w[..., 0] + w[..., 1] / 2, w[..., 1] * _ROW], dim=-1)
    return at - _points(*_nearest(at, None))
