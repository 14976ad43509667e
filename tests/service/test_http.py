"""Predictions over HTTP: the application in this process, real parties over the link in memory, a real asker."""

from __future__ import annotations

import asyncio
import errno
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from fastapi import FastAPI

from colonnade.align.files import Alignment, write_alignment
from colonnade.align.match import Agreed, MatchReport
from colonnade.deploy.party_setup import PartySetup
from colonnade.deploy.policy import Policy
from colonnade.deploy.predict import Wish
from colonnade.deploy.signing import check_own_file
from colonnade.engines import remote
from colonnade.predict import Prediction
from colonnade.run import Run
from colonnade.service import http
from colonnade.service.askers import Askers, ModelPlace
from colonnade.service.http import Predictions, routes
from colonnade.service.questions import Most, Questions
from colonnade.service.run_thread import Means, RunPlace, RunThread
from colonnade.service.versions import FILE
from colonnade.web.access import Access
from colonnade.web.app import new_app
from colonnade.web.callers import Callers, add_caller
from colonnade.web.settings import HttpSection
from colonnade.wire.messages import COORDINATOR
from colonnade.withdrawn import withdraw
from tests.deploy.memory import Room, SmallTrial, Way, at_once
from tests.processes import LONG

PARTIES = ("party_0", "party_1", "party_2")
ROWS = 90
GONE: dict[str, list[int]] = {}
IDS = [f"kunde-{row}" for row in range(ROWS)]


@dataclass(frozen=True)
class Trial(SmallTrial):
    """Parties that predict at most so many rows at a time, and no rows of people who withdrew there (`GONE`)."""

    def setup(self, name: str) -> PartySetup:
        return replace(
            super().setup(name),
            policy=Policy(most_rows_per_prediction=20),
            withdrawn=lambda: torch.tensor(GONE.get(name, []), dtype=torch.int64),
        )


@dataclass(frozen=True)
class Client:
    """Calls the application in this process, from any thread."""

    app: FastAPI

    def request(self, method: str, path: str, **more: Any) -> httpx.Response:
        async def call() -> httpx.Response:
            transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://here", timeout=LONG) as client:
                return await client.request(method, path, **more)

        return asyncio.run(call())

    def get(self, path: str, **more: Any) -> httpx.Response:
        return self.request("GET", path, **more)

    def post(self, path: str, **more: Any) -> httpx.Response:
        return self.request("POST", path, **more)


async def pieces(*content: bytes) -> AsyncIterator[bytes]:
    for one in content:
        yield one


@dataclass
class Service:
    """The application with what is behind it."""

    room: Room
    client: Client
    questions: Questions
    askers: Askers
    keys: dict[str, str]
    let_go: threading.Event = field(default_factory=threading.Event)  # questions wait until it is set

    def post(self, *ids: str, caller: str = "shop", **more: Any) -> httpx.Response:
        return self.client.post(
            "/v1/predict", json={"ids": list(ids), **more}, headers={"Authorization": f"Bearer {self.keys[caller]}"}
        )

    def get(self, path: str, caller: str = "shop") -> httpx.Response:
        return self.client.get(path, headers={"Authorization": f"Bearer {self.keys[caller]}"})

    @property
    def folder(self) -> Path:
        return self.room.trial.place(COORDINATOR)

    def ledger(self) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in (self.folder / "ledger.jsonl").read_text().splitlines()]
        return [line for line in lines if line["purpose"] == "PREDICT"]

    def _under_way(self, count: int) -> bool:
        return self.questions.waiting >= count and len(self.questions._asking) == 1

    def held(self, *calls: Callable[[], httpx.Response]) -> list[httpx.Response]:
        """Calls that all come while the question about the first is under way."""
        self.let_go.clear()
        with ThreadPoolExecutor(len(calls)) as pool:
            found = []
            for count, call in enumerate(calls, 1):
                found.append(pool.submit(call))
                wait_until(partial(self._under_way, count))
            self.let_go.set()
            return [one.result(LONG) for one in found]


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LONG
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def align(folder: Path) -> None:
    report = MatchReport(ROWS, (), ROWS, 0, 0)
    agreed = Agreed("test", "0" * 32, (), "all", ROWS, 0)
    write_alignment(folder, Alignment(COORDINATOR, agreed, np.arange(ROWS), tuple(IDS), None, report))


