"""HttpServer: a real server in a thread, reached over loopback."""

from __future__ import annotations

import socket
import ssl
import time
from contextlib import ExitStack, closing, suppress

import httpx
import pytest
from fastapi import FastAPI, Request

from colonnade.errors import ConfigError
from colonnade.identity.certificates import make_trial
from colonnade.web import background
from colonnade.web.background import Address, HttpServer
from tests.processes import LONG


def hello() -> FastAPI:
    app = FastAPI()

    @app.get("/hello")
    def say() -> dict[str, str]:
        return {"said": "hello"}

    @app.get("/slow")
    def wait() -> dict[str, str]:
        time.sleep(0.5)
        return {"said": "hello"}

    @app.post("/body")
    async def read(request: Request) -> dict[str, str]:
        return {"said": (await request.body()).decode()}

    return app


def test_it_serves_while_the_block_runs() -> None:
    with HttpServer(hello(), Address()) as server:
        answered = httpx.get(f"{server.url}/hello")
        assert answered.json() == {"said": "hello"} and "server" not in answered.headers
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{server.url}/hello")


def test_an_address_that_is_taken_is_said() -> None:
    with HttpServer(hello(), Address()) as server:
        port = int(server.url.rpartition(":")[2])
        with pytest.raises(ConfigError, match=f"cannot listen at 127.0.0.1, port {port} "):
            HttpServer(hello(), Address(port=port))


def test_a_block_that_fails_frees_the_address() -> None:
    with pytest.raises(ValueError, match="for a reason"), HttpServer(hello(), Address()) as server:
        raise ValueError("for a reason")
    with HttpServer(hello(), Address(port=int(server.url.rpartition(":")[2]))):
        pass


def talking(server: HttpServer, said: bytes) -> socket.socket:
    host, _, port = server.url.rpartition("//")[2].rpartition(":")
    made = socket.create_connection((host, int(port)), timeout=LONG)
    made.sendall(said)
    return made


HEADER = b" HTTP/1.1\r\nHost: here\r\n"
BODY = b"POST /body" + HEADER + b"Content-Length: 4\r\n\r\n"


@pytest.mark.parametrize(
    ("said", "then"),
    [
        (b"", b""),
        (b"GET /hel", b""),
        (b"GET /hello" + HEADER + b"\r\n", b"GET /hel"),
        (BODY + b"ha", b""),
        (BODY + b"four", BODY),
    ],
    ids=["nothing", "half a call", "half of the second call", "half a body", "half of the second body"],
)
def test_whoever_keeps_a_call_back_is_cut_off(monkeypatch: pytest.MonkeyPatch, said: bytes, then: bytes) -> None:
    """Else a few strangers without a key would hold all connections for as long as they like."""
    monkeypatch.setattr(background, "HEAD", 0.2)
    monkeypatch.setattr(background, "BODY", 0.4)
    with HttpServer(hello(), Address()) as server, closing(talking(server, said)) as stranger:
        if then:
            answered = b""
            while not answered.endswith(b"}"):
                answered += stranger.recv(4096)
            assert b"200 OK" in answered
            stranger.sendall(then)
        with suppress(ConnectionResetError):
            assert stranger.recv(4096) == b""  # cut off, and not after the time that a test may take


def test_who_waits_for_an_answer_is_not_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "HEAD", 0.1)
    monkeypatch.setattr(background, "BODY", 0.1)
    with HttpServer(hello(), Address()) as server:
        assert httpx.get(f"{server.url}/slow", timeout=LONG).json() == {"said": "hello"}


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Address, ssl.SSLContext]:
    """An address with a certificate, and what a caller needs to trust it."""
    certs = tmp_path_factory.mktemp("certificates") / "certs"
    make_trial(certs, ["bank"], ["localhost"])
    address = Address("127.0.0.1", 0, certs / "server.crt", certs / "server.key")
    return address, ssl.create_default_context(cafile=str(certs / "ca.crt"))


def hello_of_tls(trusted: ssl.SSLContext) -> bytes:
    """What a caller says first."""
    heard, said = ssl.MemoryBIO(), ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        trusted.wrap_bio(heard, said, server_hostname="localhost").do_handshake()
    return said.read()


@pytest.mark.parametrize("part", [0.0, 0.5, 1.0], ids=["nothing", "half a hello", "a hello"])
def test_whoever_never_ends_the_handshake_is_cut_off(
    encrypted: tuple[Address, ssl.SSLContext], monkeypatch: pytest.MonkeyPatch, part: float
) -> None:
    monkeypatch.setattr(background, "HANDSHAKE", 0.2)
    address, trusted = encrypted
    begun = hello_of_tls(trusted)
    with (
        HttpServer(hello(), address) as server,
        closing(talking(server, begun[: int(part * len(begun))])) as stranger,
        suppress(ConnectionResetError),
    ):
        stranger.settimeout(40)  # asyncio's own patience is a minute
        while stranger.recv(4096):  # the server's side of the handshake, and then the end
            pass


def test_a_slow_handshake_and_a_later_call_are_answered(
    encrypted: tuple[Address, ssl.SSLContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In small pieces with pauses; and the time of the handshake is none of the connection."""
    monkeypatch.setattr(background, "HANDSHAKE", 2.0)
    address, trusted = encrypted
    heard, said = ssl.MemoryBIO(), ssl.MemoryBIO()
    caller = trusted.wrap_bio(heard, said, server_hostname="localhost")
    with HttpServer(hello(), address) as server, closing(talking(server, b"")) as line:
        while True:
            with suppress(ssl.SSLWantReadError):
                caller.do_handshake()
                break
            for piece in pieces(said.read(), 4):
                line.sendall(piece)
                time.sleep(0.1)
            heard.write(line.recv(65536))
        line.sendall(said.read())
        time.sleep(2.1)
        caller.write(b"GET /hello" + HEADER + b"Connection: close\r\n\r\n")
        line.sendall(said.read())
        answered = b""
        while b"hello" not in answered:
            heard.write(line.recv(65536))
            with suppress(ssl.SSLWantReadError):
                while more := caller.read():
                    answered += more
    assert b"200 OK" in answered


def pieces(data: bytes, count: int) -> list[bytes]:
    size = -(-len(data) // count)
    return [data[at : at + size] for at in range(0, len(data), size)] if data else []


def test_connections_are_counted_before_they_are_encrypted(
    encrypted: tuple[Address, ssl.SSLContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who never ends the handshake holds a file of the process: a run that trains beside it needs some, too."""
    monkeypatch.setattr(background, "_most_connections", lambda: 5)
    address, trusted = encrypted
    with HttpServer(hello(), address) as server, ExitStack() as stack:
        strangers = [stack.enter_context(closing(talking(server, b""))) for _ in range(20)]
        for stranger in strangers[5:]:
            with suppress(ConnectionResetError):
                assert stranger.recv(1) == b""  # closed at once
        for stranger in strangers:
            stranger.close()
        transport = httpx.HTTPTransport(verify=trusted, retries=20)  # until the server has noticed
        with httpx.Client(transport=transport) as client:
            there = server.url.replace("127.0.0.1", "localhost")
            assert client.get(f"{there}/hello", timeout=LONG).json() == {"said": "hello"}
