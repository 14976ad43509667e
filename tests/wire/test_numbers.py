"""Numbers of fewer bytes: bounded errors, the same bytes everywhere, and nothing else is taken for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from torch import Tensor

from colonnade.errors import WireError
from colonnade.wire.codec import decode, encode
from colonnade.wire.numbers import BITS, BLOCK, LARGEST, SCALE, NumberFormat, Numbers

FORMATS = ("float32", "float16", "int8")
SMALLER = ("float16", "int8")
shapes = array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=7) | st.sampled_from(
    [(2, BLOCK), (2, 2 * BLOCK + 3)]
)


def numbers_up_to(largest: float, width: int) -> st.SearchStrategy[Any]:
    kind = {32: np.float32, 64: np.float64}[width]
    return arrays(kind, shapes, elements=st.floats(-largest, largest, width=width))  # type: ignore[arg-type]


any_numbers = numbers_up_to(LARGEST, 64) | numbers_up_to(LARGEST, 32) | numbers_up_to(1.0, 32)


def largest_of_block(values: Tensor) -> Tensor:
    """The largest absolute value of each number's block, in the shape of the values: slowly, number by number."""
    row = values.reshape(1) if values.dim() == 0 else values
    out = torch.empty_like(row)
    for place in range(0, row.shape[-1], BLOCK):
        block = row[..., place : place + BLOCK]
        out[..., place : place + BLOCK] = block.abs().amax(dim=-1, keepdim=True)
    return out.reshape(values.shape)


def travelled(numbers: Numbers, values: Tensor) -> Tensor:
    header, got = decode(encode(numbers.header, numbers.encode({"v": values})))
    return numbers.read(header, got)["v"]


@given(any_numbers)
def test_the_error_keeps_to_its_bound(content: np.ndarray) -> None:
    values = torch.from_numpy(content)
    x, top = values.double(), largest_of_block(values.double())
    smallest = 2.0**-128  # half a step of the smallest scale
    bounds = {
        "float32": 2.0**-24 * x.abs() + 2.0**-150,
        "float16": 1.001 * 2.0**-11 * x.abs() + 2.0**-39 * top + smallest * 2.0**-21,
        "int8": top / 127 + smallest,
    }
    for name in FORMATS:
        got = travelled(Numbers(name, values.dtype), values)
        assert got.dtype is values.dtype
        assert got.shape == values.shape
        assert bool(((got.double() - x).abs() <= bounds[name]).all()), name


@given(any_numbers)
def test_what_was_rounded_is_not_rounded_again(content: np.ndarray) -> None:
    """Both sides may repeat what they hold, and it stays the same to the bit."""
    values = torch.from_numpy(content)
    for name in FORMATS:
        numbers = Numbers(name, values.dtype)
        once = travelled(numbers, values)
        assert torch.equal(travelled(numbers, once), once)


@given(arrays(np.float32, (4, 6), elements=st.floats(-(2.0**100), 2.0**100, width=32)))
def test_a_row_does_not_depend_on_its_neighbours(content: np.ndarray) -> None:
    values = torch.from_numpy(content)
    for name in SMALLER:
        numbers = Numbers(name, torch.float32)
        alone = torch.stack([travelled(numbers, row) for row in values])
        assert torch.equal(travelled(numbers, values), alone)


