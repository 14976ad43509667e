"""Several links over one connection: each run gets its own messages, one may leave, and all hear of a lost server."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from colonnade.engines.connection import NatsConnection
from colonnade.engines.message import Outgoing
from colonnade.engines.nats import NatsLink
from colonnade.wire.messages import COORDINATOR
from colonnade.wire.notice import Notice, read_notice
from tests.nats_server import NatsServer, needs_nats
from tests.processes import LONG

RUNS = ("one", "two")


def said(link: NatsLink) -> str:
    incoming = link.next(LONG)
    assert incoming is not None
    link.done([incoming])
    return read_notice(incoming.data).kind


@needs_nats
def test_runs_share_a_connection(tmp_path: Path) -> None:
    events: list[str] = []

    def notify(event: str, **facts: Any) -> None:
        events.append(event)

    with NatsServer(tmp_path / "nats") as server:
        shared = {name: NatsConnection(server.credentials(name), notify).open() for name in (COORDINATOR, "first")}
        links = {
            (name, run): NatsLink(connection.credentials, run, notify, shared=connection).open()
            for name, connection in shared.items()
            for run in RUNS
        }
        for run in RUNS:
            links[COORDINATOR, run].lay(["first"])
        for link in links.values():
            link.listen()

        def exchange(run: str, kind: str) -> None:
            down, up = links[COORDINATOR, run], links["first", run]
            down.send(Outgoing("first", Notice(run, 1, kind, COORDINATOR)), again=True)
            assert said(up) == kind
            up.send(Outgoing(COORDINATOR, Notice(run, 1, f"{kind} back", "first")))
            assert said(down) == f"{kind} back"

        for run in RUNS:
            exchange(run, f"hello {run}")
        links["first", "one"].close()
        links[COORDINATOR, "one"].close()
        exchange("two", "still here")
        links[COORDINATOR, "two"].came_back.clear()
        server.restart(kill=True)
        assert links["first", "two"].came_back.wait(LONG) and links[COORDINATOR, "two"].came_back.wait(LONG)
        assert not links["first", "one"].came_back.is_set(), "it had left"
        exchange("two", "back")
        links["first", "one"] = NatsLink(shared["first"].credentials, "one", notify, shared=shared["first"]).open()
        links[COORDINATOR, "one"] = NatsLink(shared[COORDINATOR].credentials, "one", notify, shared=shared[COORDINATOR])
        links[COORDINATOR, "one"].open().lay(["first"])
        for name in (COORDINATOR, "first"):
            links[name, "one"].listen()
        exchange("one", "again")
        assert events.count("reconnected") == len(shared), "told once per connection, not once per run"
        for connection in shared.values():
            connection.close()


@needs_nats
def test_a_connection_closes_quietly_while_the_server_is_away(tmp_path: Path) -> None:
    tried = threading.Semaphore(0)

    def notify(event: str, **facts: Any) -> None:
        if "Connect call failed" in str(facts):
            tried.release()

    with NatsServer(tmp_path / "nats") as server:
        connection = NatsConnection(server.credentials("first"), notify).open()
        server.stop()
        assert tried.acquire(timeout=LONG)
        assert connection._client is not None
        connection.do(connection._client.publish("unsent", b"waits for the server"))
        connection.close()
        assert connection.closed
