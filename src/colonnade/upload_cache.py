"""UploadCache: the last upload of each party, row by row.

Only kept where not everybody uploads in every round; it costs N x d numbers per party. A party keeps the
mirror image (its own last uploads), so both sides agree on the own part of a party that did not upload.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from colonnade.models.schema import Schema
from colonnade.privacy.sealed import Array


class UploadCache:
    """Remembered releases of some parties by row number; zero before the first."""

    def __init__(self, schema: Schema, parties: int, agreed: Mapping[str, Array]) -> None:
        self.by_row = {name for name, array in agreed.items() if array.per_row}
        self.values: dict[str, Tensor] = {  # name -> (P, N, width), or (P, width) where it is not about rows
            name: schema.zeros(parties, *array.shape(schema.rows)).to(array.dtype or schema.dtype)
            for name, array in agreed.items()
        }

    def remember(self, places: Sequence[int], rows: Tensor, uploaded: Mapping[str, Tensor]) -> None:
        """Write the uploads of the parties at `places` about `rows`."""
        at = torch.tensor(list(places), device=rows.device)[:, None]
        for name, cache in self.values.items():
            if name in self.by_row:
                cache[at, rows[None, :]] = uploaded[name]
            else:
                cache[at[:, 0]] = uploaded[name]

    def recall(self, rows: Tensor) -> dict[str, Tensor]:
        """The last upload of every party about `rows`, (P, B, width); whole vectors, where they are not about rows."""
        return {name: value[:, rows] if name in self.by_row else value.clone() for name, value in self.values.items()}
