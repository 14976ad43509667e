"""The live page without a browser: who sees it, who decides, and what a forged or repeated request gets."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from colonnade.config import build
from colonnade.errors import ConfigError
from colonnade.web import page as page_module
from colonnade.web import sessions
from colonnade.web.background import Address, HttpServer
from colonnade.web.callers import Callers, add_caller, remove_caller
from colonnade.web.page import Page
from colonnade.web.proxies import Proxies
from colonnade.web.sessions import Sessions
from colonnade.web.settings import HttpSection

HERE = "here"  # the address of the page
PROPOSAL = {"run": "churn", "digest": "a" * 64, "time": "2026-11-18T09:00:00Z", "reason": "approval: every run"}


@dataclass
class Told:
    """A source that says what a test lets it say, and remembers what was decided."""

    state_: dict[str, object] = field(default_factory=lambda: {"title": "telco", "score": float("nan")})
    decided: list[tuple[object, ...]] = field(default_factory=list)

    def state(self, run: str) -> Mapping[str, object]:
        return {**self.state_, "asked": run}

    def proposals(self) -> Sequence[Mapping[str, object]]:
        return [PROPOSAL]

    def decide(self, run: str, digest: str, approved: bool, because: str, who: str) -> None:
        if digest != PROPOSAL["digest"]:
            raise ConfigError("the proposal that was shown does not wait any more; look again")
        self.decided.append((run, approved, because, who))


@dataclass
class Desk:
    """A page, the keys of its callers, and somebody in front of it."""

    page: Page
    source: Told
    keys: dict[str, str]
    callers: Path
    client: httpx.Client
    here: str

    def post(self, path: str, origin: str | None = HERE, **form: str) -> httpx.Response:
        headers = {} if origin is None else {"origin": self.here if origin == HERE else origin}
        return self.client.post(path, data=form, headers=headers, follow_redirects=False)

    def log_in(self, who: str) -> str:
        """The token of the new session's page."""
        assert self.post("/login", key=self.keys[who]).status_code == 303
        return str(self.client.get("/watch/state").json()["me"]["token"])


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    path, source = tmp_path / "callers.json", Told()
    rights = {"watcher": ["watch"], "desk": ["decide"], "shop": ["predict"]}
    keys = {name: add_caller(path, name, may) for name, may in rights.items()}
    callers = Callers(path)
    page = Page(source, Sessions(callers), callers, hosts=("127.0.0.1",))
    with HttpServer(page.app(), Address()) as server, httpx.Client(base_url=server.url, timeout=60) as client:
        yield Desk(page, source, keys, path, client, server.url)


def test_without_a_key_nothing_is_shown(desk: Desk) -> None:
    answered = desk.client.get("/", follow_redirects=False)
    assert (answered.status_code, answered.headers["location"]) == (303, "/login")
    for path in ("/watch/state", "/watch/events"):
        assert desk.client.get(path).status_code == 401
    assert desk.post("/login", key="clk_wrong").status_code == 403
    assert desk.post("/login", key=desk.keys["shop"]).status_code == 403  # may predict, but not watch
    assert desk.client.get("/?key=" + desk.keys["watcher"], follow_redirects=False).headers["location"] == "/login"
    assert desk.client.get("/static/../page.py").status_code == 404
    assert desk.client.get("/static/login.html").status_code == 404


def test_a_key_opens_it_and_the_cookie_is_kept_from_scripts_and_other_sites(desk: Desk) -> None:
    answered = desk.post("/login", key=desk.keys["watcher"])
    cookie = answered.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie and "path=/" in cookie and "; secure" not in cookie
    assert desk.keys["watcher"] not in cookie
    state = desk.client.get("/watch/state?run=x").json()
    assert (state["title"], state["score"], state["asked"]) == ("telco", None, "x")
    assert state["me"]["decides"] is False and state["me"]["proposals"] == []
    page = desk.client.get("/")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy
    assert page.headers["cache-control"] == "no-store" and page.headers["x-content-type-options"] == "nosniff"
    assert "<script>" not in page.text and " style=" not in page.text and "onclick" not in page.text


def test_the_cookie_is_for_tls_only_under_tls(desk: Desk) -> None:
    desk.page.secure = True
    answered = desk.post("/login", desk.here.replace("http:", "https:"), key=desk.keys["watcher"])
    assert "; secure" in answered.headers["set-cookie"].lower()
    assert desk.post("/login", key=desk.keys["watcher"]).status_code == 403  # a page without TLS


