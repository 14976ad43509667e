"""A server that dies while somebody connects: the connection is tried again, whatever step it had reached."""

from __future__ import annotations

import contextlib
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from colonnade.engines import connection as connecting
from colonnade.engines.nats import NatsLink
from colonnade.identity.credentials import Credentials
from tests.nats_server import NatsServer, needs_nats

pytestmark = needs_nats


class Doorway:
    """Stands before a server and cuts the first connection off when its TLS handshake has begun."""

    def __init__(self, port: int) -> None:
        self._behind, self.cut = port, 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._behind))
                if not self.cut:
                    self.cut += 1
                    client.sendall(server.recv(65536))  # INFO: TLS is required
                    client.recv(65536)  # the first message of the handshake; a killed server answers nothing
                    client.close()
                    server.close()
                    continue
                for one, other in ((client, server), (server, client)):
                    threading.Thread(target=self._relay, args=(one, other), daemon=True).start()

    @staticmethod
    def _relay(one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(65536):
                other.sendall(data)
        for end in (one, other):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.close()


def test_server_killed_during_the_handshake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library waits for ever for such a connection to close: a training between organisations stood still."""
    monkeypatch.setattr(connecting, "ATTEMPT", 1.0)
    said: list[str] = []

    def notify(event: str, **facts: Any) -> None:
        said.append(event)

    with NatsServer(tmp_path / "nats") as server:
        doorway = Doorway(server.port)
        connection = server.connection("first")
        through = connection.model_copy(update={"server": f"tls://127.0.0.1:{doorway.port}"})
        opened: list[NatsLink] = []
        opening = threading.Thread(
            target=lambda: opened.append(NatsLink(Credentials.load(through), "cut", notify).open()), daemon=True
        )
        opening.start()
        opening.join(60)
        assert opened, "it still waits for the connection that was cut off"
        assert doorway.cut == 1 and said == ["server"]
        opened[0].close()
        doorway.close()
