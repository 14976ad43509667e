"""The codec: what goes in comes out, and whatever else comes in is a WireError and nothing worse."""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from safetensors.numpy import save as save_arrays
from safetensors.torch import save

from colonnade.errors import WireError
from colonnade.wire.codec import ALLOWED, decode, encode
from colonnade.wire.container import VERSION, pack

names = st.text(min_size=1, max_size=10).filter(lambda n: n != "__metadata__")
kinds = st.sampled_from([np.float16, np.float32, np.float64, np.int8, np.uint8, np.int32, np.int64])
shapes = array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5)
plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
headers = st.dictionaries(st.text(max_size=6).filter(lambda n: n != "version"), plain, max_size=4)


def finite_arrays() -> st.SearchStrategy[np.ndarray]:
    def of(kind: Any) -> st.SearchStrategy[np.ndarray]:
        width = np.dtype(kind).itemsize * 8
        elements = (
            st.floats(allow_nan=False, allow_infinity=False, width=width)  # type: ignore[arg-type]
            if np.issubdtype(kind, np.floating)
            else None
        )
        return arrays(kind, shapes, elements=elements)

    return kinds.flatmap(of)


@given(headers, st.dictionaries(names, finite_arrays(), max_size=4))
def test_what_goes_in_comes_out(header: dict[str, Any], content: dict[str, np.ndarray]) -> None:
    sent = {name: torch.from_numpy(value) for name, value in content.items()}
    payload = encode(header, sent)
    metadata = {"colonnade": json.dumps({"version": VERSION, **header}, separators=(",", ":"))}
    assert payload == save_arrays(content, metadata)  # byte for byte as the library's own writer
    got_header, got = decode(payload)
    assert got_header == {"version": VERSION, **header}
    assert got.keys() == sent.keys()
    for name, value in sent.items():
        assert got[name].dtype is value.dtype
        assert got[name].shape == value.shape
        assert torch.equal(got[name], value)


def test_only_kinds_that_may_travel_are_packed() -> None:
    for kind in (">f4", "f4,i4", "u4", "bool"):
        with pytest.raises(WireError, match=r"'x' has dtype .* may not travel"):
            pack({}, {"x": np.zeros(3, dtype=kind)})


def test_views_and_leaves_travel_as_their_values() -> None:
    x = torch.arange(12.0).view(3, 4)
    sent = {"turned": x.mT, "strided": x[:, ::2], "leaf": torch.ones(2, requires_grad=True)}
    _, got = decode(encode({}, sent))
    for name, value in sent.items():
        assert torch.equal(got[name], value.detach())


def test_equal_messages_are_equal_bytes() -> None:
    def message() -> bytes:
        return encode({"a": 1, "b": [2]}, {"x": torch.ones(2, 3), "y": torch.zeros(1)})

    assert message() == message()


MESSAGE = encode({"run": "r", "number": 3}, {"h": torch.arange(6.0).view(2, 3), "rows": torch.tensor([1, 2])})


def entry(**lies: Any) -> dict[str, Any]:
    """One line of a table of contents: a single float32 number."""
    return {"dtype": "F32", "shape": [1], "data_offsets": [0, 4], **lies}