class TestRowsOfOneNumber:
    """Where they train, 128 of them share a scale."""

    @given(arrays(np.float32, st.integers(1, 300), elements=st.floats(-(2.0**100), 2.0**100, width=32)))
    def test_a_column_is_rounded_like_one_long_row(self, content: np.ndarray) -> None:
        row = torch.from_numpy(content)
        for name in SMALLER:
            numbers = Numbers(name, torch.float32)
            header, got = decode(encode(numbers.header, numbers.encode({"v": row[:, None]}, rows=0)))
            read = numbers.read(header, got)["v"]
            assert read.stride() == torch.empty_like(row[:, None], memory_format=torch.contiguous_format).stride()
            assert torch.equal(read[:, 0], travelled(numbers, row))

    @pytest.mark.parametrize("name", SMALLER)
    def test_parties_do_not_share_scales(self, name: Any) -> None:
        numbers = Numbers(name, torch.float32)
        values = torch.randn(3, 200, 1) * torch.tensor([1.0, 1e3, 1e6])[:, None, None]
        coded = numbers.encode({"v": values}, rows=1)
        together = numbers.decode(coded)["v"]
        for place in range(3):
            mine = {key: value[place] for key, value in coded.items()}
            assert torch.equal(numbers.decode(mine)["v"], together[place])
            alone = numbers.encode({"v": values[place]}, rows=0)
            assert all(torch.equal(mine[key], alone[key]) for key in alone)

    @pytest.mark.parametrize(("name", "size"), [("float16", 2), ("int8", 1)])
    def test_they_take_little_more_than_their_codes(self, name: Any, size: int) -> None:
        coded = Numbers(name).encode({"v": torch.randn(1000, 1)}, rows=0)
        assert sum(value.numel() * value.element_size() for value in coded.values()) == 1000 * size + 8

    def test_numbers_without_rows_keep_their_own(self) -> None:
        """(P, 1): one number of each party."""
        values = torch.tensor([[1.0], [2.0**20]])
        numbers = Numbers("int8")
        assert torch.equal(numbers.decode(numbers.encode({"v": values}, rows=1))["v"], values)

    @pytest.mark.parametrize("shape", [(1, 1), (1, 3), (2, 2), (2,)])
    def test_scales_that_do_not_fit(self, shape: tuple[int, ...]) -> None:
        numbers = Numbers("int8")
        coded = numbers.encode({"v": torch.randn(200, 1)}, rows=0)
        with pytest.raises(WireError, match="array 'v' needs scales of shape"):
            numbers.decode(coded | {"v" + SCALE: torch.zeros(shape, dtype=torch.uint8)})


def test_ties_go_to_even_codes() -> None:
    values = torch.tensor([127.0, 0.5, 1.5, 2.5, -0.5, -1.5])  # the scale is 1
    codes = Numbers("int8").encode({"v": values})
    assert codes["v"].tolist() == [127, 0, 2, 2, 0, -2]
    assert codes["v" + SCALE].tolist() == [127]


def test_the_scale_is_the_smallest_that_fits() -> None:
    tops = torch.tensor([[127.0], [127.5], [128.0], [0.0], [1e-45], [2.0**127]])
    codes = Numbers("int8").encode({"v": tops})
    assert codes["v" + SCALE].flatten().tolist() == [127, 128, 128, 0, 0, 248]
    assert codes["v"].flatten().tolist() == [127, 64, 64, 0, 0, 64]


@pytest.mark.parametrize("value", [65504.0, 65520.0, 1e6, 1e30, 1e-7, 1e-30])
def test_float16_neither_overflows_nor_vanishes(value: float) -> None:
    """Beyond 65504 a float16 is infinite, and below 6e-8 it is zero."""
    got = travelled(Numbers("float16"), torch.tensor([value, -value]))
    torch.testing.assert_close(got, torch.tensor([value, -value]), rtol=2.0**-11, atol=0)


@pytest.mark.parametrize("name", FORMATS)
def test_whole_numbers_are_left_alone(name: Any) -> None:
    sent = {"rows": torch.arange(5, dtype=torch.int32), "bytes": torch.arange(3, dtype=torch.uint8)}
    got = Numbers(name, torch.float64).encode(sent)
    assert got.keys() == sent.keys()
    assert all(torch.equal(got[key], sent[key]) for key in sent)


def test_full_numbers_are_as_before() -> None:
    values = torch.randn(3, 4, dtype=torch.float64)
    for numbers in (Numbers(), Numbers("full", torch.float64), Numbers("float32", torch.float32)):
        assert numbers.header == {}
        assert numbers.encode({"v": values})["v"] is values


@pytest.mark.parametrize(("name", "size"), [("float32", 240), ("float16", 121), ("int8", 61)])
def test_sixty_numbers_take_so_many_bytes(name: Any, size: int) -> None:
    coded = Numbers(name, torch.float64).encode({"v": torch.randn(10, 60, dtype=torch.float64)})
    assert sum(value.numel() * value.element_size() for value in coded.values()) == 10 * size


