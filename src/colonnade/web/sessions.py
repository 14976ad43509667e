"""Sessions of the live page: who logged in with which key, until when, and how often somebody tried in vain.

A session is a random cookie, of which the process has a hash, and nothing on disk: after a restart everybody logs in
again. It holds as long as its caller does; a key that is removed ends it.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from colonnade.web.callers import Caller, Callers, Right

LASTS = 8 * 3600.0  # seconds
SESSIONS_OF_ONE = 20  # of one caller; one more ends the oldest
TRIES, WITHIN = 5, 60.0  # wrong keys of one address in so many seconds; then it waits
TRIES_OF_ALL = 60  # of all addresses together


@dataclass(frozen=True)
class Session:
    """Somebody who logged in."""

    name: str
    may: tuple[Right, ...]
    until: float
    key: str = field(repr=False)  # the hash of the caller's key, as the file of callers has it
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)  # in every form of the page

    def is_of(self, token: str) -> bool:
        """Whether a form came from this session's page."""
        return hmac.compare_digest(self.token.encode(), token.encode("utf-8", "surrogatepass"))


class Sessions:
    """All sessions of one process. Called from any thread."""

    def __init__(self, callers: Callers | None, clock: Callable[[], float] = time.monotonic) -> None:
        """`callers`: who may log in; None: whoever has a key that was made with `invite`."""
        self._callers, self._clock, self._lock = callers, clock, threading.Lock()
        self._sessions: dict[str, Session] = {}
        self._wrong: list[tuple[float, str]] = []  # when, and from where
        self._invited = ""

    def invite(self) -> str:
        """A key for whoever reads the terminal of a training; it may watch, and is kept nowhere."""
        key = secrets.token_urlsafe(24)
        self._invited = _hashed(key)
        return key

    def log_in(self, key: str, where: str) -> str | None:
        """The cookie of a new session; None: the key is wrong, or may neither watch nor decide.

        Raises:
            TooMany: wrong keys came from there, too many of them.
        """
        with self._lock:
            now = self._clock()
            self._wrong = [(at, who) for at, who in self._wrong if now - at < WITHIN]
            found = self._who(key)  # a right key cannot be guessed, and nobody's wrong ones keep its owner out
            if found is None or not {"watch", "decide"} & set(found.may):
                if sum(who == where for _, who in self._wrong) >= TRIES or len(self._wrong) >= TRIES_OF_ALL:
                    raise TooMany
                self._wrong.append((now, where))
                return None
            held = {mark: one for mark, one in self._sessions.items() if one.until > now and self._holds(one)}
            own = [mark for mark, one in held.items() if one.name == found.name]
            for mark in own[: max(0, len(own) + 1 - SESSIONS_OF_ONE)]:
                del held[mark]  # the oldest
            self._sessions = held
            cookie = secrets.token_urlsafe(32)
            self._sessions[_hashed(cookie)] = Session(found.name, found.may, now + LASTS, found.hash)
            return cookie

    def _who(self, key: str) -> Caller | None:
        if self._callers is not None:
            return self._callers.who(key)
        if self._invited and hmac.compare_digest(self._invited, _hashed(key)):
            return Caller("terminal", ("watch",), "", "", self._invited)
        return None

    def find(self, cookie: str | None) -> Session | None:
        """Whose cookie it is, if the session holds and its key still does."""
        if not cookie:
            return None
        with self._lock:
            mark = _hashed(cookie)
            found = self._sessions.get(mark)
            if found is None or found.until <= self._clock() or not self._holds(found):
                self._sessions.pop(mark, None)
                return None
            return found

    def _holds(self, session: Session) -> bool:
        if self._callers is None:
            return session.key == self._invited
        known = self._callers.known()
        return any((c.name, c.hash, c.may) == (session.name, session.key, session.may) for c in known)

    def log_out(self, cookie: str | None) -> None:
        """The cookie is worth nothing any more."""
        with self._lock:
            self._sessions.pop(_hashed(cookie or ""), None)


class TooMany(Exception):
    """Too many tries to log in."""


def _hashed(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
