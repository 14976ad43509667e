"""Columns that are numbers of bins: what the released labels say of each bin, and a table looked up row by row.

Numbers from 0 up have an order, those from -1 down have none (`data/bins.py`). A table of MOST_BINS has the former in
its first half and the latter, counted from its end, in the second.

`count_labels` takes the opening reply (`_given.release_labels`, and how likely a label was kept) and fills four tables
(P, C, MOST_BINS) in the head of every party, which stay with its part of the model: training rows, events, the
deviation of the events, and the weight of evidence. Nothing of them is ever uploaded.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from colonnade.errors import DataError, WireError
from colonnade.methods.base import Received
from colonnade.models.cohort import Cohort
from colonnade.models.evidence import COUNTS, Evidence
from colonnade.models.monotone import merge
from colonnade.models.schema import Schema

MOST_BINS = 256  # of a column: tables of all columns and parties have one size, a power of two
ORDERED = MOST_BINS // 2  # of them have an order
AT_ONCE = 1 << 16  # training rows that are counted at once


def count_labels(cohort: Cohort, reply: Received, monotone: bool) -> None:
    """What the released labels say of each party's bins, corrected for their noise; `monotone`: neighbours merged."""
    said, keep = _read(cohort.schema, reply)
    names, columns = len(cohort.names), int(cohort.columns.shape[2])
    rows = torch.zeros(names * columns * MOST_BINS, dtype=torch.float64)
    yes = torch.zeros_like(rows)
    first = torch.arange(names * columns).reshape(names, 1, columns) * MOST_BINS  # where a column's bins begin
    for part, told in zip(cohort.schema.train.split(AT_ONCE), said.split(AT_ONCE), strict=True):
        place = (first + _codes(cohort.x(part)).cpu()).flatten()  # (P B C)
        rows += torch.bincount(place, minlength=len(rows))
        yes += torch.bincount(place, told[None, :, None].expand(names, -1, columns).flatten(), minlength=len(rows))
    each = zip(rows.reshape(-1, MOST_BINS).numpy(), yes.reshape(-1, MOST_BINS).numpy(), strict=True)
    found = [merge(n, y, keep, ORDERED) if monotone else Evidence.counted(n, y, keep) for n, y in each]
    for name in COUNTS:
        kept = cohort.head[name].detach()
        kept.copy_(torch.from_numpy(np.stack([getattr(one, name) for one in found])).reshape(kept.shape))


def _read(schema: Schema, reply: Received) -> tuple[Tensor, float]:
    """(N,) zeros and ones of the training rows in float64, and how likely each was kept; they come from outside."""
    said, keep = reply.common.get("targets"), reply.common.get("keep")
    if said is None or keep is None or said.numel() != len(schema.train) or keep.numel() != 1:
        raise WireError("a scorecard begins with a label for each training row, and how likely each was kept")
    if not bool(((said == 0) | (said == 1)).all()) or not 0.5 < float(keep) <= 1:
        raise WireError("a scorecard begins with labels of 0 and 1, each kept more likely than not; these are not")
    return said.flatten().double().cpu(), float(keep)


def looked_up(table: Tensor, x: Tensor) -> Tensor:
    """(P, B, C): what a table (P, C, MOST_BINS) says of the bins (P, B, C) of some rows."""
    return table.mT.gather(1, _codes(x))


def _codes(x: Tensor) -> Tensor:
    """Where the bins (P, B, C) of some rows stand in a table."""
    codes = x.long()
    if codes.numel():
        low, high = torch.aminmax(codes)
        if low < -ORDERED or high >= ORDERED or bool((codes != x).any()):
            raise DataError(
                "a scorecard reads the numbers of bins, and these columns are none; cut them: columns.bins = 5"
            )
    return codes & (MOST_BINS - 1)  # of a power of two: the remainder, a fifth of the time
