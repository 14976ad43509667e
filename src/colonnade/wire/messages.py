"""The three kinds of message of a round, and how they turn into arrays and back.

    ALL    coordinator -> every party   what to do, whose rows, the common part of the reply
    OWN    coordinator -> one party     the part of the reply only that party may read
    TRAIN, EVALUATE, PREDICT, EXPLAIN
           party -> coordinator         one release, named by its purpose

A message is identified by (run, number, kind, part, sender), so repeating one changes nothing; `part` tells apart
the queries of one request.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
import torch
from torch import Tensor

from colonnade.errors import WireError
from colonnade.layout import canonical
from colonnade.wire.rows import KnownRows, read_rows, rows_arrays, word_of

COORDINATOR = "coordinator"
MOST_ROUNDS = 2**31  # a number beyond this is no round
FLAGS, LENGTH = "flags.", "length."  # before the name of yes and no that travel as bits, and of how many there are


class Purpose(str, Enum):
    """Why something was released; evaluation and prediction are releases too."""

    TRAIN = "TRAIN"
    EVALUATE = "EVALUATE"
    PREDICT = "PREDICT"
    EXPLAIN = "EXPLAIN"


@dataclass(frozen=True)
class Query:
    """One part of a request: some parties are asked about some rows, for one purpose."""

    purpose: Purpose
    senders: tuple[str, ...]
    rows: Tensor = field(repr=False)  # (B,) row numbers


@dataclass(frozen=True)
class Request:
    """What the coordinator asks for in round `number`; the reply to the one before rides along."""

    number: int
    queries: tuple[Query, ...] = ()
    learners: tuple[str, ...] = ()  # who learns from the reply to round number - 1
    steps: tuple[tuple[str, int], ...] = ()  # local steps of a party where they differ from the method's
    keep: bool = False  # the model that uploaded in number - 1 is the best so far
    stop: str | None = None  # the reason why this is the last message
    consent: bool = False  # only say whether this would be answered: nothing is computed, nothing released
    alignment: str = ""  # digest of the extended alignment that its rows are of; empty: of the one the run began with

    @property
    def trainers(self) -> tuple[str, ...]:
        """Who is asked about training rows."""
        return next((query.senders for query in self.queries if query.purpose is Purpose.TRAIN), ())


def request_header(request: Request, everyone: tuple[str, ...], known: KnownRows | None = None) -> dict[str, object]:
    """The header of an ALL message; "*" stands for everyone, so it does not grow with the federation."""

    def short(names: tuple[str, ...]) -> str | list[str]:
        return "*" if names == everyone else list(names)

    return {
        "number": request.number,
        "asks": [
            {"purpose": query.purpose.value, "speakers": short(query.senders), **word_of(query.rows, known)}
            for query in request.queries
        ],
        "learners": short(request.learners),
        "steps": [list(pair) for pair in request.steps],
        "keep": request.keep,
        "stop": request.stop,
        **({"consent": True} if request.consent else {}),
        **({"alignment": request.alignment} if request.alignment else {}),
    }


def request_arrays(request: Request, known: KnownRows | None = None) -> dict[str, Tensor]:
    """The row numbers of each query (`rows.py`), where the header does not name them."""
    out: dict[str, Tensor] = {}
    for place, query in enumerate(request.queries):
        out |= rows_arrays(place, query.rows, known)
    return out


def read_request(
    header: Mapping[str, Any],
    arrays: Mapping[str, Tensor],
    everyone: tuple[str, ...],
    known: KnownRows | None = None,
) -> Request:
    """The request inside a decoded ALL message; `known` are the rows that were agreed on."""

    def full(names: Any) -> tuple[str, ...]:
        return everyone if names == "*" else tuple(str(n) for n in names)

    try:
        queries = tuple(
            Query(Purpose(query["purpose"]), full(query["speakers"]), read_rows(query, arrays, i, known))
            for i, query in enumerate(header["asks"])
        )
        steps = tuple((str(party), int(count)) for party, count in header["steps"])
        number, keep, stop = int(header["number"]), bool(header["keep"]), header["stop"]
        if any(query.rows.dim() != 1 for query in queries) or not isinstance(stop, (str, type(None))):
            raise ValueError("rows that are no list, or a reason to stop that is no text")
        consent, alignment = bool(header.get("consent", False)), header.get("alignment", "")
        if not isinstance(alignment, str):
            raise ValueError("an alignment that is no text")
        return Request(number, queries, full(header["learners"]), steps, keep, stop, consent, alignment)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise WireError(f"the coordinator's message is malformed: {error!r}") from None


def rows_digest(rows: Tensor) -> str:
    """SHA-256 of some row numbers in their order: whether two sides mean the same."""
    return hashlib.sha256(rows.cpu().to(torch.int32).contiguous().numpy().tobytes()).hexdigest()


def common_arrays(common: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The common part of a reply as it travels: yes and no (`torch.bool`) as bits."""
    flags = {name: value for name, value in common.items() if value.dtype == torch.bool}
    return prefixed("common", {name: value for name, value in common.items() if name not in flags}) | _packed(flags)


def own_arrays(own: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """One party's own part of a reply as it travels: the same, without a prefix."""
    flags = {name: value for name, value in own.items() if value.dtype == torch.bool}
    return {name: value for name, value in own.items() if name not in flags} | _packed(flags)


def _packed(flags: Mapping[str, Tensor]) -> dict[str, Tensor]:
    out: dict[str, Tensor] = {}
    for name, value in flags.items():
        out[f"{FLAGS}{name}"] = torch.from_numpy(np.packbits(value.cpu().numpy(), axis=0))
        out[f"{LENGTH}{name}"] = torch.tensor([len(value)], dtype=torch.int32)
    return out


def read_common(arrays: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The common part of the reply in a decoded ALL message.

    Raises:
        WireError: bits and their number do not fit each other.
    """
    return _unpacked(arrays, unprefixed("common", arrays))


def read_own(arrays: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The arrays of a decoded OWN message.

    Raises:
        WireError: bits and their number do not fit each other.
    """
    plain = {name: value for name, value in arrays.items() if not name.startswith((FLAGS, LENGTH))}
    return _unpacked(arrays, plain)


def _unpacked(arrays: Mapping[str, Tensor], out: dict[str, Tensor]) -> dict[str, Tensor]:
    """`out`, and the yes and no among the arrays."""
    for name, bits in unprefixed(FLAGS[:-1], arrays).items():
        length = arrays.get(f"{LENGTH}{name}")
        count = int(length[0]) if length is not None and length.shape == (1,) else -1
        if bits.dtype != torch.uint8 or not bits.dim() or (count + 7) // 8 != len(bits) or count < 1 or name in out:
            raise WireError(f"the bits of {name[:64]!r} in the coordinator's message are malformed")
        out[name] = canonical(torch.from_numpy(np.unpackbits(bits.cpu().numpy(), axis=0, count=count)).bool())
    return out


def prefixed(prefix: str, arrays: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Arrays renamed to `prefix.name`."""
    return {f"{prefix}.{name}": array for name, array in arrays.items()}


def unprefixed(prefix: str, arrays: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The arrays called `prefix.name`, under `name`."""
    start = prefix + "."
    return {name[len(start) :]: array for name, array in arrays.items() if name.startswith(start)}
