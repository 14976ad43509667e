"""The real nats-server of the tests: `colonnade.bench.nats_server` with parties to begin with, and when to skip.

@needs_nats
def test_something(tmp_path):
    with NatsServer(tmp_path / "nats") as server:
        link = connect(server.connection("first"))
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from colonnade.bench import nats_server
from colonnade.bench.nats_server import MISSING
from colonnade.deploy.server import find_server

__all__ = ["MISSING", "PARTIES", "NatsServer", "needs_nats"]
PARTIES = ("first", "second", "third")

# In CI a missing server fails the test (its start says what to install) instead of hiding it.
IN_CI = os.environ.get("CI", "").lower() in {"true", "1"}
needs_nats = pytest.mark.skipif(find_server() is None and not IN_CI, reason=MISSING)


class NatsServer(nats_server.NatsServer):
    """A server for three parties, in a folder of its own unless it is given one."""

    def __init__(self, folder: Path | None = None, parties: Sequence[str] = PARTIES, **more: Any) -> None:
        super().__init__(folder, parties, **more)
