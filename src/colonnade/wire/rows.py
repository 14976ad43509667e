"""How the row numbers of a query travel: in as few bytes as they take, given what both sides know.

    a word     all rows that train, ascending: `"rows": "train"` in the header, and no array
    others.    rows that ascend, none of which trains: a bit for every row that does not train, up to the last of them
    bits.      rows that ascend: a bit for every row, up to the last of them
    rows.      any rows in any order: four bytes each, since a federation has fewer than 2^31 of them

The shortest is taken. The first two need `KnownRows`: what everybody agreed on before the first message. Nothing here
depends on an earlier message, so a process that begins again, or missed a round, reads a request like any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

ALL_TRAIN = "train"  # the word
OTHERS, BITS, ROWS = "others.", "bits.", "rows."  # before the number of a query
MOST_BITS = 2**23  # rows of one query that bits may name, about as many as fit a message by number
_ONES = np.array([bin(byte).count("1") for byte in range(256)])


class KnownRows:
    """Which rows of a run train, as all its sides know."""

    def __init__(self, train: Tensor, rows: int) -> None:
        self._train, self._rows = train, rows

    @cached_property
    def train(self) -> Tensor:
        """(T,) the rows that train, ascending."""
        return self._train.cpu().to(torch.int64).sort().values

    @cached_property
    def others(self) -> Tensor:
        """(N - T,) the rows that do not, ascending."""
        marks = torch.ones(self._rows, dtype=torch.bool)
        marks[self.train] = False
        return marks.nonzero().flatten()

    def places(self, rows: Tensor) -> Tensor | None:
        """(B,) where rows that ascend stand among those that do not train; None: some train, or are of no run."""
        found = torch.searchsorted(self.others, rows)
        if not len(self.others) or not torch.equal(self.others[found.clamp(max=len(self.others) - 1)], rows):
            return None
        return found


def word_of(rows: Tensor, known: KnownRows | None) -> dict[str, str]:
    """What the header says of the rows of a query; nothing, where an array names them."""
    return {"rows": ALL_TRAIN} if known is not None and torch.equal(rows.cpu(), known.train) else {}


def rows_arrays(place: int, rows: Tensor, known: KnownRows | None) -> dict[str, Tensor]:
    """The array that names the rows of a query; none, where the header does."""
    if word_of(rows, known):
        return {}
    host = rows.cpu().to(torch.int64)
    ascends = bool((host.diff() > 0).all())
    places = known.places(host) if known is not None and ascends and len(host) else None
    if places is not None and _bytes(places) < 4 * len(host):
        return {f"{OTHERS}{place}": _bits(places)}
    if ascends and len(host) and _bytes(host) < 4 * len(host):
        return {f"{BITS}{place}": _bits(host)}
    return {f"{ROWS}{place}": rows.to(torch.int32)}


def rows_size(rows: Tensor, known: KnownRows | None) -> int:
    """The bytes that the row numbers of one query take."""
    return sum(array.numel() * array.element_size() for array in rows_arrays(0, rows, known).values())


def read_rows(query: Mapping[str, Any], arrays: Mapping[str, Tensor], place: int, known: KnownRows | None) -> Tensor:
    """The row numbers of a query in a decoded message; `ValueError` or `KeyError`: it does not name them well."""
    there = [kind for kind in (OTHERS, BITS, ROWS) if f"{kind}{place}" in arrays]
    if "rows" in query:
        if query["rows"] != ALL_TRAIN or known is None or there:
            raise ValueError("rows by a word that says nothing here")
        return known.train
    if len(there) > 1:
        raise ValueError("rows that are named twice")
    if there == [OTHERS]:
        if known is None:
            raise ValueError("rows among those that do not train, which nobody agreed on")
        places = _read_bits(arrays[f"{OTHERS}{place}"])
        if len(places) and int(places[-1]) >= len(known.others):
            raise ValueError(f"more rows than the {len(known.others)} that do not train")
        return known.others[places]
    if there == [BITS]:
        return _read_bits(arrays[f"{BITS}{place}"])
    return arrays[f"{ROWS}{place}"].to(torch.int64)


def _bytes(ascending: Tensor) -> int:
    """Of the bits up to the last of some numbers."""
    return int(ascending[-1]) // 8 + 1


def _bits(ascending: Tensor) -> Tensor:
    marks = np.zeros(int(ascending[-1]) + 1, dtype=np.bool_)
    marks[ascending.numpy()] = True
    return torch.from_numpy(np.packbits(marks, bitorder="little"))


def _read_bits(bits: Tensor) -> Tensor:
    if bits.dtype != torch.uint8 or bits.dim() != 1:
        raise ValueError("rows that are no bits")
    packed = bits.cpu().numpy()
    if int(_ONES[packed].sum()) > MOST_BITS:
        raise ValueError(f"more than {MOST_BITS} rows")
    found: Tensor = torch.from_numpy(np.flatnonzero(np.unpackbits(packed, bitorder="little")))
    return found
