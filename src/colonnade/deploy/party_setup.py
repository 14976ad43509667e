"""What a party brings to a run: its columns, its limits, its noise, its local model, and where it keeps account."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from colonnade.data.columns import ColumnPlan
from colonnade.data.drift import Reference
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
    reference: Reference | None = field(default=None, repr=False)  # how the rows that are seen were distributed

    def digest(self) -> str:
        """SHA-256, so that a restart with another table is noticed."""
        digest = hashlib.sha256(f"{tuple(self.values.shape)}{self.values.dtype}".encode())
        digest.update(self.values.contiguous().numpy().data)
        return digest.hexdigest()


ReadColumns = Callable[..., Columns]  # given rows to take statistics from, all rows and, perhaps, rows to leave out


@dataclass(frozen=True)
class Further:
    """A party's rows after its alignment was extended: columns of all of them, and what they are called."""

    columns: Columns
    ids: Callable[[Tensor], Sequence[str]] = field(repr=False)
    alignments: Mapping[str, int]  # the alignments whose rows are among them, by digest, and how many each has
    doubts: int = 0  # warnings about the new rows, which name columns and stay at home


@dataclass(frozen=True)
class PartySetup:
    """What a party brings: its columns (given the training rows), limits, noise, local model and device."""

    columns: ReadColumns
    policy: Policy = field(default_factory=Policy)
    mechanism: Mechanism = field(default_factory=Unchanged)
    encoders: Encoders = None
    model: PartySettings | None = None  # where its local model differs from the proposal's settings
    device: str = "cpu"
    alignment: str = ""  # digest of the rows it aligned; empty: not checked
    table: str = ""  # what its table is called in the organisation's ledger of all runs; empty: as the party
    ids: Callable[[Tensor], Sequence[str]] | None = None  # of row numbers; None: they have no others
    spent: Path | None = None  # that ledger; None: beside the folder of the run
    former: Mapping[str, ReadColumns] = field(default_factory=dict)  # of alignments it extends
    further: Callable[[str, str, Columns], Further] | None = None  # columns of a run, of which alignment, and of which
    # extension of it they are needed; None: there are no others

    withdrawn: Callable[[], Tensor] | None = None  # rows of people who withdrew, as it is known now; None: nobody can
    finished: Callable[[str], Sequence[Path]] | None = (
        None  # folders where the party's part of a run may be; None: none
    )

    def columns_of(
        self, alignment: str, seen: Tensor, rows: int, left_out: Tensor, plan: ColumnPlan | None = None
    ) -> Columns:
        """The columns of a run, which may have begun before the alignment was extended.

        `left_out`: rows of people who had withdrawn when it began. `plan`: how the table became columns in a former
        run; None: the rows that are `seen` say.
        """
        read = self.former.get(alignment, self.columns)
        known = {} if plan is None else {"plan": plan}
        if len(left_out):
            return read(seen[~torch.isin(seen, left_out)], rows, left_out, **known)
        return read(seen, rows, **known)

    def places_of(self, run: str) -> Sequence[Path]:
        """Folders where the party's part of a finished run may be."""
        return () if self.finished is None else self.finished(run)

    def left_out(self) -> Tensor:
        """Rows of people who withdrew, as it is known now."""
        return torch.empty(0, dtype=torch.int64) if self.withdrawn is None else self.withdrawn()

    def names_of(self, rows: Tensor) -> Sequence[str]:
        """What rows are called in the ledger of all runs, in which numbers of one alignment mean nothing."""
        return [f"{self.alignment} {row}" for row in rows.tolist()] if self.ids is None else self.ids(rows)
