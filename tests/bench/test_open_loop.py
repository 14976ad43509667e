"""The load generator: a late call counts from when it was due, and one without a right answer is lost."""

from __future__ import annotations

import ssl
import time
from pathlib import Path

from fastapi import FastAPI, Request, Response

from colonnade.bench.open_loop import Target, body_of, run_calls
from colonnade.identity.certificates import make_trial
from colonnade.web.background import Address, HttpServer


def stalling(seconds: float) -> FastAPI:
    """Answers at once, but for the third call, during which nothing is answered."""
    app, count = FastAPI(), [0]

    @app.post("/v1/predict")
    async def predict(request: Request) -> Response:
        await request.body()
        count[0] += 1
        if count[0] == 3:
            time.sleep(seconds)  # the whole server stands still
        return Response("no" if count[0] == 5 else "yes", 503 if count[0] == 6 else 200)

    return app


def test_a_stall_is_seen_in_all_calls_that_were_due(tmp_path: Path) -> None:
    make_trial(tmp_path / "certs", ["first"])
    tls = ssl.create_default_context(cafile=str(tmp_path / "certs/ca.crt"))
    address = Address(certificate=tmp_path / "certs/server.crt", key=tmp_path / "certs/server.key")
    with HttpServer(stalling(1.0), address) as server:
        bodies = [body_of(["1"])] * 12
        found = run_calls(Target(server.url, "key", tls), bodies, 20.0, lambda told: "" if told == b"yes" else "wrong")
    assert len(found.milliseconds) == 10 and len(found.lost) == 2
    assert any(lost.endswith("wrong") for lost in found.lost) and any("503: yes" in lost for lost in found.lost)
    slow = [ms for ms in found.milliseconds if ms > 300]
    assert len(slow) >= 5 and max(slow) >= 900, "also those that were due while nothing was answered"
    assert found.percentile(0.0) == min(found.milliseconds) and found.percentile(1.0) == max(found.milliseconds)


def test_a_server_that_is_not_there_loses_calls() -> None:
    found = run_calls(Target("https://127.0.0.1:1", "key", ssl.create_default_context()), [b"{}"] * 2, 100.0, str)
    assert len(found.lost) == 2 and found.percentile(0.5) == float("inf")