class TestRefusals:
    @pytest.mark.parametrize("version", [0, 2, "1", None, 1.5])
    def test_another_version(self, version: Any) -> None:
        with pytest.raises(WireError, match="protocol version"):
            decode(encode({"version": version}, {}))

    @pytest.mark.parametrize("length", [*range(0, 16), len(MESSAGE) // 2, len(MESSAGE) - 1])
    def test_a_truncated_message(self, length: int) -> None:
        with pytest.raises(WireError):
            decode(MESSAGE[:length])

    def test_a_message_with_a_tail(self) -> None:
        with pytest.raises(WireError):
            decode(MESSAGE + b"more")

    def test_an_oversized_message(self) -> None:
        with pytest.raises(WireError, match="over the limit"):
            decode(MESSAGE, limit=len(MESSAGE) - 1)
        assert decode(MESSAGE, limit=len(MESSAGE))

    @pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
    @pytest.mark.parametrize("kind", [torch.float16, torch.float32, torch.float64])
    def test_non_finite_numbers_both_ways(self, bad: float, kind: torch.dtype) -> None:
        value = torch.tensor([1.0, bad]).to(kind)
        with pytest.raises(WireError, match="'v' holds NaN or infinite"):
            encode({}, {"v": value})
        metadata = {"colonnade": json.dumps({"version": VERSION})}
        with pytest.raises(WireError, match="'v' holds NaN or infinite"):
            decode(save({"v": value}, metadata))

    @pytest.mark.parametrize("kind", [torch.bool, torch.bfloat16, torch.int16, torch.complex64])
    def test_forbidden_dtypes_both_ways(self, kind: torch.dtype) -> None:
        value = torch.zeros(2).to(kind)
        assert kind not in ALLOWED
        with pytest.raises(WireError, match="may not travel"):
            encode({}, {"v": value})
        with pytest.raises(WireError):
            decode(save({"v": value}, {"colonnade": json.dumps({"version": VERSION})}))

    @pytest.mark.parametrize(
        "metadata",
        [None, {}, {"other": "{}"}, {"colonnade": "not json"}, {"colonnade": "[1]"}, {"colonnade": "1"}],
    )
    def test_a_foreign_safetensors_file(self, metadata: Any) -> None:
        with pytest.raises(WireError):
            decode(save({"v": torch.zeros(2)}, metadata))

    @pytest.mark.parametrize(
        "header",
        [
            {"v": entry(shape=[2])},
            {"v": entry(data_offsets=[4, 8])},
            {"v": entry(shape=[-1])},
            {"v": entry(shape=[2**62, 2**62])},
            {"v": entry(dtype="F999")},
            {"v": {"dtype": "F32", "shape": [1]}},
            {"v": 3},
            {"a": entry(), "b": entry()},
        ],
        ids=["length", "gap", "negative", "overflow", "dtype", "no offsets", "no entry", "overlap"],
    )
    def test_lying_headers(self, header: dict[str, Any]) -> None:
        told = {"__metadata__": {"colonnade": json.dumps({"version": VERSION})}, **header}
        body = json.dumps(told).encode()
        with pytest.raises(WireError):
            decode(struct.pack("<Q", len(body)) + body + bytes(4))

    def test_a_header_that_claims_gigabytes(self) -> None:
        with pytest.raises(WireError, match="truncated"):
            decode(struct.pack("<Q", 2**40) + b"{}")

    def test_a_deeply_nested_header(self) -> None:
        body = b"[" * 100_000
        with pytest.raises(WireError):
            decode(struct.pack("<Q", len(body)) + body)


def survives(payload: bytes) -> None:
    """Decoding either works or is a WireError; anything else is a hole."""
    try:
        header, content = decode(payload)
    except WireError:
        return
    assert header["version"] == VERSION
    assert all(value.dtype in ALLOWED for value in content.values())


@settings(max_examples=300)
@given(st.binary(max_size=200))
def test_random_bytes_are_refused(payload: bytes) -> None:
    with pytest.raises(WireError):
        decode(payload)


@settings(max_examples=300)
@given(st.binary(max_size=120))
def test_random_headers_are_refused(body: bytes) -> None:
    with pytest.raises(WireError):
        decode(struct.pack("<Q", len(body)) + body)


@settings(max_examples=500)
@given(st.lists(st.tuples(st.integers(0, len(MESSAGE) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_a_damaged_message_does_no_harm(changes: list[tuple[int, int]]) -> None:
    damaged = bytearray(MESSAGE)
    for place, value in changes:
        damaged[place] = value
    survives(bytes(damaged))


@settings(max_examples=200)
@given(st.integers(0, len(MESSAGE)), st.integers(0, len(MESSAGE)), st.binary(max_size=20))
def test_a_spliced_message_does_no_harm(start: int, end: int, piece: bytes) -> None:
    survives(MESSAGE[: min(start, end)] + piece + MESSAGE[max(start, end) :])


@settings(max_examples=200)
@given(
    st.dictionaries(
        st.sampled_from(["v", "__metadata__", "w"]),
        st.fixed_dictionaries(
            {},
            optional={
                "dtype": st.sampled_from(
                    ["F32", "F64", "BF16", "BOOL", "I64", "U8", "F8_E4M3", "F4", "C64", "", None, 3]
                ),
                "shape": st.lists(st.integers(-2, 5) | st.text(max_size=2), max_size=3) | st.none(),
                "data_offsets": st.lists(st.integers(-2, 20), max_size=3) | st.none(),
                "colonnade": st.sampled_from(['{"version": 1}', "{}", "", "null"]) | st.integers(),
            },
        ),
        max_size=3,
    ),
    st.binary(max_size=24),
)
def test_made_up_tables_of_contents_do_no_harm(table: dict[str, Any], body: bytes) -> None:
    head = json.dumps(table).encode()
    survives(struct.pack("<Q", len(head)) + head + body)
