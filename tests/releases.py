"""Releases for tests, as a ledger's line says them."""

from __future__ import annotations

from colonnade.privacy.events import Unit
from colonnade.privacy.ledger import Entry
from colonnade.wire.messages import COORDINATOR, Purpose


def released(
    owner: str,
    mechanism: str,
    number: int = 1,
    purpose: Purpose = Purpose.TRAIN,
    rows: int = 3,
    digest: str = "",
    **parameters: float,
) -> Entry:
    """One release of a party through a mechanism with these parameters."""
    line = {
        "owner": owner,
        "audience": COORDINATOR,
        "unit": Unit.PARTY.value,
        "mechanism": mechanism,
        "purpose": purpose.value,
        "number": number,
        "rows": rows,
        "digest": digest or f"{owner}{number}{purpose}",
        "parameters": list(parameters.items()),
    }
    return Entry.from_json(line)
