"""HttpServer: a real server in a thread, reached over loopback."""

from __future__ import annotations

import httpx
import pytest
from fastapi import FastAPI

from colonnade.errors import ConfigError
from colonnade.web.background import Address, HttpServer


def hello() -> FastAPI:
    app = FastAPI()

    @app.get("/hello")
    def say() -> dict[str, str]:
        return {"said": "hello"}

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
