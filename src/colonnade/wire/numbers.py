"""How numbers travel: a stage between what may leave and its bytes. Both sides go on with what it gave.

    full      as they are computed (training.dtype)
    float32   rounded to float32
    float16   x = c 2^e, c in float16, |c| < 2^15
    int8      x = c 2^e, c a whole number from -127 to 127
    int8_blocks   the same, with blocks of 32 numbers that go on from row to row

float16 and int8 cut the last axis of an array into blocks of at most 128 numbers. A block has one scale 2^e, which
travels as the byte e + 127: the smallest that lets the largest absolute value of the block fit, but not below 2^-127.
So what becomes of a row does not depend on which other rows are in the message, and a scale costs one byte. Where rows
have one number or few, that is as much as the numbers: int8_blocks gives up the former for the latter. Scaling by
a power of two is exact and all rounding is to the nearest, ties to even, on the CPU: every engine and machine makes
the same bytes. With `top` the largest absolute value of a block,

    float16   |x' - x| <= 1.001 2^-11 |x| + 2^-39 top         int8   |x' - x| <= top / 127

but for numbers around 2^-127, where half a step of the smallest scale is added. A scale that is no power of two would
halve the step of int8 at best, takes four bytes, and 60 numbers are 61 bytes here. Numbers beyond 2^127 are
refused, never made infinite.

Rounding uses nothing but what may leave anyway. So no epsilon changes by it, also where noise is on a grid
(`privacy/grid.py`): no function of a release costs anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from colonnade.config import Settings
from colonnade.errors import WireError

NumberFormat = Literal["full", "float32", "float16", "int8", "int8_blocks"]
BLOCK = 128  # numbers of a row that share a scale, at most
SHARED = 32  # numbers that do so across rows
SCALE = ":scale"  # what the array of scales has behind the name of the numbers
BIAS = 127  # of the exponents: a byte holds -127 to 128
LARGEST = 2.0**127  # what travels in fewer bytes; a float32 can hold it, and so can its neighbours on any grid here
_DOUBLE_BIAS, _DOUBLE_BITS = 1023, 52  # a power of two as a float64
_CODES = {"float32": torch.float32, "float16": torch.float16, "int8": torch.int8, "int8_blocks": torch.int8}
_BITS = {"float16": 15, "int8": 7, "int8_blocks": 7}  # codes are below two to this power
_FULLEST = {"float16": 1.0, "int8": 127 / 128, "int8_blocks": 127 / 128}  # how much of it a code may reach


class WireSettings(Settings):
    """What is done to messages on their way."""

    numbers: NumberFormat = Field(
        "full",
        description="numbers of uploads and replies; full: in training.dtype; float16 and int8: with a scale of one "
        "byte per row; int8_blocks: per 32 numbers, also of several rows; both sides go on with the rounded ones",
    )


@dataclass(frozen=True)
class Numbers:
    """The numbers of one run's messages, in both directions."""

    name: NumberFormat = "full"
    dtype: torch.dtype = torch.float32  # that the run computes in

    @property
    def full(self) -> bool:
        """Whether numbers travel as they are computed."""
        return self.name == "full" or _CODES[self.name] is self.dtype

    @property
    def header(self) -> dict[str, str]:
        """What a message says of its numbers; nothing, if they are as computed."""
        return {} if self.full else {"numbers": self.name}

    def reply(self, number: int) -> Numbers:
        """Those of the reply in a request: the one before round 1 travels in full, since it may be the labels."""
        return Numbers(dtype=self.dtype) if number <= 1 else self

    def fit(self, values: Tensor) -> bool:
        """Whether finite numbers are small enough to travel so."""
        return self.full or not values.numel() or float(values.abs().max()) <= LARGEST

    def encode(self, arrays: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Arrays as they travel: numbers as codes, and their scales beside them; whole numbers are left alone.

        Arrays are those of one message: where blocks go on from row to row, they may not be cut afterwards.
        """
        out: dict[str, Tensor] = {}
        for name, value in arrays.items():
            if self.full or not value.is_floating_point():
                out[name] = value
            elif self.name == "float32":
                out[name] = value.detach().cpu().to(torch.float32)
            else:
                out[name], out[name + SCALE] = self._scaled(value.detach().cpu())
        return out

    def encode_each(self, arrays: Mapping[str, Tensor], parties: int) -> dict[str, Tensor]:
        """Arrays (P, ...) of several parties as they travel, each party's by itself."""
        if not self._shares:
            return self.encode(arrays)
        each = [self.encode({name: value[place] for name, value in arrays.items()}) for place in range(parties)]
        return {name: torch.stack([one[name] for one in each]) for name in each[0]}

    def decode_each(self, arrays: Mapping[str, Tensor], parties: int) -> dict[str, Tensor]:
        """The inverse of `encode_each`."""
        if not self._shares:
            return self.decode(arrays)
        each = [self.decode({name: value[place] for name, value in arrays.items()}) for place in range(parties)]
        return {name: torch.stack([one[name] for one in each]) for name in each[0]}

    @property
    def _shares(self) -> bool:
        """Whether rows share scales."""
        return self.name == "int8_blocks"

    def decode(self, arrays: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The inverse of `encode`, but for what was rounded; `WireError` if codes and scales do not fit each other."""
        if self.full:
            return dict(arrays)
        numbers = {name: value for name, value in arrays.items() if not name.endswith(SCALE)}
        for name in arrays:
            if name.endswith(SCALE) and name.removesuffix(SCALE) not in numbers:
                raise WireError(f"array {name!r} is the scale of numbers that are not there")
        return {name: self._plain(name, value, arrays.get(name + SCALE)) for name, value in numbers.items()}

    def read(self, header: Mapping[str, Any], arrays: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The arrays of a message that arrived, if its numbers are those that the run agreed on."""
        stated = header.get("numbers", "full")
        if stated != self.header.get("numbers", "full"):
            raise WireError(f"numbers in {str(stated)[:32]!r}; the run agreed on {self.name!r}")
        return self.decode(arrays)

    def _scaled(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Codes of the values' shape, and the exponents of their blocks."""
        blocks = self._blocks(values.double())  # (..., blocks, size)
        top = blocks.abs().amax(dim=-1) if blocks.numel() else blocks.new_zeros(blocks.shape[:-1])
        share, power = torch.frexp(top)  # top = share 2^power, share in [1/2, 1)
        exponent = power - _BITS[self.name] + (share > _FULLEST[self.name])
        exponent = torch.where(top == 0, -BIAS, exponent.clamp(min=-BIAS))
        codes = blocks * _power_of_two(-exponent).unsqueeze(-1)
        codes = codes.float() if self.name == "float16" else codes.round()
        return self._whole(codes, values.shape).to(_CODES[self.name]), (exponent + BIAS).to(torch.uint8)

    def _blocks(self, values: Tensor) -> Tensor:
        """(..., n) -> (..., blocks, size); where rows share scales, all numbers in one row."""
        return _blocks(values.reshape(-1), SHARED) if self._shares else _blocks(values, BLOCK)

    def _whole(self, blocks: Tensor, shape: torch.Size) -> Tensor:
        """The inverse of `_blocks`."""
        return blocks.flatten()[: shape.numel()].reshape(shape) if self._shares else _unblocked(blocks, shape)

    def _plain(self, name: str, codes: Tensor, scale: Tensor | None) -> Tensor:
        wanted = _CODES[self.name]
        whole = not codes.is_floating_point() and codes.dtype is not wanted
        if whole and scale is None:
            return codes
        if codes.dtype is not wanted:
            raise WireError(f"array {name!r} is {codes.dtype}; the run agreed on numbers in {self.name!r}")
        values = codes.double() if self.name == "float32" else self._unscaled(name, codes, scale)
        if not self.fit(values):
            raise WireError(f"array {name!r} holds numbers beyond 2^127; its scale is damaged, or it was never rounded")
        return values.to(self.dtype)

    def _unscaled(self, name: str, codes: Tensor, scale: Tensor | None) -> Tensor:
        blocks = self._blocks(codes.double())
        if scale is None or scale.dtype is not torch.uint8 or scale.shape != blocks.shape[:-1]:
            came = "none" if scale is None else f"{scale.dtype} of shape {tuple(scale.shape)}"
            raise WireError(f"array {name!r} needs scales of shape {tuple(blocks.shape[:-1])} in bytes; got {came}")
        if codes.dtype is torch.int8 and bool((codes == -128).any()):
            raise WireError(f"array {name!r} holds the code -128, which stands for no number")
        return self._whole(blocks * _power_of_two(scale.to(torch.int64) - BIAS).unsqueeze(-1), codes.shape)


def _blocks(values: Tensor, most: int) -> Tensor:
    """(..., n) -> (..., blocks, size), filled up with zeros; a single number is a block."""
    row = values.reshape(1) if values.dim() == 0 else values
    width = row.shape[-1]
    if width <= most:
        return row.unsqueeze(-2)
    padded = torch.nn.functional.pad(row, (0, -width % most))
    return padded.view(*row.shape[:-1], -1, most)


def _unblocked(blocks: Tensor, shape: torch.Size) -> Tensor:
    flat = blocks.flatten(-2)
    return flat[..., : shape[-1]].contiguous() if len(shape) else flat.reshape(())


def _power_of_two(exponent: Tensor) -> Tensor:
    """2^exponent as float64, exactly, from its bits."""
    bits: Tensor = (exponent.to(torch.int64) + _DOUBLE_BIAS) << _DOUBLE_BITS
    return bits.view(torch.float64)
