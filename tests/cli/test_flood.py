"""Logs of processes that run for months: lines have time, level, run and round; a flood is one line with a count."""

from __future__ import annotations

import json
import logging
import socket
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import httpx
import pytest
import typer

from colonnade.cli import flood
from colonnade.cli.operating import Journal, operated
from colonnade.errors import RunError
from colonnade.watching.source import OneRun
from colonnade.web.background import Address, HttpServer
from colonnade.web.page import Page
from colonnade.web.sessions import Sessions
from tests.processes import LONG


class Clock:
    """Time goes on when the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, shown: pytest.CaptureFixture[str]) -> None:
        self.now, self._shown, self._lines = 1000.0, shown, list[str]()
        monkeypatch.setattr("time.monotonic", lambda: self.now)
        monkeypatch.setattr(flood.Flood, "_wake_up", lambda self, now: None)  # no timer: this clock stands still

    def lines(self) -> list[str]:
        self._lines += self._shown.readouterr().err.splitlines()
        return self._lines

    def told(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines()]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Clock:
    return Clock(monkeypatch, capsys)


@pytest.mark.parametrize("kind", ["text", "json"])
def test_a_hundred_thousand_refused_messages_leave_a_short_log(clock: Clock, kind: Any) -> None:
    journal = Journal(kind)
    journal.of(run="churn", process="coordinator")
    for number in range(100_000):
        clock.now += 0.001
        journal(
            "refused", party=("bank", "telco")[number % 2], round=3, reason=f"garbage {number} \x1b[2J\n" + "x" * 900
        )
    journal("answered", round=4, bytes=10)
    journal.close()
    assert sum(len(line) + 1 for line in clock.lines()) < 50_000
    if kind == "json":
        counted = [line for line in clock.told() if "more" in line]
        assert sum(line["more"] for line in counted) + 2 * flood.FEW == 100_000, "every one is counted"
        assert [line["within"] for line in counted if line["party"] == "bank"][:3] == [10, 20, 40]
        assert clock.told()[-3]["event"] == "answered"
    else:
        assert all("\x1b" not in line for line in clock.lines())
        assert any("more in 10 s" in line and "refused: party bank" in line for line in clock.lines())


def test_what_was_quiet_is_news_again_and_others_are_not_hidden(clock: Clock) -> None:
    journal = Journal("json")
    for _ in range(5):
        journal("server", trouble="away")
    journal("refused", party="bank", reason="another thing")
    clock.now += 11
    journal("listening")
    clock.now += 21
    journal("server", trouble="away again")
    assert [(line["event"], line.get("more")) for line in clock.told()] == [
        *[("server", None)] * 3, ("refused", None), ("server", 2), ("listening", None), ("server", None)
    ]  # fmt: skip


def test_progress_is_never_left_out_of_json(clock: Clock) -> None:
    journal = Journal("json")
    for number in range(1, 51):
        journal("round", number=number, rounds=50)
    assert [line["number"] for line in clock.told()] == list(range(1, 51))


def test_the_count_is_told_although_nothing_else_happens() -> None:
    written: list[dict[str, Any]] = []
    lock = threading.RLock()
    counting = flood.Flood(lambda event, facts: written.append(dict(facts)), lock)
    with lock:  # as a journal calls it; the timer waits
        for _ in range(flood.FEW):
            counting("refused", {"party": "bank"})
        (kind,) = counting._kinds.values()
        kind.seconds = 0.0
        kind.more = 7
        counting._wake_up(time.monotonic())
        timer = counting._timer
    assert timer is not None
    timer.join(60)
    assert written[-1]["more"] == 7
    counting.close()


def test_a_line_says_when_how_bad_which_run_and_round(clock: Clock) -> None:
    journal = Journal("json")
    journal.of(run="churn", process="telco")
    journal("answered", round=7, bytes=3)
    journal("disconnected")
    journal("agreed", run="other", parties=["a", "b"])
    first, second, third = clock.told()
    assert first["time"].endswith("Z")
    assert (first["level"], first["event"], first["run"], first["process"], first["round"]) == (
        "info", "answered", "churn", "telco", 7
    )  # fmt: skip
    assert (second["level"], second["round"]) == ("warning", 7), "the last round of the run"
    assert (third["run"], third["parties"]) == ("other", ["a", "b"])
    assert "round" not in third, "there was none yet"


@pytest.mark.parametrize("number", [-1, 0])
def test_a_step_of_the_agreement_is_no_round(clock: Clock, number: int) -> None:
    journal = Journal("json")
    journal("waiting", run="churn", round=number, parties=["telco"])
    journal("agreed", run="churn")
    waiting, agreed = clock.told()
    assert "round" not in waiting and "round" not in agreed and waiting["parties"] == ["telco"]


def test_whatever_ends_a_process_is_json_too(clock: Clock) -> None:
    with pytest.raises(typer.Exit) as end, operated(Journal("json")):
        warnings.showwarning("a short\ntraining", UserWarning, "", 0)
        raise RunError("the store is\nan old copy")
    assert end.value.exit_code == 2
    assert [(line["level"], line["event"], line["reason"]) for line in clock.told()] == [
        ("warning", "warning", "a short training"), ("error", "failed", "the store is an old copy")
    ]  # fmt: skip
    with pytest.raises(RunError), operated(Journal("text")):
        raise RunError("for people the command line says it")


def test_what_strangers_send_over_http_is_one_line_with_a_count(capsys: pytest.CaptureFixture[str]) -> None:
    """No key is needed for any of it, so it must neither fill the log nor stand in it as anything but an event."""
    page = Page(OneRun(Path(), "x"), Sessions(None))
    with operated(Journal("json")), HttpServer(page.app(), Address()) as server:
        host, _, port = server.url.rpartition("//")[2].rpartition(":")

        def say(text: str) -> None:
            with socket.create_connection((host, int(port)), timeout=LONG) as stranger:
                stranger.sendall(text.encode())
                if not text.endswith("half"):
                    stranger.recv(100)

        for _ in range(50):
            say("garbage\r\n\r\n")
            say("GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n")
            say(f"POST /login HTTP/1.1\r\nHost: {host}:{port}\r\nOrigin: {server.url}\r\nContent-Length: 9\r\n\r\nhalf")
        assert httpx.get(f"{server.url}/login").status_code == 200
    told = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert {(line["level"], line["event"], line["of"]) for line in told} == {("warning", "logged", "uvicorn.error")}
    assert len(told) < 10 and sum(line.get("more", 1) for line in told) >= 100
    assert not any("trace" in line for line in told), "a call that broke off is no fault"


def test_a_fault_of_the_program_is_an_event_that_says_where(clock: Clock) -> None:
    with operated(Journal("json")):
        try:
            raise ValueError("of\nthe inside")
        except ValueError:
            logging.getLogger("colonnade.web.app").exception("a call to %s failed", "/v1\n/predict")
    (line,) = clock.told()
    assert (line["event"], line["of"], line["reason"]) == (
        "logged", "colonnade.web.app", "a call to /v1 /predict failed"
    )  # fmt: skip
    assert line["trace"][-2:] == ["ValueError: of", "the inside"] and any(
        "test_flood.py" in one for one in line["trace"]
    )
