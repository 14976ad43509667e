"""What a party brings to a run: its columns, its limits, its noise, its local model, and where it keeps account."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor

from colonnade.data.columns import ColumnPlan
from colonnade.deploy.policy import Policy
from colonnade.engines.base import Encoders
from colonnade.models.encoders import PartySettings
from colonnade.privacy.mechanism import Mechanism, Unchanged


@dataclass(frozen=True)
class Columns:
    """What a party holds: columns (R, ...) by row number, and which of those rows it really has."""

    values: Tensor = field(repr=False)
    held: Tensor = field(repr=False)  # (R,) true or false
    scaled: bool = False
    plan: ColumnPlan | None = field(default=None, repr=False)  # how a table became these columns

    def digest(self) -> str:
        """SHA-256, so that a restart with another table is noticed."""
        digest = hashlib.sha256(f"{tuple(self.values.shape)}{self.values.dtype}".encode())
        digest.update(self.values.contiguous().numpy().data)
        return digest.hexdigest()


@dataclass(frozen=True)
class PartySetup:
    """What a party brings: its columns (given the training rows), limits, noise, local model and device."""

    columns: Callable[[Tensor, int], Columns]
    policy: Policy = field(default_factory=Policy)
    mechanism: Mechanism = field(default_factory=Unchanged)
    encoders: Encoders = None
    model: PartySettings | None = None  # where its local model differs from the proposal's settings
    device: str = "cpu"
    alignment: str = ""  # digest of the rows it aligned; empty: not checked
    table: str = ""  # what its table is called in the organisation's ledger of all runs; empty: as the party
    ids: Callable[[Tensor], Sequence[str]] | None = None  # of row numbers; None: they have no others
    spent: Path | None = None  # that ledger; None: beside the folder of the run

    def names_of(self, rows: Tensor) -> Sequence[str]:
        """What rows are called in the ledger of all runs, in which numbers of one alignment mean nothing."""
        return [f"{self.alignment} {row}" for row in rows.tolist()] if self.ids is None else self.ids(rows)