@contextmanager
def serving(room: Room, folder: Path, **settings: Any) -> Iterator[Service]:
    """The application over a finished run."""
    path = folder / "callers.json"
    keys = {"shop": add_caller(path, "shop", ["predict"]), "desk": add_caller(path, "desk", ["predict", "watch"])}
    keys |= {"guard": add_caller(path, "guard", ["watch"]), "nobody": "clk_x"}
    section = HttpSection(callers=path, **settings)
    place = ModelPlace(folder / "run", folder / "alignment", lambda version: room.trial.run, folder / "withdrawn.json")
    askers = Askers(place, room._notify(COORDINATOR), lambda run, notify: closing(room.link(COORDINATOR)))  # type: ignore[arg-type]
    let_go = threading.Event()
    let_go.set()

    def held(version: int, wish: Wish) -> Prediction:
        let_go.wait(LONG)
        return askers.ask(version, wish)

    questions = Questions(
        held, Most(section.most_waiting, section.most_waiting_of_one), askers.look, patience=1.0
    ).start()
    app = new_app()
    predictions = Predictions(section, askers, questions, lambda: True)
    app.include_router(routes(predictions, Access(Callers(path), section.calls_per_second)))
    try:
        wait_until(lambda: askers.ready)
        yield Service(room, Client(app), questions, askers, keys, let_go)
    finally:
        assert questions.end(LONG)
        askers.close()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Room, Path]]:
    """A finished run whose parties are there."""
    folder = tmp_path_factory.mktemp("http")
    room = Room.of(
        folder / "room", PARTIES, data={"widths": (5, 4, 5), "rows": ROWS},
        method={"name": "vimadmm", "local_steps": 2}, model={"hidden": 6, "embedding": 4},
        training={"rounds": 4, "evaluate_every": 2, "schedule": {"batch": 20}}, absence={"patience": 2},
    )  # fmt: skip
    room.trial = Trial(**vars(room.trial))
    align(folder / "alignment")
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(remote, "ASK_AGAIN", 0.1)
        stack.enter_context(room).train()
        (folder / "run").mkdir()
        (folder / "run" / "v1").symlink_to(room.trial.place(COORDINATOR))
        told = {"used": 1, "before": [], "failed": [], "waiting": 0, "changes": []}
        (folder / "run" / FILE).write_text(json.dumps(told))
        yield room, folder


@pytest.fixture
def service(trained: tuple[Room, Path], tmp_path: Path) -> Iterator[Service]:
    room, folder = trained
    (folder / "callers.json").unlink(missing_ok=True)
    with serving(room, folder, deadline=20.0) as found:
        yield found


def test_a_call_is_answered_recorded_and_signed(trained: tuple[Room, Path], service: Service) -> None:
    room, _ = trained
    before = len(service.ledger())
    told = service.post(*IDS[7:10], caller="desk")
    assert told.status_code == 200, told.text
    answer = told.json()
    assert (answer["model"], answer["answered"], answer["left_out"]) == (1, list(PARTIES), [])
    assert answer["classes"] == [0, 1, 2] and [row["id"] for row in answer["predictions"]] == IDS[7:10]
    consent, question = service.ledger()[before:]
    assert consent["callers"] == question["callers"] == [["desk", 3]] and question["rows"] == 3 and question["time"]
    assert consent["parameters"] == [["consent", 1.0]]
    assert check_own_file(service.folder, room.link(COORDINATOR).credentials, room.trial.run) == 0, "all is signed"
    service.questions.end(LONG)
    service.askers.close()
    wanted = room.predict(Wish(torch.arange(7, 10))).logits
    model = Run.load(service.folder).model
    assert [row["prediction"] for row in answer["predictions"]] == model.task.decide(wanted).tolist()
    shares = model.task.probabilities(wanted.double())
    assert np.allclose([row["probabilities"] for row in answer["predictions"]], shares, atol=1e-5)


