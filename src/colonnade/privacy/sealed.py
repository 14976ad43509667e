"""The types of the gate: `Array` says what was agreed on, `Upload` cannot leave, `Release` can.

An `Upload` is what a party computed and may not leave as it is. It has no bytes, no array
protocol, no iteration, and its repr shows shapes, never values. A `Release` is bytes
whose event is in the ledger; only `privacy/gate.py` may call `seal` and `unwrap` (an
architecture test reads the source for that), so nothing travels around the gate.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, final

import torch
from torch import Tensor

from colonnade.errors import GateError

_SEAL = object()


@dataclass(frozen=True)
class Array:
    """One array of an upload, as all sides agreed on it before the first message."""

    width: int
    dtype: torch.dtype | None = None  # None: the run's numbers
    per_row: bool = True  # False: one vector per upload, e.g. the parameters of a network
    exact: bool = False  # its numbers arrive as they are, also where others are rounded (`wire/numbers.py`)
    note: str = ""  # what the ledger calls it, beside its width, where it says of columns more than scores do

    def shape(self, rows: int) -> tuple[int, ...]:
        """What a party sends about so many rows."""
        return (rows, self.width) if self.per_row else (self.width,)

    def size(self, numbers: torch.dtype) -> int:
        """Bytes per row; none, if it does not grow with the rows."""
        return self.width * (self.dtype or numbers).itemsize if self.per_row else 0


@final
class Upload:
    """What a party computed about some rows: opaque until the gate opens it."""

    __slots__ = ("__values",)

    def __init__(self, values: Mapping[str, Tensor]) -> None:
        self.__values = {name: value.detach() for name, value in values.items()}

    def __repr__(self) -> str:
        return "Upload(" + ", ".join(f"{k}: {tuple(v.shape)}" for k, v in self.__values.items()) + ")"

    def __refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise GateError("an Upload cannot be read, copied or serialised; pass it through the gate")

    __reduce__ = __reduce_ex__ = __array__ = __bytes__ = __iter__ = __getitem__ = __buffer__ = __refuse
    __copy__ = __deepcopy__ = __getstate__ = __refuse


@final
class Release:
    """One message that passed the gate: frozen, its digest recorded in the ledger."""

    __slots__ = ("digest", "kind", "number", "payload", "sender")

    sender: str
    kind: str
    number: int
    payload: bytes
    digest: str

    def __init__(self, seal: object, sender: str, kind: str, number: int, payload: bytes) -> None:
        if seal is not _SEAL:
            raise GateError("only the gate makes a Release")
        digest = hashlib.sha256(payload).hexdigest()
        for name, value in (("sender", sender), ("kind", kind), ("number", number)):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "payload", payload)
        object.__setattr__(self, "digest", digest)

    def __init_subclass__(cls) -> NoReturn:
        raise GateError("Release is final")

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise GateError("a Release is frozen")

    def __delattr__(self, name: str) -> NoReturn:
        raise GateError("a Release is frozen")

    def __repr__(self) -> str:
        return f"Release({self.sender}, {self.kind}, {self.number}, {len(self.payload)} bytes)"


def unwrap(upload: Upload) -> dict[str, Tensor]:
    """The values inside an upload. For the gate only."""
    values: dict[str, Tensor] = upload._Upload__values  # type: ignore[attr-defined]
    return values


def seal(sender: str, kind: str, number: int, payload: bytes) -> Release:
    """Make a Release. For the gate only."""
    return Release(_SEAL, sender, kind, number, payload)