class TestRefusals:
    def good(self, name: Any = "int8") -> tuple[Numbers, dict[str, Any], dict[str, Tensor]]:
        numbers = Numbers(name, torch.float32)
        return numbers, dict(numbers.header), numbers.encode({"v": torch.randn(4, 3)})

    @pytest.mark.parametrize("said", ["full", "float16", "int4", 7, None])
    def test_numbers_that_were_not_agreed_on(self, said: Any) -> None:
        numbers, _, arrays = self.good()
        with pytest.raises(WireError, match="the run agreed on 'int8'"):
            numbers.read({"numbers": said}, arrays)

    def test_coded_numbers_where_none_were_agreed_on(self) -> None:
        _, header, arrays = self.good()
        with pytest.raises(WireError, match=r"numbers in 'int8'; the run agreed on 'full'"):
            Numbers().read(header, arrays)

    def test_a_missing_scale(self) -> None:
        numbers, header, arrays = self.good()
        del arrays["v" + SCALE]
        with pytest.raises(WireError, match=r"'v' needs scales of shape \(4, 1\) in bytes; got none"):
            numbers.read(header, arrays)

    def test_a_scale_without_numbers(self) -> None:
        numbers, header, arrays = self.good()
        with pytest.raises(WireError, match="the scale of numbers that are not there"):
            numbers.read(header, {"v" + SCALE: arrays["v" + SCALE]})

    @pytest.mark.parametrize("name", SMALLER)
    @pytest.mark.parametrize(
        "scale", [torch.zeros(4, 2, dtype=torch.uint8), torch.zeros(1, dtype=torch.uint8), torch.ones(4, 1)]
    )
    def test_a_scale_of_another_shape_or_kind(self, name: Any, scale: Tensor) -> None:
        numbers, header, arrays = self.good(name)
        with pytest.raises(WireError, match="'v' needs scales of shape"):
            numbers.read(header, arrays | {"v" + SCALE: scale})

    @pytest.mark.parametrize("name", SMALLER)
    def test_a_scale_that_would_make_numbers_infinite(self, name: Any) -> None:
        numbers, header, arrays = self.good(name)
        arrays["v" + SCALE][0] = 255
        with pytest.raises(WireError, match=r"'v' holds numbers beyond 2\^127"):
            numbers.read(header, arrays)

    def test_a_code_that_stands_for_nothing(self) -> None:
        numbers, header, arrays = self.good()
        arrays["v"][0, 0] = -128
        with pytest.raises(WireError, match="the code -128"):
            numbers.read(header, arrays)

    @pytest.mark.parametrize("name", FORMATS)
    def test_numbers_that_were_not_rounded(self, name: Any) -> None:
        numbers = Numbers(name, torch.float64)
        with pytest.raises(WireError, match=rf"'v' is torch.float64; the run agreed on numbers in '{name}'"):
            numbers.read(numbers.header, {"v": torch.randn(2, 2, dtype=torch.float64)})

    def test_numbers_that_are_too_large_do_not_fit(self) -> None:
        over = torch.tensor([LARGEST * 1.001], dtype=torch.float64)
        assert not Numbers("int8", torch.float64).fit(over)
        assert Numbers("full", torch.float64).fit(over)
        with pytest.raises(WireError, match=r"beyond 2\^127"):
            Numbers("float32", torch.float64).read({"numbers": "float32"}, {"v": over.float()})


class TestExact:
    """Arrays that arrive as they are, whatever becomes of the others."""

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    @pytest.mark.parametrize("name", ["float32", "float16", "int8"])
    def test_no_bit_changes(self, name: NumberFormat, dtype: torch.dtype) -> None:
        numbers = Numbers(name, dtype)
        values = {"v": torch.randn(2, 5, 3, dtype=dtype) * 1e30, "o": torch.randn(2, 5, 3, dtype=dtype)}
        coded = numbers.encode(values, rows=1, exact=["v"])
        mine = {key: value[1] for key, value in coded.items()}
        read = numbers.read(*decode(encode(numbers.header, mine)))
        assert torch.equal(read["v"], values["v"][1])
        assert torch.equal(read["o"], numbers.decode(numbers.encode({"o": values["o"]}, rows=1))["o"][1])

    def test_whole_numbers_arrive_as_they_are_but_for_those_of_codes(self) -> None:
        numbers = Numbers("int8")
        assert [numbers.rounds(dtype) for dtype in (torch.uint8, torch.int32, torch.int8, torch.float32)] == [
            False, False, True, True,
        ]  # fmt: skip
        assert not Numbers().rounds(torch.float32)

    def test_bits_of_no_numbers_are_refused(self) -> None:
        numbers = Numbers("int8")
        for bits in (torch.full((2, 2), 0x7FC00000, dtype=torch.int32), torch.zeros(2, 2, dtype=torch.int64)):
            with pytest.raises(WireError, match=r"are no bits of finite numbers in torch\.float32"):
                numbers.read(numbers.header, {"v" + BITS: bits})
        both = {"v" + BITS: torch.zeros(2, 2, dtype=torch.int32), "v": torch.zeros(2, 2, dtype=torch.uint8)}
        with pytest.raises(WireError, match="are the bits of numbers that are there, too"):
            numbers.read(numbers.header, both)