def test_another_page_on_this_machine_ends_no_session(desk: Desk) -> None:
    """Browsers send a cookie to every port of a host: a label holder's page and its own party's are two of them."""
    token = desk.log_in("desk")
    other = Page(desk.source, Sessions(desk.page.callers), desk.page.callers, hosts=("127.0.0.1",))
    with HttpServer(other.app(), Address()) as server:
        there = Desk(other, desk.source, desk.keys, desk.callers, desk.client, server.url)
        sent = {"data": {"key": desk.keys["watcher"]}, "headers": {"origin": server.url}}
        assert there.client.post(f"{server.url}/login", **sent).status_code == 303
        assert there.client.get(f"{server.url}/watch/state").json()["me"]["name"] == "watcher"
    assert desk.client.get("/watch/state").json()["me"] == {
        "name": "desk", "token": token, "decides": True, "proposals": [PROPOSAL]
    }  # fmt: skip


def test_one_who_watches_leaves_room_for_others(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_module, "MOST_OF_ONE", 2)

    reading: list[Iterator[str]] = []

    def stream(who: str) -> httpx.Response:
        header = {"Authorization": f"Bearer {desk.keys[who]}"}
        answer = desk.client.send(desk.client.build_request("GET", "/watch/events", headers=header), stream=True)
        if answer.status_code == 200:
            reading.append(answer.iter_lines())
            next(reading[-1])  # it is open
        return answer

    opened = [stream("watcher") for _ in range(3)]
    assert [one.status_code for one in opened] == [200, 200, 503]
    desk.log_in("desk")
    opened.append(stream("shop"))
    assert opened[-1].status_code == 200, "the session of another caller"
    for one in opened:
        one.close()


def test_a_header_opens_what_is_watched_and_nothing_else(desk: Desk) -> None:
    header = {"Authorization": f"Bearer {desk.keys['watcher']}"}
    assert desk.client.get("/watch/state", headers=header).status_code == 200
    deciding = {"Authorization": f"Bearer {desk.keys['desk']}", "origin": desk.here}
    form = {"run": "churn", "digest": PROPOSAL["digest"], "decision": "approve"}
    assert desk.client.post("/decide", data=form, headers=deciding).status_code == 403


def test_deciding_needs_right_token_and_origin(desk: Desk) -> None:
    form = {"run": "churn", "digest": PROPOSAL["digest"], "decision": "approve"}
    assert desk.post("/decide", **form).status_code == 403
    token = desk.log_in("watcher")
    assert desk.post("/decide", **form, token=token).status_code == 403  # may only watch
    token = desk.log_in("desk")
    assert desk.client.get("/watch/state").json()["me"]["proposals"] == [PROPOSAL]
    assert desk.post("/decide", **form).status_code == 403
    assert desk.post("/decide", **form, token=token[:-1] + "ü").status_code == 403
    for origin in ("https://evil.example", "null", None, desk.here.replace("http:", "https:"), "http://127.0.0.1"):
        assert desk.post("/decide", origin, **form, token=token).status_code == 403, origin
    assert desk.source.decided == []
    assert desk.post("/decide", **form, token=token).text == "approved\n"
    assert desk.source.decided == [("churn", True, "", "desk")]


def test_a_refusal_needs_a_reason_and_the_proposal_that_was_shown(desk: Desk) -> None:
    token = desk.log_in("desk")
    form = {"run": "churn", "digest": PROPOSAL["digest"], "token": token}
    assert desk.post("/decide", **form, decision="refuse", because="  ").status_code == 400
    assert desk.post("/decide", **form, decision="maybe").status_code == 400
    late = desk.post("/decide", **{**form, "digest": "b" * 64}, decision="approve")
    assert late.status_code == 409 and "look again" in late.text
    assert desk.post("/decide", **form, decision="refuse", because="x" * 5000).status_code == 403  # too long to be read
    assert desk.post("/decide", **form, decision="refuse", because="after the audit").text == "refused\n"
    assert desk.source.decided == [("churn", False, "after the audit", "desk")]


