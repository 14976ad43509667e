"""How numbers travel: a stage between what may leave and its bytes. Both sides go on with what it gave.

    full      as they are computed (training.dtype)
    float32   rounded to float32
    float16   x = c 2^e, c in float16, |c| < 2^15
    int8      x = c 2^e, c a whole number from -127 to 127

The last two cut the last axis of an array into blocks of at most 128 numbers. A block has one scale 2^e, which
travels as the byte e + 127: the smallest that lets the largest absolute value of the block fit, but not below 2^-127.
So what becomes of a row does not depend on which other rows are in the message, and a scale costs one byte.

Rows of one number would need as many scales as numbers. Where they train, 128 rows after each other are a block
instead: an upload of training and a reply are about rows that everybody agreed on, in their order. What a party says of
rows to evaluate or to predict keeps a scale per row, so that nobody's prediction depends on who else was asked about.

Arrays that must arrive as they are (columns of the label holder's own party, which trees read) travel as the bits of
their numbers, as whole numbers, which no rounding touches.

Scaling by a power of two is exact and all rounding is to the nearest, ties to even, on the CPU: every engine and
machine makes the same bytes. With `top` the largest absolute value of a block,

    float16   |x' - x| <= 1.001 2^-11 |x| + 2^-39 top         int8   |x' - x| <= top / 127

but for numbers around 2^-127, where half a step of the smallest scale is added. A scale that is no power of two would
halve the step of int8 at best, takes four bytes, and 60 numbers are 61 bytes here. Numbers beyond 2^127 are
refused, never made infinite.

Rounding uses nothing but what may leave anyway. So no epsilon changes by it, also where noise is on a grid
(`privacy/grid.py`): no function of a release costs anything.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from colonnade.config import Settings
from colonnade.errors import WireError

NumberFormat = Literal["full", "float32", "float16", "int8"]
BLOCK = 128  # numbers that share a scale, at most
SCALE = ":scale"  # what the array of scales has behind the name of the numbers,
BITS = ":bits"  # and an array of bits
BIAS = 127  # of the exponents: a byte holds -127 to 128
LARGEST = 2.0**127  # what travels in fewer bytes; a float32 can hold it, and so can its neighbours on any grid here
_DOUBLE_BIAS, _DOUBLE_BITS = 1023, 52  # a power of two as a float64
_CODES = {"float32": torch.float32, "float16": torch.float16, "int8": torch.int8}
_WHOLE = {torch.float32: torch.int32, torch.float64: torch.int64}  # in which their bits travel
_BITS = {"float16": 15, "int8": 7}  # codes are below two to this power
_FULLEST = {"float16": 1.0, "int8": 127 / 128}  # how much of it a code may reach


class WireSettings(Settings):
    """What is done to messages on their way."""

    numbers: NumberFormat = Field(
        "full",
        description="numbers of uploads and replies; full: in training.dtype; float16 and int8: with a scale of one "
        "byte per row, or per 128 rows of one number that train; both sides go on with the rounded ones",
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

    def rounds(self, dtype: torch.dtype) -> bool:
        """Whether an array of its own type would not arrive as it is: whole numbers do, but for those of codes."""
        return not self.full and (dtype.is_floating_point or dtype is _CODES[self.name])

    def fit(self, values: Tensor) -> bool:
        """Whether finite numbers are small enough to travel so."""
        return self.full or not values.numel() or float(values.abs().max()) <= LARGEST

    def encode(
        self, arrays: Mapping[str, Tensor], rows: int | None = None, exact: Collection[str] = ()
    ) -> dict[str, Tensor]:
        """Arrays as they travel: numbers as codes, and their scales beside them; whole numbers are left alone.

        Blocks lie behind the axis of the parties, so arrays (P, B, ...) of several may be cut afterwards.

        Args:
            arrays: by name.
            rows: the axis of the rows that train, whose only numbers share scales; None: every row has its own.
            exact: names of arrays in the run's numbers that arrive as they are.
        """
        out: dict[str, Tensor] = {}
        for name, value in arrays.items():
            if self.full or not value.is_floating_point():
                out[name] = value
            elif name in exact:
                out[name + BITS] = value.detach().cpu().contiguous().view(_WHOLE[self.dtype])
            elif self.name == "float32":
                out[name] = value.detach().cpu().to(torch.float32)
            else:
                host = value.detach().cpu()
                shared = rows is not None and host.dim() == rows + 2 and host.shape[-1] == 1
                codes, scale = self._scaled(host.reshape(_turned(host)) if shared else host)
                out[name], out[name + SCALE] = codes.reshape(host.shape), scale
        return out

    def decode(self, arrays: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The inverse of `encode`, but for what was rounded; `WireError` if codes and scales do not fit each other."""
        if self.full:
            return dict(arrays)
        numbers = {name: value for name, value in arrays.items() if not name.endswith((SCALE, BITS))}
        for name in arrays:
            if name.endswith(SCALE) and name.removesuffix(SCALE) not in numbers:
                raise WireError(f"array {name!r} is the scale of numbers that are not there")
            if name.endswith(BITS) and name.removesuffix(BITS) in numbers:
                raise WireError(f"array {name!r} are the bits of numbers that are there, too")
        exact = {name.removesuffix(BITS): self._exact(name, v) for name, v in arrays.items() if name.endswith(BITS)}
        return exact | {name: self._plain(name, value, arrays.get(name + SCALE)) for name, value in numbers.items()}

    def read(self, header: Mapping[str, Any], arrays: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The arrays of a message that arrived, if its numbers are those that the run agreed on."""
        stated = header.get("numbers", "full")
        if stated != self.header.get("numbers", "full"):
            raise WireError(f"numbers in {str(stated)[:32]!r}; the run agreed on {self.name!r}")
        return self.decode(arrays)

    def _scaled(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Codes of the values' shape, and the exponents of their blocks."""
        blocks = _blocks(values.double())  # (..., blocks, size)
        top = blocks.abs().amax(dim=-1) if blocks.numel() else blocks.new_zeros(blocks.shape[:-1])
        share, power = torch.frexp(top)  # top = share 2^power, share in [1/2, 1)
        exponent = power - _BITS[self.name] + (share > _FULLEST[self.name])
        exponent = torch.where(top == 0, -BIAS, exponent.clamp(min=-BIAS))
        codes = blocks * _power_of_two(-exponent).unsqueeze(-1)
        codes = codes.round() if self.name == "int8" else codes.float()
        return _unblocked(codes, values.shape).to(_CODES[self.name]), (exponent + BIAS).to(torch.uint8)

    def _exact(self, name: str, bits: Tensor) -> Tensor:
        wanted = _WHOLE[self.dtype]
        values = bits.view(self.dtype) if bits.dtype is wanted else None
        if values is None or not bool(torch.isfinite(values).all()):
            raise WireError(f"array {name!r} are no bits of finite numbers in {self.dtype}")
        return values

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
        if scale is not None and _is_shared(codes, scale):
            return self._unscaled(name, codes.reshape(_turned(codes)), scale).reshape(codes.shape)
        blocks = _blocks(codes.double())
        if scale is None or scale.dtype is not torch.uint8 or scale.shape != blocks.shape[:-1]:
            came = "none" if scale is None else f"{scale.dtype} of shape {tuple(scale.shape)}"
            raise WireError(f"array {name!r} needs scales of shape {tuple(blocks.shape[:-1])} in bytes; got {came}")
        if self.name == "int8" and bool((codes == -128).any()):
            raise WireError(f"array {name!r} holds the code -128, which stands for no number")
        return _unblocked(blocks * _power_of_two(scale.to(torch.int64) - BIAS).unsqueeze(-1), codes.shape)


def _turned(column: Tensor) -> tuple[int, ...]:
    """The shape (..., 1, B) of a column (..., B, 1) as a row. A transposed view would have strides of its own."""
    return (*column.shape[:-2], 1, column.shape[-2])


def _is_shared(codes: Tensor, scale: Tensor) -> bool:
    """Whether rows of one number (..., B, 1) have scales (..., 1, blocks); a single row has its own either way."""
    column = codes.dim() > 1 and codes.shape[-1] == 1 and codes.shape[-2] > 1
    return column and scale.shape[:-1] == (*codes.shape[:-2], 1)


def _blocks(values: Tensor) -> Tensor:
    """(..., n) -> (..., blocks, size), filled up with zeros; a single number is a block."""
    row = values.reshape(1) if values.dim() == 0 else values
    width = row.shape[-1]
    if width <= BLOCK:
        return row.unsqueeze(-2)
    padded = torch.nn.functional.pad(row, (0, -width % BLOCK))
    return padded.view(*row.shape[:-1], -1, BLOCK)


def _unblocked(blocks: Tensor, shape: torch.Size) -> Tensor:
    flat = blocks.flatten(-2)
    return flat[..., : shape[-1]].contiguous() if len(shape) else flat.reshape(())


def _power_of_two(exponent: Tensor) -> Tensor:
    """2^exponent as float64, exactly, from its bits."""
    bits: Tensor = (exponent.to(torch.int64) + _DOUBLE_BIAS) << _DOUBLE_BITS
    return bits.view(torch.float64)
