"""Cutting a long list of blinded ids into parts that travel and are worked on one by one.

Parts are made from a random order and all but the last have the same length, so neither the order nor the
lengths say anything about the ids. (Buckets by a hash of the id would: a nearly empty bucket is part of an id.)
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from colonnade.align.private import POINT
from colonnade.errors import WireError

PART = 2048  # ids per part: a quarter of a second of work, and 66 KB on the wire
ROWS_PART = 2**20  # row numbers per part: 8 MiB

S = TypeVar("S", bound=Sequence[object])


def random_order(count: int) -> np.ndarray:
    """0..count-1 in an order nobody can foresee."""
    keys = np.frombuffer(secrets.token_bytes(8 * count), dtype=np.uint64)
    return np.argsort(keys, kind="stable")


def parts_of(ids: int) -> int:
    """How many parts so many ids make."""
    return -(-ids // PART)


def cut(items: S, part: int) -> S:
    """The items of one part."""
    return items[part * PART : (part + 1) * PART]  # type: ignore[return-value]  # a slice of a list is a list


class Parts:
    """Parts that arrive in any order, and perhaps twice, until all `ids` are there."""

    def __init__(self, ids: int, what: str) -> None:
        self.ids = ids
        self._what = what  # "the setup of party 'telco'": how errors call it
        self._have: dict[int, bytes] = {}

    def __contains__(self, part: int) -> bool:
        return part in self._have

    def __len__(self) -> int:
        return len(self._have)

    @property
    def total(self) -> int:
        """How many parts there will be."""
        return parts_of(self.ids)

    @property
    def complete(self) -> bool:
        """Whether all parts are there."""
        return len(self._have) == self.total

    def check(self, part: int, points: bytes) -> None:
        """Refuse a part that is not one of these, or has not the length that it must have."""
        if not 0 <= part < self.total:
            raise WireError(f"{self._what} has {self.total} parts; there is no part {part}")
        wanted = POINT * min(PART, self.ids - part * PART)
        if len(points) != wanted:
            raise WireError(f"{self._what}: part {part} has {len(points)} bytes, needed {wanted}")

    def put(self, part: int, points: bytes) -> None:
        """Keep a part; `check` has been asked before."""
        self._have[part] = points

    def get(self, part: int) -> bytes:
        """A part that is there."""
        return self._have[part]

    def points(self) -> list[bytes]:
        """All blinded ids in order; `WireError` if two are the same, as no honest side's are."""
        whole = b"".join(self._have[part] for part in range(self.total))
        points = [whole[at : at + POINT] for at in range(0, len(whole), POINT)]
        if len(set(points)) < len(points):
            raise WireError(f"{self._what}: the same blinded id comes twice")
        return points
