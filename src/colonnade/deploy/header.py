"""What the header of a message to a party must say, before anything in it is believed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from colonnade.deploy.agreement import AGREED, PROPOSAL
from colonnade.errors import WireError
from colonnade.wire.messages import COORDINATOR, MOST_ROUNDS


def check_header(header: Mapping[str, Any], encrypted: bool, run: str, party: str) -> tuple[str, int]:
    """Kind and number of a message of the coordinator of `run` to `party`.

    Raises:
        WireError: it is somebody else's, for somebody else, does not say what it is, or should be encrypted.
    """
    if header.get("run") != run or header.get("sender") != COORDINATOR:
        raise WireError(
            f"a message of {str(header.get('sender'))[:64]!r} in run {str(header.get('run'))[:64]!r}; "
            f"this party listens to the coordinator of {run!r}"
        )
    if header.get("to", party) != party:
        raise WireError(f"a message for {str(header.get('to'))[:64]!r}")
    kind, number = header.get("kind"), header.get("number")
    if not isinstance(kind, str) or type(number) is not int or abs(number) > MOST_ROUNDS:
        raise WireError("the message does not say what it is")
    if not encrypted and kind not in (PROPOSAL, AGREED):
        raise WireError(f"a message {kind[:32]!r} that is not encrypted")
    return kind, number


def has_own(header: Mapping[str, Any], me: str) -> bool:
    """Whether a part of a request is for this party alone: it goes to those who learn."""
    learners = header.get("learners")
    return bool(header.get("own")) and (learners == "*" or (isinstance(learners, list) and me in learners))
