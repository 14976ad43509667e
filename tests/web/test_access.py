"""Access: so many calls per second on average, and some more at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi import Request

from colonnade.web.access import Access, Allowance
from colonnade.web.app import Problem
from colonnade.web.callers import Callers, add_caller


def test_calls_come_back_with_time() -> None:
    left = Allowance(2.0, 20.0, 0.0)
    assert [left.take(0.0) for _ in range(21)] == [0.0] * 20 + [0.5]
    assert left.take(0.4) == pytest.approx(0.1) and left.take(0.6) == 0.0
    assert [left.take(1000.0) for _ in range(21)][-2:] == [0.0, 0.5], "no more than at first"
    assert left.take(999.0) > 0, "a clock that goes back gives nothing"


def request(key: str) -> Request:
    return Request({"type": "http", "headers": [(b"authorization", f"Bearer {key}".encode())]})


def test_a_file_that_cannot_be_read_lets_nobody_in(tmp_path: Path) -> None:
    path = tmp_path / "callers.json"
    key = add_caller(path, "shop", ["predict"])
    access = Access(Callers(path), 100.0)
    assert access.caller(request(key), "predict").name == "shop"
    path.write_text("{}")
    with pytest.raises(Problem, match="the file of callers cannot be used here") as told:
        access.caller(request(key), "predict")
    assert told.value.status == 503 and str(tmp_path) not in str(told.value)
