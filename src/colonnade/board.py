"""Board: what was last heard from whom, row by row.

Only kept where somebody may be silent; it costs N x d numbers per party. A party keeps the
mirror image (what it last said), so both sides agree on the own part of a silent party.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from colonnade.models.schema import Schema
from colonnade.privacy.sealed import Array


class Board:
    """Remembered releases of some parties by row number; zero before the first."""

    def __init__(self, schema: Schema, parties: int, agreed: Mapping[str, Array]) -> None:
        self.by_row = {name for name, array in agreed.items() if array.per_row}
        self.values: dict[str, Tensor] = {  # name -> (P, N, width), or (P, width) where it is not about rows
            name: schema.zeros(parties, *array.shape(schema.rows)).to(array.dtype or schema.dtype)
            for name, array in agreed.items()
        }

    def remember(self, places: Sequence[int], rows: Tensor, said: Mapping[str, Tensor]) -> None:
        """Write what the parties at `places` said about `rows`."""
        at = torch.tensor(list(places), device=rows.device)[:, None]
        for name, board in self.values.items():
            if name in self.by_row:
                board[at, rows[None, :]] = said[name]
            else:
                board[at[:, 0]] = said[name]

    def recall(self, rows: Tensor) -> dict[str, Tensor]:
        """The last word of every party on `rows`, (P, B, width); whole vectors, where they are not about rows."""
        return {name: value[:, rows] if name in self.by_row else value.clone() for name, value in self.values.items()}
