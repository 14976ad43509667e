"""Stacked: all parties of one architecture as one batch on one device.

Uploads are encoded, hashed and recorded as everywhere; what stays out is decoding bytes that
this process has just encoded. A contract test holds every number and byte against `loop`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import overload

import torch
from torch import Tensor

from colonnade.engines.base import CohortBuilder, Collected, GroupUploads, numbers_of
from colonnade.engines.party import PartySide
from colonnade.gpu import groups_apart
from colonnade.methods.base import Method, Received
from colonnade.models.allocator import keep_large_blocks
from colonnade.models.choose import choose_way
from colonnade.models.schema import Schema
from colonnade.models.stack import Stack, Way
from colonnade.privacy.gate import Down, Gate
from colonnade.privacy.ledger import Ledger
from colonnade.privacy.mechanism import Protection
from colonnade.privacy.sealed import Release
from colonnade.wire.messages import Request

TIMED_ROWS = 256  # rows of the timed first step


@dataclass
class Messages(Sequence[Release]):
    """The messages of several groups. They may not be sealed yet: whoever looks at them, or counts them, does it."""

    sealed: list[Callable[[], tuple[Release, ...]]]  # by group

    def __len__(self) -> int:
        return len(list(iter(self)))

    @overload
    def __getitem__(self, place: int) -> Release: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Release]: ...
    def __getitem__(self, place: int | slice) -> Release | Sequence[Release]:
        return list(iter(self))[place]

    def __iter__(self) -> Iterator[Release]:
        return (released for group in self.sealed for released in group())


@dataclass
class Stacked:
    """One cohort per group of same-shaped parties."""

    schema: Schema
    sides: list[PartySide]
    ledger: Ledger
    name: str = "stacked"

    @classmethod
    def open(
        cls,
        builder: CohortBuilder,
        method: Method,
        ledger: Ledger,
        run: str,
        remembers: bool,
        protection: Protection,
        ways: Sequence[Way | None] = (),
    ) -> Stacked:
        """One party side per group; `ways` repeats the choices of a run that is being resumed."""
        schema, sides = builder.schema, []
        if schema.device.type == "cpu":
            keep_large_blocks()
        for number, group in enumerate(schema.groups):
            gate = Gate(run, ledger, method.upload_arrays(schema, group), protection, numbers=numbers_of(schema))
            cohort = builder.cohort(group.parties, ways[number] if ways else None)
            if not ways and isinstance(cohort.encoder, Stack):
                cohort.encoder.way = choose_way(cohort.encoder, cohort.x(torch.arange(min(TIMED_ROWS, schema.rows))))
            sides.append(PartySide(method, cohort, gate, remembers))
        return cls(schema, sides, ledger)

    @property
    def ways(self) -> list[Way]:
        """How each group runs its forward pass; recorded, because a resumed run must do the same."""
        return [side.cohort.encoder.way for side in self.sides]

    def run_round(self, request: Request, down: Down) -> Collected:
        """Hand the request to each group and collect what it released.

        All groups compute before the first one releases, on a GPU side by side: a gate waits for numbers, and the GPU
        then has everybody's work already.
        """
        uploaded: list[list[GroupUploads]] = [[] for _ in request.queries]
        releases = [Messages([]) for _ in request.queries]
        replies = [Received(down.common, down.groups[n] if down.groups else {}) for n in range(len(self.sides))]
        prepared = []
        with groups_apart(self.schema.device, len(self.sides)) as place:
            for number, (side, reply) in enumerate(zip(self.sides, replies, strict=True)):
                with place(number):
                    prepared.append(side.prepare(request, reply))
        self.ledger.settle()  # messages of before are sealed while a GPU computes these uploads
        for side, answers in zip(self.sides, prepared, strict=True):
            index = {name: i for i, name in enumerate(side.cohort.names)}
            for at, passed in enumerate(map(side.release, answers)):
                uploaded[at].append(GroupUploads(tuple(index[p] for p in passed.parties), passed.sent))
                releases[at].sealed.append(passed.sealed)
        return Collected(uploaded, releases)

    def parties(self) -> list[PartySide]:
        """The party sides, one per group."""
        return self.sides

    def tensors(self) -> dict[str, Tensor]:
        """Every group's state."""
        return {f"{number}/{k}": v for number, side in enumerate(self.sides) for k, v in side.tensors().items()}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Put a checkpoint back."""
        for number, side in enumerate(self.sides):
            start = f"{number}/"
            side.restore({k[len(start) :]: v for k, v in tensors.items() if k.startswith(start)})
