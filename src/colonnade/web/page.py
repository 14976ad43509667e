"""The live page: a small application that shows what a source says, again and again, and takes decisions of people.

It knows nothing of runs: the source does. What it shows needs a session, or a key in the header; what it does needs a
session with the right to decide, a token from the session's own page, and a browser that says that the page sent it.
Nothing is loaded from elsewhere, and no script or style stands in a page.
"""

from __future__ import annotations

import asyncio
import html
import json
import logging
import math
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import parse_qs

from colonnade.errors import ColonnadeError
from colonnade.extras import need
from colonnade.web.callers import Callers, Right
from colonnade.web.proxies import HEADER, Proxies
from colonnade.web.sessions import LASTS, Session, Sessions, TooMany

logger = logging.getLogger(__name__)

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

COOKIE = "colonnade_session"  # and the port: browsers send cookies of one machine to all its ports
PAUSE = 0.5  # seconds between two looks for one who watches
BEAT = 15.0  # seconds without news after which a line says that the connection lives
RETRY = 2000  # milliseconds after which a browser tries again
MOST_STREAMS, MOST_OF_ONE = 50, 20  # that may be open at a time, of all and of one
MOST_FORM = 4096  # bytes of a form
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # with no-referrer browsers would not say where a form comes from
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
KINDS = {"live.js": "text/javascript", "live.css": "text/css", "icon.svg": "image/svg+xml"}


class Source(Protocol):
    """What the page shows; called in threads."""

    def state(self, run: str) -> Mapping[str, object]:
        """Plain values: everything in short, and the run that is asked for in full."""

    def proposals(self) -> Sequence[Mapping[str, object]]:
        """What waits for a person."""

    def decide(self, run: str, digest: str, approved: bool, because: str, who: str) -> None:
        """What a person decided; `ColonnadeError` if that cannot be."""


