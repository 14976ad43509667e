"""A mechanism as the other side meets it: behind a real gate, read back from the bytes that travelled.

The game could ask a mechanism directly. Then a gate that lets the clean upload pass, or writes nothing into its
ledger, would go unseen; and the figure the bound is held against would be a formula, not what a ledger says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from colonnade.audit.travelled import unlogged
from colonnade.privacy.accounting import Neighbours, exact_epsilon, mean_shift
from colonnade.privacy.around import Around
from colonnade.privacy.gate import Gate
from colonnade.privacy.ledger import Ledger
from colonnade.privacy.mechanism import Protection
from colonnade.privacy.sealed import Array, Upload
from colonnade.wire.codec import decode
from colonnade.wire.messages import Purpose
from colonnade.wire.numbers import Numbers


def _nothing() -> None:
    """Nobody watches."""


@dataclass
class ThroughGate(Around):
    """Every upload passes a gate with the mechanism inside; what comes out is decoded from the sealed messages."""

    ledger: Ledger = field(default_factory=Ledger, repr=False)
    tick: Callable[[], None] = _nothing  # called after every release of a cohort
    numbers: Numbers | None = None  # in which messages travel; None: as they are computed
    missing: int = 0  # messages that left and are not in the ledger

    def __call__(
        self, upload: Mapping[str, Tensor], parties: Sequence[str], number: int, what: str
    ) -> dict[str, Tensor]:
        """Release for training, and read the messages."""
        first = next(iter(upload.values()))
        numbers = self.numbers or Numbers(dtype=first.dtype)
        rows = max((value.shape[1] for value in upload.values() if value.dim() > 2), default=1)
        agreed = {name: Array(value.shape[-1], per_row=value.dim() > 2) for name, value in upload.items()}
        gate = Gate("audit", self.ledger, agreed, Protection.everywhere(self.inner), numbers=numbers)
        passed = gate.release(Upload(upload), parties, number, Purpose.TRAIN, rows, int(what.rpartition(".")[2]))
        self.missing += len(unlogged(passed.releases, self.ledger))
        uploads = [numbers.read(*decode(message.payload)) for message in passed.releases]
        self.tick()
        return {name: torch.stack([arrays[name] for arrays in uploads]) for name in upload}

    def spent(self, party: str, releases: int, delta: float, neighbours: Neighbours = "absent") -> float:
        """What the ledger says that a party's first so many releases cost, by the exact accountant."""
        mine = [release for release in self.ledger if release.owner == party][:releases]
        return exact_epsilon(mean_shift(mine, neighbours), delta)
