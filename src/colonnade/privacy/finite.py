"""Numbers that are not finite, before and after a mechanism: refused by name, or 0 where nobody may be told of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from colonnade.errors import Diverged
from colonnade.wire.codec import all_finite


def unasked(values: Iterable[Tensor], told: bool) -> bool:
    """Whether numbers are made finite without asking if they are: nobody is told, and a GPU takes time to answer."""
    return not told and any(value.is_cuda for value in values)


def made_finite(values: Tensor, parties: Sequence[str], told: bool) -> Tensor:
    """The values, if all are finite; with 0 for those that are not, where nobody may be told.

    Raises:
        Diverged: one is not, and this may be told.
    """
    if not unasked([values], told) and all_finite(values):
        return values
    if told:
        finite = torch.isfinite(values.flatten(1)).all(dim=1)  # (P,)
        raise Diverged(parties[int((~finite).nonzero()[0])], "upload")
    return torch.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)
