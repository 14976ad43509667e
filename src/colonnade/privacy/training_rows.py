"""Predictions about rows that trained, after a training with noise: refused, unless the owner says otherwise.

A prediction leaves without noise. About a row that trained it is the upload of the training once more, bare, and one
such question about all training rows undoes what the noise promised. So

    in one process           rows that equal a training row in the columns of all parties are refused
    between organisations    each party refuses the row numbers that the run agreed to train on

What is released all the same says so in the ledger (`training_rows`: how many). A run that was saved and loaded does
not know its training rows: digests of them in its folder would themselves tell who was in the training. It takes the
word of a federation whose rows are selected, and cannot tell of raw tables.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from colonnade.errors import Refused
from colonnade.federation import Federation
from colonnade.privacy.events import BARE, Release
from colonnade.rows import Rows
from colonnade.wire.messages import COORDINATOR, Purpose

NOTE = "training_rows"  # what the ledger calls their number
WHY = "would release them without the noise that their training promised"
_CHUNK, _DIGEST = 4096, 16  # rows at once, bytes of a digest


@dataclass(frozen=True)
class TrainingRows:
    """The rows that trained a run, known by their columns; only in the process that trained it."""

    columns: Mapping[str, Tensor] = field(repr=False)  # by party, (N, ...)
    rows: Tensor = field(repr=False)  # which of the N trained

    @cached_property
    def _digests(self) -> frozenset[bytes]:
        return frozenset(_digests({name: value[self.rows] for name, value in self.columns.items()}))

    @classmethod
    def of(cls, federation: Federation) -> TrainingRows:
        """Those of the data of a run."""
        return cls({party.name: party.columns for party in federation.parties}, federation.split.train)

    def among(self, columns: Mapping[str, Tensor]) -> Tensor:
        """(B,) which of some rows (B, ...) are training rows: equal in the columns of all parties, as float32."""
        given = _digests({name: columns[name] for name in self.columns})
        return torch.tensor([digest in self._digests for digest in given], dtype=torch.bool)


def noised(ledger: Iterable[Release]) -> bool:
    """Whether uploads of training left with noise."""
    return any(r.purpose is Purpose.TRAIN and r.owner != COORDINATOR and r.mechanism not in BARE for r in ledger)


def check_new(trained: TrainingRows | None, ledger: Iterable[Release], rows: Rows, release: bool) -> Tensor:
    """(B,) which of these rows trained with noise; `Refused`, if some did and may not be released."""
    found = torch.zeros(len(rows), dtype=torch.bool)
    if not noised(ledger):
        return found
    if trained is not None:
        found = trained.among(rows.columns)
    elif rows.training is not None:
        found = rows.training
    if bool(found.any()) and not release:
        raise Refused(
            f"{int(found.sum())} of these rows trained this run: predicting them {WHY}; leave them out, or say that it "
            "is meant: run.releases_training_rows = True, on the command line --training-rows release"
        )
    return found


def note(count: int) -> tuple[tuple[str, float], ...]:
    """What the ledger says of a release about so many training rows."""
    return ((NOTE, float(count)),) if count else ()


def _digests(columns: Mapping[str, Tensor]) -> Iterator[bytes]:
    parts = [value.detach().cpu().flatten(1) for value in columns.values()]
    for start in range(0, len(parts[0]), _CHUNK):
        flat = torch.cat([part[start : start + _CHUNK].float() for part in parts], dim=1) + 0.0  # no negative zero
        yield from (hashlib.blake2b(row.tobytes(), digest_size=_DIGEST).digest() for row in flat.numpy())
