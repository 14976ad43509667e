"""Loop: the reference engine. One party at a time, every message really encoded and decoded.

No tricks: what the other engines compute must agree with this one. A failure names the party
and the stage it happened in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from colonnade.engines.base import CohortBuilder, Collected, GroupUploads, known_rows, numbers_of
from colonnade.engines.party import PartySide
from colonnade.errors import ColonnadeError, WireError
from colonnade.methods.base import Method, Received
from colonnade.models.schema import Schema
from colonnade.models.stack import Way
from colonnade.privacy.gate import Down, Gate, Passed
from colonnade.privacy.ledger import Ledger
from colonnade.privacy.mechanism import Protection
from colonnade.privacy.sealed import Release
from colonnade.wire.codec import decode
from colonnade.wire.container import Header
from colonnade.wire.messages import Request, read_common, read_own, read_request
from colonnade.wire.rows import KnownRows


@dataclass
class Loop:
    """Cohorts of one party, visited one after the other."""

    schema: Schema
    sides: dict[str, PartySide]
    ledger: Ledger
    name: str = "loop"

    @classmethod
    def open(
        cls, builder: CohortBuilder, method: Method, ledger: Ledger, run: str, remembers: bool, protection: Protection
    ) -> Loop:
        """One party side per party."""
        schema, sides = builder.schema, {}
        for group in schema.groups:
            for party in group.parties:
                gate = Gate(run, ledger, method.upload_arrays(schema, group), protection, numbers=numbers_of(schema))
                sides[party] = PartySide(method, builder.cohort((party,)), gate, remembers)
        return cls(schema, sides, ledger)

    def run_round(self, request: Request, down: Down) -> Collected:
        """Deliver real bytes to each party in turn, and decode the real bytes it answers."""
        uploaded: list[list[GroupUploads]] = [[] for _ in request.queries]
        releases: list[list[Release]] = [[] for _ in request.queries]
        for group in self.schema.groups:
            collected = {party: self._ask(party, request.number, down) for party in group.parties}
            for number in range(len(request.queries)):
                messages = {p: a[number].releases[0] for p, a in collected.items() if a[number].releases}
                uploaded[number].append(self._decode(group.parties, messages))
                releases[number] += messages.values()
        return Collected(uploaded, releases)

    def _ask(self, party: str, number: int, down: Down) -> list[Passed]:
        try:
            numbers = numbers_of(self.schema).reply(number)
            header, arrays = decode(down.everyone.payload)
            request, arrays = self._read(header, arrays), numbers.read(header, arrays)
            own = read_own(numbers.read(*decode(down.own[party].payload))) if party in down.own else {}
            device = self.schema.device
            common = {k: v.to(device) for k, v in read_common(arrays).items()}
            reply = Received(common, {k: v.unsqueeze(0).to(device) for k, v in own.items()})
            return self.sides[party].answer(request, reply)
        except ColonnadeError:
            raise
        except Exception as error:
            raise RuntimeError(f"party {party!r} failed in round {number}: {error}") from error

    def _read(self, header: Header, arrays: Mapping[str, Tensor]) -> Request:
        return read_request(header, arrays, self.schema.parties, self.known)

    @cached_property
    def known(self) -> KnownRows:
        """Which rows train, as every party knows."""
        return known_rows(self.schema)

    def _decode(self, parties: tuple[str, ...], messages: Mapping[str, Release]) -> GroupUploads:
        decoded: list[dict[str, Tensor]] = []
        for party, released in messages.items():
            header, arrays = decode(released.payload)
            if header["sender"] != party:
                raise WireError(f"a message of {party!r} says it is from {header['sender']!r}; refused")
            decoded.append(numbers_of(self.schema).read(header, arrays))
        places = tuple(parties.index(p) for p in messages)
        if not decoded:
            return GroupUploads((), {})
        return GroupUploads(
            places, {n: torch.stack([d[n] for d in decoded]).to(self.schema.device) for n in decoded[0]}
        )

    def parties(self) -> list[PartySide]:
        """The party sides, one per party."""
        return list(self.sides.values())

    @property
    def ways(self) -> list[Way]:
        """One party at a time needs no choice."""
        return []

    def tensors(self) -> dict[str, Tensor]:
        """Every party's state."""
        return {f"{party}/{k}": v for party, side in self.sides.items() for k, v in side.tensors().items()}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Put a checkpoint back."""
        for party, side in self.sides.items():
            start = party + "/"
            side.restore({k[len(start) :]: v for k, v in tensors.items() if k.startswith(start)})