def test_calls_that_wait_travel_together(service: Service) -> None:
    alone = [service.post(*IDS[:3]).json(), service.post(IDS[2], IDS[0]).json(), service.post(IDS[60]).json()]
    asked, before = service.questions.asked, len(service.ledger())
    first = lambda: service.post(IDS[50])  # noqa: E731  # it is under way while the others come
    rest = [lambda: service.post(*IDS[:3]), lambda: service.post(IDS[2], IDS[0], caller="desk")]
    found = service.held(first, *rest, lambda: service.post(IDS[60]))
    assert [told.status_code for told in found] == [200] * 4
    assert service.questions.asked == asked + 2, "one for the first, one for all that came meanwhile"
    for told, wanted in zip(found[1:], alone, strict=True):
        got, expected = told.json()["predictions"], wanted["predictions"]
        assert [(row["id"], row["prediction"]) for row in got] == [(row["id"], row["prediction"]) for row in expected]
        shares = [[row["probabilities"] for row in rows] for rows in (got, expected)]
        assert np.allclose(*shares, atol=1e-5)
    together = service.ledger()[before:][-1]
    assert together["rows"] == 4, "a row that two need is asked about once"
    assert sorted(together["callers"]) == [["desk", 2], ["shop", 4]]


def test_what_is_refused_together_is_asked_about_apart(service: Service) -> None:
    """The parties' policy allows 20 rows at a time: neither of two calls of 15 suffers from the other."""
    calls = [lambda: service.post(IDS[50]), lambda: service.post(*IDS[:15]), lambda: service.post(*IDS[15:30])]
    found = service.held(*calls, lambda: service.post(*IDS[:21]))
    assert [told.status_code for told in found] == [200, 200, 200, 409]
    assert "refuses" in found[3].json()["error"] and found[3].json()["error"].endswith("nothing was predicted")


BAD: list[tuple[object, int, str]] = [
    ({"ids": [IDS[0], "x", "y"]}, 422, "2 of 3 ids are not among the aligned rows; first: x, y"),
    ({"ids": []}, 400, "ids: needed a list of at least one id"),
    ({"ids": "kunde-1"}, 400, "ids: needed a list"),
    ({}, 400, "ids: needed a list"),
    ([], 400, "the body needs to be an object"),
    ({"ids": [IDS[0]] * 2}, 400, "an id is listed more than once"),
    ({"ids": [None]}, 400, "ids: number 1 is neither text nor a whole number"),
    ({"ids": [IDS[0], True]}, 400, "ids: number 2 is neither"),
    ({"ids": IDS[:1], "model": "1"}, 400, "model: needed the number of a version"),
    ({"ids": IDS[:1], "model": 2}, 404, "there is no finished version 2"),
    ({"ids": IDS[:1], "absent": "wait"}, 400, "absent: needed 'refuse' or 'leave-out'"),
    ({"ids": IDS[:1], "row": 1}, 400, "'row' is no setting of a call; there are ids, model, absent"),
    ({"ids": [str(n) for n in range(31)]}, 413, "ids: 31 of them; at most 30 are taken"),
    (b"{", 400, "the body is not JSON"),
    (b'{"ids": [NaN]}', 400, "the body is not JSON"),
    (b"\xff", 400, "the body is not JSON"),
    (b"[" * 900, 400, "the body is not JSON"),
    (b'"' + b"x" * 1023 + b'"', 413, "the body has more than 1,024 bytes"),
]


