"""Tokens that a network has no vector for: refused by party and column before a network reads them.

Only the network knows which of its embeddings reads which column, so it is asked: two rows with the least and the
greatest token of every column tell whether all can be read, and zeros with one of them which column cannot. On the
CPU: a GPU would stop the process.
"""

from __future__ import annotations

import torch
from torch import Tensor

from colonnade.errors import DataError
from colonnade.models.stack import Mode, Stack


def check_tokens(party: str, network: Stack, columns: Tensor) -> None:
    """Refuse tokens (B, ...) that the network of one party cannot read; `network` is on the CPU, and of it alone."""
    if not len(columns):
        return
    flat, shape = columns.cpu().flatten(1), columns.shape[1:]
    ends = torch.stack([flat.amin(dim=0), flat.amax(dim=0)])  # (2, C)
    if _reads(network, ends.reshape(2, *shape)) or not _reads(network, torch.zeros_like(ends).reshape(2, *shape)):
        return  # what cannot read zeros either fails for another reason
    for place in range(flat.shape[1]):
        for token in ends[:, place].tolist():
            rows = torch.zeros_like(ends)
            rows[:, place] = token
            if not _reads(network, rows.reshape(2, *shape)):
                at = tuple(int(i) for i in torch.unravel_index(torch.tensor(place), shape))
                named = at[0] if len(at) == 1 else at
                raise DataError(
                    f"party {party!r}, column {named} (counted from 0): its network cannot read the token {token}; "
                    "tokens of an nn.Embedding are 0 to its size - 1: enlarge it, or correct the column"
                )


def _reads(network: Stack, rows: Tensor) -> bool:
    """Whether two rows (2, ...) can be read at all."""
    try:
        with torch.no_grad():
            network.output(rows[None], Mode.PREDICT)
    except (IndexError, RuntimeError):
        return False
    return True
