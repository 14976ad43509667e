"""What a request may ask of a party, by what was agreed on."""

from __future__ import annotations

import torch

from colonnade.deploy.agreement import Proposal
from colonnade.errors import Refused
from colonnade.wire.messages import Purpose, Request


def check_training(request: Request, proposal: Proposal, party: str, rows: int) -> None:
    """What was agreed on is what is counted: so many rounds, one upload in each, about training rows only.

    Of a party that brings what it learned in a former run nothing is counted, and it is asked for predictions only.

    Raises:
        Refused: a request asks for something else; `rows` is how many there are.
    """
    asked = {query.purpose for query in request.queries if party in query.senders}
    if not proposal.trains(party) and (party in request.learners or asked & {Purpose.TRAIN, Purpose.EVALUATE}):
        raise Refused(
            f"request {request.number} asks {party!r} to train, which brings its part of a former run instead"
        )
    train = [query for query in request.queries if query.purpose is Purpose.TRAIN]
    if train and (request.number > proposal.training().rounds or len(train) > 1):
        raise Refused(
            f"request {request.number} asks for {len(train)} training uploads; the run agreed on one in each of "
            f"{proposal.training().rounds} rounds"
        )
    agreed = torch.zeros(rows, dtype=torch.bool)
    agreed[proposal.train] = True
    for query in request.queries:
        inside = agreed[query.rows]
        if query.purpose is Purpose.TRAIN and not bool(inside.all()):
            raise Refused(f"request {request.number} trains on rows that the run did not agree to train on")
        if query.purpose is Purpose.EVALUATE and bool(inside.any()):
            raise Refused(f"request {request.number} asks to evaluate rows that train")