def test_bad_calls_get_one_sentence(trained: tuple[Room, Path], tmp_path: Path) -> None:
    room, folder = trained
    (folder / "callers.json").unlink(missing_ok=True)
    with serving(room, folder, most_rows=30, most_bytes=1024) as service:
        before, asked = len(service.ledger()), service.questions.asked
        key = {"Authorization": f"Bearer {service.keys['shop']}"}
        for body, status, sentence in BAD:
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            told = service.client.post("/v1/predict", content=content, headers=key)
            assert told.status_code == status and told.json()["error"].startswith(sentence), (body, told.text)
        told = service.client.post("/v1/predict", content=pieces(b"x" * 700, b"x" * 700), headers=key)
        assert told.status_code == 413, "also without a header that says so"
        unknown = service.post("x", *IDS[:2]).json()
        assert (unknown["unknown"], unknown["first"]) == (1, ["x"])
        assert (len(service.ledger()), service.questions.asked) == (before, asked), "nobody was asked"


def test_who_may_call(service: Service) -> None:
    anonymous = service.client.post("/v1/predict", json={"ids": IDS[:1]})
    assert anonymous.status_code == 401 and anonymous.headers["WWW-Authenticate"] == "Bearer"
    assert service.post(IDS[0], caller="nobody").status_code == 401
    refused = service.post(IDS[0], caller="guard")
    assert refused.status_code == 403 and "does not have the right 'predict'" in refused.json()["error"]
    assert service.get("/metrics").status_code == 403 and service.get("/v1/models", "guard").status_code == 403
    known = service.get("/v1/models").json()
    assert known["in_use"] == 1 and [v["state"] for v in known["versions"]] == ["in use"]
    assert service.client.get("/healthz").json() == {"status": "ok"}
    assert service.client.get("/readyz").json() == {"status": "ready"}
    assert service.client.get("/v1/predict").status_code == 405 and service.client.get("/x").status_code == 404
    assert service.post(IDS[0]).status_code == 200
    text = service.get("/metrics", "guard").text
    assert 'colonnade_predict_calls_total{caller="shop",outcome="answered"} 1.0' in text
    assert 'colonnade_predict_calls_total{caller="-",outcome="401"} 2.0' in text
    assert "colonnade_predict_rows_total 1.0" in text and "colonnade_parties_away 0.0" in text


def test_more_calls_than_may_wait_are_told(trained: tuple[Room, Path]) -> None:
    room, folder = trained
    (folder / "callers.json").unlink(missing_ok=True)
    with serving(room, folder, most_waiting=2) as service:
        service.let_go.clear()
        with ThreadPoolExecutor(2) as pool:
            kept = [pool.submit(service.post, id) for id in IDS[:2]]
            wait_until(lambda: service.questions.waiting == 2)
            told = service.post(IDS[2])
            assert told.status_code == 503 and told.headers["Retry-After"] == "1"
            assert told.json()["error"] == "2 calls wait already, which is all that may; nothing was predicted"
            service.let_go.set()
            assert [one.result(LONG).status_code for one in kept] == [200, 200], "none is lost"


def test_one_caller_with_too_many_calls_leaves_room_for_others(trained: tuple[Room, Path]) -> None:
    room, folder = trained
    (folder / "callers.json").unlink(missing_ok=True)
    with serving(room, folder, most_waiting_of_one=2) as service:
        service.let_go.clear()
        with ThreadPoolExecutor(3) as pool:
            kept = [pool.submit(service.post, id) for id in IDS[:2]]
            wait_until(lambda: service.questions.waiting == 2)
            told = service.post(IDS[2])
            assert told.status_code == 429 and told.headers["Retry-After"] == "1"
            assert told.json()["error"].startswith(
                "2 calls of 'shop' wait already, which is all that may of one caller"
            )
            kept.append(pool.submit(service.post, IDS[3], caller="desk"))
            wait_until(lambda: service.questions.waiting == 3)
            service.let_go.set()
            assert [one.result(LONG).status_code for one in kept] == [200] * 3
        assert service.post(IDS[2]).status_code == 200, "when they are answered there is room again"


