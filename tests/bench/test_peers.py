"""The benchmark beside another system: its relay counts bytes; without that system it says what to install."""

from __future__ import annotations

import socket
import sys
import threading

import numpy as np
import pytest

from colonnade.bench.xgboost_federated import Counter, train_federated, version
from colonnade.errors import DataError


def test_a_relay_counts_both_ways() -> None:
    echo = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        there = echo.accept()[0]
        there.sendall(there.recv(100) * 3)
        there.close()

    answering = threading.Thread(target=answer, daemon=True)
    answering.start()
    with echo, Counter() as counter:
        with socket.create_connection(("127.0.0.1", counter.relay(echo.getsockname()[1])), timeout=10) as here:
            here.sendall(b"7 bytes")
            got = b""
            while data := here.recv(100):
                got += data
        answering.join()
    assert got == b"7 bytes" * 3
    assert counter.bytes == 4 * 7


def test_without_xgboost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xgboost", None)
    with pytest.raises(DataError, match="bench peers needs xgboost, which is not installed; run: pip install xgboost"):
        version()


def test_it_finds_what_only_the_other_party_knows() -> None:
    pytest.importorskip("xgboost", reason="xgboost is not installed")
    rng = np.random.default_rng(0)
    tables = [rng.normal(size=(800, 2)).astype(np.float32) for _ in range(2)]
    labels = (tables[1][:, 0] > 0).astype(np.int64)
    rows = np.arange(800)
    found = train_federated(tables, labels, rows[:600], rows[600:], 3)
    assert found.scores[labels[600:] == 1].min() > found.scores[labels[600:] == 0].max()
    assert found.moved > 1000
