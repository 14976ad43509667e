"""Names of processes: what a certificate's common name may be, so that it can be a subject and a file name too."""

from __future__ import annotations

import re
from collections.abc import Iterable

from colonnade.errors import ConfigError

COORDINATOR = "coordinator"  # the label holder's process, as in wire.messages
PARTY = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,31}")
RESERVED = (COORDINATOR, "server", "ca")  # other processes, and other files beside theirs


def check_parties(names: Iterable[str]) -> tuple[str, ...]:
    """The names as a tuple, or `ConfigError` about the first that cannot be used.

    Two names that differ only in capitals are refused: their files would be the same on some machines.
    """
    parties = tuple(names)
    seen: set[str] = set()
    for name in parties:
        if not PARTY.fullmatch(name):
            raise ConfigError(
                f"party {name!r}: needed a letter and then letters, digits or _, 32 characters at most, e.g. bank_a"
            )
        if name.lower() in RESERVED:
            raise ConfigError(f"party {name!r}: this name stands for something else; choose another")
        if name.lower() in seen:
            raise ConfigError(f"party {name!r} is named twice; give each party once")
        seen.add(name.lower())
    return parties
