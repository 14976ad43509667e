"""What travelled against what was written down: every message must be in the ledger under its digest."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from colonnade.engines.base import Message
from colonnade.privacy.ledger import Ledger


def unlogged(messages: Iterable[Message], ledger: Ledger) -> tuple[str, ...]:
    """Senders of messages that the ledger does not know, one entry per message.

    The digest is taken here, of the bytes as they travelled: what a message says of itself proves nothing.
    """
    return tuple(m.sender for m in messages if not ledger.holds(hashlib.sha256(m.payload).hexdigest()))