def test_calls_too_often_are_told(trained: tuple[Room, Path]) -> None:
    room, folder = trained
    (folder / "callers.json").unlink(missing_ok=True)
    with serving(room, folder, calls_per_second=0.1) as service:
        assert service.get("/v1/models").status_code == 200
        told = service.post(IDS[0])
        assert told.status_code == 429 and 1 <= int(told.headers["Retry-After"]) <= 10
        assert service.get("/v1/models", "desk").status_code == 200, "everybody has a rate of its own"


def test_somebody_is_away(service: Service) -> None:
    """A call that needs everybody waits; one that does not is answered meanwhile. Nobody is lost."""
    room = service.room
    room.leave("party_1")
    with ThreadPoolExecutor(3) as pool:
        waiting, others = pool.submit(partial(service.post, *IDS[:3], absent="refuse")), list[Future[httpx.Response]]()
        for _ in range(2):  # two kinds of calls that wait must not take turns and leave none to others
            wait_until(lambda: len(service.questions._asking) == 1)
            others.append(pool.submit(partial(service.post, IDS[5 + len(others)], absent="refuse")))
        wait_until(lambda: service.questions.waiting == 3)
        without = service.post(*IDS[:3], absent="leave-out")
        assert without.status_code == 200, without.text
        answer = without.json()
        assert (answer["answered"], answer["left_out"]) == (["party_0", "party_2"], ["party_1"])
        assert all("left_out" not in row for row in answer["predictions"]), "it is the same in every row"
        assert service.post(IDS[4]).json()["left_out"] == ["party_1"], "who does not say it gets what the model can say"
        assert service.askers.away == ["party_1"] and not waiting.done()
        room.arrive("party_1")
        told = waiting.result(LONG)
        assert [one.result(LONG).status_code for one in others] == [200, 200]
    assert told.status_code == 200 and told.json()["answered"] == list(PARTIES)
    assert told.json()["predictions"][0]["probabilities"] != answer["predictions"][0]["probabilities"]
    wait_until(lambda: service.post(IDS[0], absent="leave-out").json()["left_out"] == [])


def test_a_deadline_passes(trained: tuple[Room, Path]) -> None:
    room, folder = trained
    (folder / "callers.json").unlink(missing_ok=True)
    with serving(room, folder, deadline=1.5) as service:
        room.leave("party_2")
        try:
            before = len(service.ledger())
            told = service.post(IDS[0], absent="refuse")
            assert told.status_code == 503 and told.headers["Retry-After"] == "1" and told.json()["away"] == ["party_2"]
            assert told.json()["error"] == "no answer within 1.5 s; nothing was predicted; party_2 did not answer"
            assert all(entry["parameters"] for entry in service.ledger()[before:]), "only asked whether they would"
        finally:
            room.arrive("party_2")


def test_calls_that_wait_when_the_process_ends_are_told(service: Service) -> None:
    service.let_go.clear()
    with ThreadPoolExecutor(3) as pool:
        calls = [pool.submit(service.post, IDS[0])]
        wait_until(lambda: service._under_way(1))
        calls.append(pool.submit(service.post, IDS[1]))
        wait_until(lambda: service._under_way(2))
        ended = pool.submit(service.questions.end, LONG)
        wait_until(lambda: service.questions._ending)
        late = service.post(IDS[2])
        service.let_go.set()
        found = [one.result(LONG) for one in calls]
        assert ended.result(LONG)
    assert [told.status_code for told in (*found, late)] == [200, 503, 503], "the one under way is answered"
    assert found[1].json()["error"] == late.json()["error"] == "this process ends; nothing was predicted"


