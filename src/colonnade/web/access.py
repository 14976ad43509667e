"""Access: who calls, whether it may, and whether it calls too often."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from fastapi import Request

from colonnade.errors import ConfigError
from colonnade.web.app import Problem
from colonnade.web.callers import MEANS, Caller, Callers, Right

AT_ONCE = 10.0  # seconds' worth of calls that may come at once

logger = logging.getLogger(__name__)


@dataclass
class Allowance:
    """How many calls somebody has left: as many come back per second, up to a limit."""

    per_second: float
    left: float
    at: float

    def take(self, now: float) -> float:
        """Take one call; 0, or the seconds until there is one to take."""
        most = max(1.0, self.per_second * AT_ONCE)
        self.left = min(most, self.left + max(0.0, now - self.at) * self.per_second)
        self.at = now
        if self.left >= 1.0:
            self.left -= 1.0
            return 0.0
        return (1.0 - self.left) / self.per_second


@dataclass
class Access:
    """Whoever calls, known by its key."""

    callers: Callers
    per_second: float
    clock: Callable[[], float] = time.monotonic
    _left: dict[str, Allowance] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def caller(self, request: Request, right: Right) -> Caller:
        """Who calls.

        Raises:
            Problem: nobody that is known (401), somebody who may not do this (403), or who calls too often (429).
        """
        try:
            found = self.callers.bearer(request.headers.get("authorization"))
        except ConfigError as error:
            logger.error("nobody may call: %s", error)
            raise Problem(503, "the file of callers cannot be used here; its operator sees why", retry=60) from None
        if found is None:
            raise Problem(401, "a key is needed: send the header 'Authorization: Bearer KEY' with yours")
        if right not in found.may:
            raise Problem(403, f"the key of {found.name!r} does not have the right {right!r} ({MEANS[right]})")
        wait = self._wait(found.name)
        if wait:
            told = f"{found.name!r} calls more often than {self.per_second:g} times a second"
            raise Problem(429, f"{told}; try again in {math.ceil(wait)} s", retry=wait)
        return found

    def _wait(self, name: str) -> float:
        with self._lock:
            now = self.clock()
            left = self._left.setdefault(name, Allowance(self.per_second, self.per_second * AT_ONCE, now))
            return left.take(now)
