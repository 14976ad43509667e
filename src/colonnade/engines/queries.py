"""What parties can be asked about at once, and what their answers are together under a secure sum."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from colonnade.engines.base import GroupUploads, by_party
from colonnade.methods.base import Extends, Method, State, Uploads
from colonnade.models.schema import Schema
from colonnade.privacy.mechanism import Opener
from colonnade.wire.messages import Request, rows_digest

EVALUATION_CHUNK = 65536  # rows per evaluation message,
EVALUATION_BYTES = 24 * 2**20  # and what they may take in one answer, well below the limit of a message


def open_sum(opener: Opener, schema: Schema, request: Request, place: int, uploaded: Sequence[GroupUploads]) -> Uploads:
    """The total of the uploads to one query, as if one party had made it."""
    parts, query = by_party(schema, uploaded), request.queries[place]
    total = opener.total(request.number, place, query.purpose, rows_digest(query.rows), parts)
    return Uploads(({name: value[None].to(schema.device, schema.dtype) for name, value in total.items()},))


def rows_that_fit(method: Method, schema: Schema, *, summed: bool = False) -> int:
    """How many rows a party can be asked about in one message; under a secure sum every number takes 8 bytes."""
    dtype = torch.float64 if summed else schema.dtype
    sizes = [sum(a.size(dtype) for a in method.upload_arrays(schema, group).values()) for group in schema.groups]
    return min(EVALUATION_CHUNK, max(1, EVALUATION_BYTES // max(1, *sizes)))


def remember(method: Method, state: State, rows: Tensor, uploads: Sequence[Uploads]) -> None:
    """Keep what the parties said about rows, in pieces, where a party may join the model later."""
    if isinstance(method, Extends):
        pieces = rows.split([len(next(iter(one.groups[0].values()))[0]) for one in uploads])
        for piece, one in zip(pieces, uploads, strict=True):
            method.remember(state, piece, one)