def test_a_fault_of_the_program_is_not_told(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ValueError("a secret")

    monkeypatch.setattr(http, "predictions_of", fail)
    told = service.post(IDS[0])
    assert told.status_code == 500 and "secret" not in told.text
    assert told.json()["error"].startswith("something went wrong here, and was logged")
    monkeypatch.undo()
    assert service.post(IDS[0]).status_code == 200


def test_a_full_disk_loses_nothing(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """What could not be recorded is not asked, and what comes later fits what was."""
    assert service.post(IDS[0]).status_code == 200
    before = service.ledger()

    def full(file: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("colonnade.saved.os.fsync", full)
    told = service.post(IDS[1])
    assert told.status_code == 503 and "its operator sees why" in told.json()["error"]
    assert "space" not in told.text and service.ledger() == before
    monkeypatch.undo()
    assert service.post(IDS[1]).status_code == 200 and len(service.ledger()) == len(before) + 2
    assert check_own_file(service.folder, service.room.link(COORDINATOR).credentials, service.room.trial.run) == 0


def test_the_model_and_the_rows_follow_the_files(service: Service, trained: tuple[Room, Path]) -> None:
    _, folder = trained
    models = folder / "run" / FILE
    kept = models.read_text()
    models.write_text(json.dumps({**json.loads(kept), "used": 0, "waiting": 1}))
    try:
        wait_until(lambda: not service.askers.used)
        told = service.post(IDS[0])
        assert told.status_code == 503 and told.json()["error"] == "there is no model in use yet"
        assert service.client.get("/readyz").status_code == 503
        assert service.post(IDS[0], model=1).status_code == 200
    finally:
        models.write_text(kept)
    wait_until(lambda: service.askers.ready)


def test_people_who_withdraw_are_refused_from_then_on(trained: tuple[Room, Path], service: Service) -> None:
    _, folder = trained
    assert service.post(IDS[3]).status_code == 200
    before = len(service.ledger())
    try:
        withdraw(folder / "withdrawn.json", [IDS[3]])
        wait_until(lambda: service.askers.rows is not None and IDS[3] in service.askers.rows.withdrawn.ids)
        told = service.post(IDS[3], IDS[4])
        assert told.status_code == 400
        assert "1 of 2 ids are of people who withdrew" in told.text
        assert len(service.ledger()) == before, "nobody was asked"
        assert service.post(IDS[4]).status_code == 200
    finally:
        (folder / "withdrawn.json").unlink()


def here(room: Room, before: int) -> bool:
    """Whether party_2 has said since that it is back."""
    return any((way.sender, way.kind) == ("party_2", remote.HERE) for way, _ in room.office.carried[before:])


def test_who_has_been_heard_is_waited_for_however_long_it_takes_to_refuse(service: Service) -> None:
    """A party that was away is back, and its refusal is three times as long on its way as a sign of life may be."""
    room = service.room
    room.leave("party_2")
    assert service.post(IDS[0], absent="leave-out").json()["left_out"] == ["party_2"]
    assert service.post(IDS[0], absent="leave-out").json()["left_out"] == ["party_2"], "it is not waited for again"
    GONE["party_2"], before = [7], len(room.office.carried)

    def slowly(way: Way) -> Sequence[float]:
        return (3 * remote.BACK if (way.sender, way.kind) == ("party_2", "REFUSED") else 0.0,)

    room.office.carry = slowly
    try:
        room.arrive("party_2")
        wait_until(lambda: here(room, before))
        told = service.post(IDS[7], absent="leave-out")
        assert told.status_code == 409 and "party_2" in told.json()["error"], told.text
        assert service.post(IDS[8], absent="leave-out").json()["left_out"] == []
    finally:
        GONE.clear()
        room.office.carry = at_once


def test_a_daemon_says_that_it_is_there_and_again_when_its_connection_is_back(service: Service) -> None:
    room, link, before = service.room, service.room.link("party_2"), len(service.room.office.carried)
    room.leave("party_2")
    setup = room.trial.setup("party_2")
    means = Means(lambda run, notify: nullcontext(link), lambda: setup, lambda: setup.policy)
    thread = RunThread(room.trial.run, RunPlace(room.trial.place("party_2")), means, room._notify("party_2"))
    thread.start()
    try:
        wait_until(lambda: here(room, before))
        before = len(room.office.carried)
        link.came_back.set()
        wait_until(lambda: here(room, before))
    finally:
        thread.end()
        assert thread.ended(LONG) and not thread.failure
        room.arrive("party_2")


def test_a_sign_of_life_after_the_consent_stops_the_answer_until_it_is_clear(service: Service) -> None:
    """It comes back between the consent of the others and their answers, and refuses after all have answered."""
    room = service.room
    room.leave("party_2")
    assert service.post(IDS[0], absent="leave-out").json()["left_out"] == ["party_2"]
    GONE["party_2"], before, begun = [7], len(room.office.carried), threading.Event()

    def carry(way: Way) -> Sequence[float]:
        if (way.reader, way.kind) == (COORDINATOR, "PREDICT") and not begun.is_set():
            begun.set()
            room.arrive("party_2")
            assert room.office.changed.wait_for(lambda: here(room, before), LONG), "the answer leaves after that"
        return (3 * remote.BACK if (way.sender, way.kind) == ("party_2", "REFUSED") else 0.0,)

    room.office.carry = carry
    try:
        told = service.post(IDS[7], absent="leave-out")
        assert begun.is_set()
        assert told.status_code == 409 and "party_2" in told.json()["error"], told.text
    finally:
        GONE.clear()
        room.office.carry = at_once


def test_somebody_who_is_back_and_refuses_is_heard(trained: tuple[Room, Path], service: Service) -> None:
    """It was not waited for; what it says about a person who withdrew there counts all the same."""
    room, _ = trained
    room.leave("party_1")
    assert service.post(IDS[0], absent="leave-out").json()["left_out"] == ["party_1"]
    GONE["party_1"] = [5]
    try:
        room.arrive("party_1")
        wait_until(lambda: service.post(IDS[1], absent="leave-out").json()["left_out"] == [])
        room.leave("party_1")
        assert service.post(IDS[0], absent="leave-out").json()["left_out"] == ["party_1"]
        room.arrive("party_1")
        wait_until(lambda: service.post(IDS[5], absent="leave-out").status_code == 409)
        again = [service.post(IDS[5], absent="leave-out") for _ in range(3)]
        assert [one.status_code for one in again] == [409] * 3, "who refuses is there, and goes on refusing"
        assert "withdrew" in again[0].text
    finally:
        GONE.clear()


def test_a_list_that_cannot_be_read_stops_predictions(trained: tuple[Room, Path], service: Service) -> None:
    _, folder = trained
    try:
        (folder / "withdrawn.json").write_text('{"format": 1, "people": [{"id"')
        assert service.post(IDS[9]).status_code == 503
        wait_until(lambda: service.get("/readyz").status_code == 503)
    finally:
        (folder / "withdrawn.json").unlink()
    wait_until(lambda: service.post(IDS[9]).status_code == 200)


def test_whoever_withdraws_while_a_call_waits_is_not_asked_about(trained: tuple[Room, Path], service: Service) -> None:
    _, folder = trained
    good = (folder / "run" / FILE).read_text()
    try:
        service.let_go.clear()
        with ThreadPoolExecutor(2) as pool:
            first = pool.submit(service.post, IDS[20])
            wait_until(lambda: len(service.questions._asking) == 1)
            second = pool.submit(service.post, IDS[10])
            wait_until(lambda: service.questions.waiting == 2)
            (folder / "run" / FILE).write_text("{")  # another file that cannot be read does not hide it
            withdraw(folder / "withdrawn.json", [IDS[10]])
            service.let_go.set()
            assert second.result(LONG).status_code == 409
            assert first.result(LONG).status_code in (200, 503)
    finally:
        (folder / "run" / FILE).write_text(good)
        (folder / "withdrawn.json").unlink()


def test_an_id_that_is_no_text_is_told_and_not_logged(service: Service, capfd: pytest.CaptureFixture[str]) -> None:
    body = b'{"ids": ["\\ud800", "secret-person"]}'
    told = service.client.post("/v1/predict", content=body, headers={"Authorization": f"Bearer {service.keys['shop']}"})
    assert told.status_code == 422
    assert "secret-person" not in capfd.readouterr().err