def test_wrong_keys_are_few(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(desk.page.sessions, "_clock", lambda: clock[0])
    codes = [desk.post("/login", key=f"clk_{n}").status_code for n in range(7)]
    assert codes == [403] * 5 + [429] * 2
    assert (
        desk.post("/login", key=desk.keys["watcher"]).status_code == 303
    )  # wrong ones keep nobody with a right one out
    clock[0] = sessions.WITHIN + 1
    assert desk.post("/login", key=desk.keys["watcher"]).status_code == 303


def test_a_header_about_the_address_counts_only_of_a_trusted_proxy(desk: Desk) -> None:
    def codes(count: int, said: str) -> list[int]:
        headers = {"origin": desk.here, "x-forwarded-for": said}
        return [desk.client.post("/login", data={"key": "clk_x"}, headers=headers).status_code for _ in range(count)]

    assert codes(5, "192.0.2.1") == [403] * 5
    assert codes(1, "192.0.2.2") == [429], "it is ignored: all come from one address"
    desk.page.proxies = Proxies.of(["127.0.0.1"])
    assert codes(5, "192.0.2.2") == [403] * 5, "the proxy says that they come from elsewhere"
    assert codes(1, "198.51.100.7, 192.0.2.2") == [429], "what the caller itself wrote before that does not count"
    assert codes(1, "192.0.2.3") == [403]


def test_a_session_ends_with_its_key_its_time_and_by_hand(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    token = desk.log_in("desk")
    ((name, cookie),) = desk.client.cookies.items()
    assert desk.post("/logout").status_code == 403
    assert desk.post("/logout", token=token).headers["location"] == "/login"
    desk.client.cookies.set(name, cookie)  # somebody kept it
    assert desk.client.get("/watch/state").status_code == 401
    desk.client.cookies.clear()
    desk.log_in("desk")
    remove_caller(desk.callers, "desk")
    assert desk.client.get("/watch/state").status_code == 401
    desk.log_in("watcher")
    monkeypatch.setattr(desk.page.sessions, "_clock", lambda: 1e12)
    assert desk.client.get("/watch/state").status_code == 401


def test_while_nobody_can_read_the_callers_nobody_enters(desk: Desk) -> None:
    desk.log_in("watcher")
    desk.callers.write_text("{")
    assert desk.client.get("/watch/state").status_code == 503
    assert desk.post("/login", key=desk.keys["watcher"]).status_code == 503


def test_a_stream_ends_when_the_source_cannot_say(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(run: str) -> Mapping[str, object]:
        raise ConfigError("party.toml is not valid TOML")

    desk.log_in("watcher")
    monkeypatch.setattr(desk.source, "state", fail)
    assert desk.client.get("/watch/events").text.strip() == "retry: 2000"
    told = desk.client.get("/watch/state")
    assert (told.status_code, told.text) == (503, "the page cannot be shown at present; its operator sees why\n")


def test_another_name_for_this_machine_is_refused(desk: Desk) -> None:
    desk.page.open_to_all = True
    assert desk.client.get("/watch/state").status_code == 200
    assert desk.client.get("/watch/state", headers={"host": "evil.example:8080"}).status_code == 421


def test_it_is_open_to_all_only_at_home() -> None:
    assert build(HttpSection, {"page_without_key": True}, "http").page_without_key
    beyond = {"listen": "10.0.0.5:8443", "certificate": "a", "key": "b", "page_without_key": True}
    with pytest.raises(ConfigError, match="page_without_key is for addresses of this machine"):
        build(HttpSection, beyond, "http")


def test_states_come_when_they_change_and_the_last_one_says_so(tmp_path: Path) -> None:
    source, watching = Told(), Sessions(None)
    page = Page(source, watching)
    key = watching.invite()
    with HttpServer(page.app(), Address()) as server, httpx.Client(base_url=server.url, timeout=60) as client:
        assert client.get("/", params={"key": key + "x"}).status_code == 403
        assert client.get("/", params={"key": key}, follow_redirects=True).status_code == 200
        with client.stream("GET", "/watch/events") as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            lines, events = stream.iter_lines(), list[Any]()
            for line in lines:
                if line.startswith("data: "):
                    events.append(json.loads(line[6:]))
                    if len(events) == 1:
                        source.state_ = {"title": "changed"}
                    elif len(events) == 2:
                        page.close()
            assert [event.get("title") for event in events] == ["telco", "changed", "changed", None]