@dataclass
class Page:
    """The application; `routes` are put into one that serves other things, too."""

    source: Source
    sessions: Sessions
    callers: Callers | None = None  # whose keys also open it in a header
    open_to_all: bool = False  # without a key; only for an address of this machine
    secure: bool = False  # over TLS
    hosts: tuple[str, ...] = ()  # names that it may be called by; (): any
    proxies: Proxies = field(default_factory=Proxies)
    _closing: threading.Event = field(default_factory=threading.Event, repr=False)
    _streams: Counter[str] = field(default_factory=Counter, repr=False)  # open ones, by who watches

    def close(self) -> None:
        """Send everybody who watches the last state, and end."""
        self._closing.set()

    @property
    def routes(self) -> list[Route]:
        """Where it answers."""
        routing = need("starlette.routing", extra="serve", purpose="The live page")
        calls: list[tuple[str, str, Callable[[Request], Any]]] = [
            ("/", "GET", self._shown), ("/login", "GET", self._login_page), ("/login", "POST", self._login),
            ("/logout", "POST", self._logout), ("/watch/state", "GET", self._state),
            ("/watch/events", "GET", self._events), ("/decide", "POST", self._decide),
            ("/static/{name}", "GET", self._static),
        ]  # fmt: skip
        return [routing.Route(path, self._guarded(call), methods=[method]) for path, method, call in calls]

    def app(self) -> Any:
        """An application of its own."""
        return need("starlette.applications", extra="serve", purpose="The live page").Starlette(routes=self.routes)

    # -- before every call --------------------------------------------------------------------

    def _guarded(self, call: Callable[[Request], Any]) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            if self.hosts and request.url.hostname not in self.hosts:  # a name that somebody else points here
                return _text("this address is not known by that name", 421)
            if request.method == "POST" and not self._from_here(request):
                return _text("a form of another page", 403)
            try:
                found: Response = await call(request)
            except ColonnadeError as error:  # e.g. the file of callers cannot be read: nobody may call
                logger.error("the page cannot be shown: %s", error)
                found = _text("the page cannot be shown at present; its operator sees why", 503)
            found.headers.update(HEADERS)
            return found

        return answer

    def _from_here(self, request: Request) -> bool:
        """Whether the browser says that a page of this address sent the form."""
        scheme = "https" if self.secure else "http"
        return request.headers.get("origin") == f"{scheme}://{request.headers.get('host', '')}"

    def _session(self, request: Request) -> Session | None:
        return self.sessions.find(request.cookies.get(_cookie(request)))

    def _may(self, request: Request, right: Right) -> bool:
        session = self._session(request)
        if session is not None and (right in session.may or (right == "watch" and "decide" in session.may)):
            return True
        if right != "watch":
            return False
        caller = self.callers.bearer(request.headers.get("authorization")) if self.callers is not None else None
        return self.open_to_all or (caller is not None and "watch" in caller.may)

    def _who(self, request: Request) -> str:
        """Whose session or key it is; "": nobody's that is known."""
        session = self._session(request)
        if session is not None:
            return session.name
        caller = self.callers.bearer(request.headers.get("authorization")) if self.callers is not None else None
        return "" if caller is None else caller.name

    # -- pages --------------------------------------------------------------------------------

    async def _shown(self, request: Request) -> Response:
        key = request.query_params.get("key", "")
        if key and self.callers is None:  # as the terminal of a training prints it; keys of callers are for the form
            return await self._enter(request, key)
        if not self._may(request, "watch"):
            return _redirect("/login")
        return _page("page.html")

    async def _login_page(self, request: Request) -> Response:
        return _page("login.html", told="")

    async def _login(self, request: Request) -> Response:
        return await self._enter(request, (await _form(request)).get("key", ""))

    async def _enter(self, request: Request, key: str) -> Response:
        peer = request.client.host if request.client is not None else ""
        where = self.proxies.origin(peer, request.headers.getlist(HEADER))
        try:
            cookie = await _in_thread(lambda: self.sessions.log_in(key, where))
        except TooMany:
            told = "Too many wrong keys came from there. Wait a minute, then try again."
            return _page("login.html", 429, told=told)
        if cookie is None:
            told = "This key is not known here, or may neither watch nor decide."
            return _page("login.html", 403, told=told)
        found = _redirect("/")
        found.set_cookie(
            _cookie(request), cookie, max_age=int(LASTS), httponly=True, samesite="strict", secure=self.secure, path="/"
        )
        return found

    async def _logout(self, request: Request) -> Response:
        session, form = self._session(request), await _form(request)
        if session is not None and not session.is_of(form.get("token", "")):
            return _text("this form is not of your session; open the page again", 403)
        self.sessions.log_out(request.cookies.get(_cookie(request)))
        found = _redirect("/login")
        found.delete_cookie(_cookie(request), path="/")
        return found

    async def _static(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in KINDS:
            return _text("there is no such file", 404)
        return _response(_file(name), KINDS[name])

    # -- what is watched ----------------------------------------------------------------------

    def _told(self, request: Request) -> str:
        """The state as JSON, with what the session may do."""
        session = self._session(request)
        decides = session is not None and "decide" in session.may
        mine: Mapping[str, object] = {
            "name": session.name if session is not None else "",
            "token": session.token if session is not None else "",
            "decides": decides,
            "proposals": list(self.source.proposals()) if decides else [],
        }
        state = {**self.source.state(request.query_params.get("run", "")[:100]), "me": mine}
        return json.dumps(_finite(state), separators=(",", ":"))

    async def _state(self, request: Request) -> Response:
        if not self._may(request, "watch"):
            return _text("a key with the right to watch is needed", 401)
        return _response(await _in_thread(lambda: self._told(request)), "application/json")

    async def _events(self, request: Request) -> Response:
        if not self._may(request, "watch"):
            return _text("a key with the right to watch is needed", 401)
        who = self._who(request)
        if self._streams.total() >= MOST_STREAMS or self._streams[who] >= MOST_OF_ONE:
            return _text("too many watch already", 503)
        responses = need("starlette.responses", extra="serve", purpose="The live page")
        stream: Response = responses.StreamingResponse(self._stream(request, who), media_type="text/event-stream")
        return stream

    async def _stream(self, request: Request, who: str) -> AsyncIterator[str]:
        """A state whenever it changed; the last one before the end, always."""
        self._streams[who] += 1
        try:
            yield f"retry: {RETRY}\n\n"
            before, quiet = "", 0.0
            while not await request.is_disconnected():
                ending = self._closing.is_set()
                try:
                    if not self._may(request, "watch"):
                        yield "event: logged-out\ndata: {}\n\n"
                        return
                    now = await _in_thread(lambda: self._told(request))
                except ColonnadeError:
                    return  # the browser tries again, and is told why as any other call is
                if now != before or ending:
                    before, quiet = now, 0.0
                    yield f"event: state\ndata: {now}\n\n"
                elif quiet >= BEAT:
                    quiet = 0.0
                    yield ": still here\n\n"
                if ending:
                    yield "event: end\ndata: {}\n\n"
                    return
                await asyncio.sleep(PAUSE)
                quiet += PAUSE
        finally:
            self._streams[who] -= 1

    # -- what people decide -------------------------------------------------------------------

    async def _decide(self, request: Request) -> Response:
        session, form = self._session(request), await _form(request)
        if session is None or "decide" not in session.may:
            return _text("log in with a key that has the right to decide", 403)
        if not session.is_of(form.get("token", "")):
            return _text("this form is not of your session; open the page again", 403)
        decision, because = form.get("decision", ""), form.get("because", "").strip()
        if decision not in ("approve", "refuse"):
            return _text("a decision is to approve or to refuse", 400)
        if decision == "refuse" and not because:
            return _text("a refusal needs a reason, which the label holder reads", 400)
        run, digest, approved = form.get("run", ""), form.get("digest", ""), decision == "approve"
        try:
            await _in_thread(lambda: self.source.decide(run, digest, approved, because, session.name))
        except ColonnadeError as error:
            return _text(" ".join(str(error).split()), 409)
        return _text("approved" if approved else "refused", 200)


def _file(name: str) -> str:
    return (files("colonnade.web") / "files" / name).read_text(encoding="utf-8")


def _page(name: str, status: int = 200, **texts: str) -> Response:
    page = _file(name)
    for place, text in texts.items():
        page = page.replace(f"{{{{{place}}}}}", html.escape(text))
    return _response(page, "text/html", status)


def _response(content: str, kind: str, status: int = 200) -> Response:
    responses = need("starlette.responses", extra="serve", purpose="The live page")
    found: Response = responses.Response(content, status, media_type=f"{kind}; charset=utf-8")
    return found


def _text(told: str, status: int) -> Response:
    found = _response(told + "\n", "text/plain", status)
    found.headers.update(HEADERS)
    return found


def _redirect(where: str) -> Response:
    responses = need("starlette.responses", extra="serve", purpose="The live page")
    found: Response = responses.RedirectResponse(where, 303)
    return found


def _cookie(request: Request) -> str:
    """The name of the cookie: pages of two processes on one machine do not end each other's sessions."""
    return f"{COOKIE}_{request.url.port or ''}".rstrip("_")


async def _form(request: Request) -> dict[str, str]:
    """The fields of a small form; of one that is too long, or broke off, nothing."""
    gone = need("starlette.requests", extra="serve", purpose="The live page").ClientDisconnect
    body = b""
    try:
        async for part in request.stream():
            body += part
            if len(body) > MOST_FORM:
                return {}
    except gone:
        return {}
    return {name: values[-1] for name, values in parse_qs(body.decode("utf-8", "replace")).items()}


async def _in_thread(call: Callable[[], Any]) -> Any:
    return await asyncio.get_running_loop().run_in_executor(None, call)


def _finite(value: Any) -> Any:
    """What is not a number is nothing, as JSON has it."""
    if isinstance(value, Mapping):
        return {str(name): _finite(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
