"""Nothing leaves the page: it names nothing to fetch, a browser fetches nothing, and its own policy would forbid it."""

from __future__ import annotations

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from colonnade.report.html import render
from tests.report.browser import POLICY, found, needs_chromium, opened, with_script
from tests.report.test_explained import explained_record
from tests.report.test_page import Reader

NAMES = {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}  # of XML, never loaded
LOADING = ("src", "srcset", "poster", "data", "background", "action", "formaction", "ping", "manifest", "cite")
REQUESTS = re.compile(r"@import|\bfetch\(|XMLHttpRequest|WebSocket\(|EventSource\(|sendBeacon|importScripts|import\(")


def fetched(page: str) -> list[str]:
    """Everything in a page that a browser would ask somebody else for."""
    reader, wanted = Reader(page), []
    for tag, attributes in reader.tags:
        wanted += [f"{tag} {name}={attributes[name]}" for name in LOADING if not inside(attributes.get(name))]
        for name in ("href", "xlink:href"):
            if tag != "a" and not inside(attributes.get(name)):
                wanted.append(f"{tag} {name}={attributes[name]}")
        if tag in ("script", "iframe", "object", "embed", "base"):
            wanted.append(tag)
    wanted += [f"url({target})" for target in re.findall(r"url\(\s*['\"]?([^)'\"]*)", page) if not inside(target)]
    wanted += REQUESTS.findall(page)
    return wanted + sorted(set(re.findall(r"(?:https?:|wss?:|ftp:)?//[\w.-]+\.\w[^\s\"'<>)]*", page)) - NAMES)


def inside(target: str | None) -> bool:
    return target is None or target.startswith(("#", "data:"))


@pytest.fixture(scope="module", params=["one", "several"])
def page(request: pytest.FixtureRequest, trained: dict[tuple[str, int], dict[str, Any]]) -> str:
    """One explained run, with pictures of columns; and a comparison."""
    explained = explained_record(trained["vimadmm", 0])
    return render([explained] if request.param == "one" else [explained, *list(trained.values())[1:]])


def test_it_names_nothing_to_fetch(page: str) -> None:
    assert fetched(page) == []


@pytest.mark.parametrize(
    "planted",
    [
        "<img src='https://far.example/x.png'>",
        "<img src='x.png'>",
        "<link rel='stylesheet' href='style.css'>",
        "<style>@import 'x.css';</style>",
        "<style>p { background: url(far.png) }</style>",
        "<script>fetch('/x')</script>",
        "<svg><image xlink:href='far.png'/></svg>",
        "<iframe></iframe>",
        "<p>//far.example/x</p>",
    ],
)
def test_a_planted_request_is_found(page: str, planted: str) -> None:
    assert fetched(page.replace("</main>", planted + "</main>")) != []


def test_it_is_under_three_megabytes(page: str) -> None:
    assert len(page.encode()) < 3_000_000


LIST = """
addEventListener("load", () => {
  const asked = performance.getEntriesByType("resource").map(entry => entry.name);
  document.documentElement.innerHTML = '<body><pre id="found"></pre></body>';
  document.getElementById("found").textContent = JSON.stringify(asked);
});
"""


@needs_chromium
def test_a_browser_without_network_asks_for_nothing(page: str, tmp_path: Path) -> None:
    asked = json.loads(found(opened(with_script(page, LIST), tmp_path)))
    assert [address for address in asked if not address.startswith("data:")] == []


@needs_chromium
def test_the_policy_of_the_page_stops_what_would_be_asked_for(page: str, tmp_path: Path) -> None:
    asked: list[str] = []

    class Far(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_error(404)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Far) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        planted = page.replace("</main>", f"<img src='http://127.0.0.1:{server.server_port}/x.png' alt=''></main>")
        opened(planted, tmp_path)
        assert asked == []
        opened(POLICY.sub("", planted), tmp_path)
        assert asked == ["/x.png"]  # so it is the policy that stopped it
        server.shutdown()
