"""Certificates for everyone, made once; and a meeting on a line in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from colonnade.align.settings import AlignSettings
from colonnade.identity.certificates import make_trial
from colonnade.identity.credentials import Connection, Credentials
from colonnade.wire.messages import COORDINATOR
from tests.align.hub import Hub, Meeting

PARTIES = ("telco", "shop")
NewMeeting = Callable[..., Meeting]


@pytest.fixture(scope="session")
def credentials(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Credentials]:
    folder = tmp_path_factory.mktemp("trial") / "certs"
    make_trial(folder, PARTIES)

    def load(name: str) -> Credentials:
        files = {"certificate": folder / f"{name}.crt", "key": folder / f"{name}.key"}
        return Credentials.load(Connection(server="tls://localhost:4222", authority=folder / "ca.crt", **files))

    return {name: load(name) for name in (COORDINATOR, *PARTIES)}


@pytest.fixture
def meeting(credentials: Mapping[str, Credentials], tmp_path: Path) -> NewMeeting:
    """meeting(parties=..., keep=..., ...): whatever `AlignSettings` takes."""

    def new(**chosen: Any) -> Meeting:
        settings = AlignSettings(**{"name": "trial", "parties": PARTIES, "patience": 120, **chosen})
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        return Meeting(Hub((COORDINATOR, *settings.parties)), credentials, settings, folder)

    return new
