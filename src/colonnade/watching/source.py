"""What the live page shows and does: of one run, or of everything that the files of an organisation say."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from colonnade.engines.message import Notify
from colonnade.errors import ConfigError
from colonnade.identity.credentials import Credentials
from colonnade.watching.overview import Overview
from colonnade.watching.runs import BEGINS, GIVEN_UP, UNKNOWN, RunReader
from colonnade.watching.view import view_of

FRESH = 0.4  # seconds for which one look serves everybody who watches


class Remembered:
    """Looks at files at most every so often, however many ask; any thread may."""

    def __init__(self, look: Callable[[], Mapping[str, object]]) -> None:
        self._look, self._lock = look, threading.Lock()
        self._at, self._seen = -FRESH, dict[str, object]()

    def __call__(self) -> Mapping[str, object]:
        """What was seen a moment ago, or is seen now."""
        with self._lock:
            if time.monotonic() - self._at >= FRESH:
                self._seen, self._at = dict(self._look()), time.monotonic()
            return self._seen

    def forget(self) -> None:
        """Something was changed: the next one looks again."""
        self._at = -FRESH


@dataclass
class OneRun:
    """The page of one training: `colonnade train --live`."""

    folder: Path
    title: str
    _now: Remembered = field(init=False, repr=False)

    def __post_init__(self) -> None:
        reader = RunReader(self.folder)

        def look() -> Mapping[str, object]:
            view = view_of(reader)
            if view["status"]["state"] == UNKNOWN:  # the folder is made with the first round
                view["status"] |= {"state": BEGINS, "note": ""}
            return {"title": self.title, "shown": view}

        self._now = Remembered(look)

    def state(self, run: str) -> Mapping[str, object]:
        """Everything; there is one run, whatever is asked for."""
        return self._now()

    def proposals(self) -> Sequence[Mapping[str, object]]:
        """There are none."""
        return ()

    def decide(self, run: str, digest: str, approved: bool, because: str, who: str) -> None:
        """There is nothing to decide."""
        raise ConfigError("there is nothing to decide about a simulation")


@dataclass
class Organisation:
    """The page of a process that serves."""

    title: str
    overview: Overview
    folder: Path  # of the party, or of the label holder's model
    me: Credentials | None = None  # of a party, whose people decide
    notify: Notify | None = None
    _seen: dict[str, Remembered] = field(default_factory=dict, repr=False)
    _names: frozenset[str] = field(default=frozenset(), repr=False)  # of the runs that the last look found
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _looking: threading.Lock = field(default_factory=threading.Lock, repr=False)  # readers of files are shared

    def state(self, run: str) -> Mapping[str, object]:
        """Everything, and one run in full: the one that is asked for, else the last one that is not over."""
        if run and run not in self._names:
            self._remembered("")()  # it may have begun since
        return self._remembered(run if run in self._names else "")()

    def _remembered(self, run: str) -> Remembered:
        """The looks at a run; names that somebody makes up share that at everything, and cost no look of their own."""
        with self._lock:
            return self._seen.setdefault(run, Remembered(lambda: self._look(run)))

    def _look(self, run: str) -> Mapping[str, object]:
        with self._looking:
            return self._looked(run)

    def _looked(self, run: str) -> Mapping[str, object]:
        found = self.overview.look()
        readers = self.overview.readers()
        self._names = frozenset(readers)
        names = [shown.run for shown in found.runs]
        busy = [shown.run for shown in found.runs if shown.state in ("training", "waiting", "beginning")]
        chosen = run if run in readers else (busy or names or [""])[-1]
        plain = found.to_json()
        for shown in plain["runs"] if isinstance(plain["runs"], list) else ():
            shown.pop("folder", None)  # where files lie is nobody's business
        for model in plain["models"] if isinstance(plain["models"], list) else ():
            for version in model["versions"]:
                version.pop("folder", None)
        view = view_of(readers[chosen]) if chosen in readers else None
        for shown in found.runs:
            if (
                view is not None and shown.run == chosen and shown.state == GIVEN_UP
            ):  # which the run itself does not say
                view["status"] |= {"state": shown.state, "note": shown.note}
        return {"title": self.title, **plain, "shown": view}

    def proposals(self) -> Sequence[Mapping[str, object]]:
        """What waits for a person here."""
        if self.me is None:
            return ()
        from colonnade.deploy.approval import WAITS
        from colonnade.service.listing import list_runs

        waiting = (listed for listed in list_runs(self.folder, self.me) if listed.state == WAITS)
        kept = ("run", "digest", "time", "reason", "facts", "leaves")
        return [{name: listed.to_json()[name] for name in kept} for listed in waiting]

    def decide(self, run: str, digest: str, approved: bool, because: str, who: str) -> None:
        """Sign what a person decided about the proposal that was shown.

        Raises:
            ConfigError: there is no such proposal, or it is another by now.
        """
        if self.me is None:
            raise ConfigError("only a party decides about proposals")
        from colonnade.deploy.decision import Decision
        from colonnade.service.listing import decide_about

        if not any((p["run"], p["digest"]) == (run, digest) for p in self.proposals()):
            raise ConfigError(f"the proposal of run {run[:64]!r} that was shown does not wait any more; look again")
        decide_about(self.folder, self.me, Decision(run, digest, approved, because, by=who))
        with self._lock:  # others may ask for another run just now
            for look in self._seen.values():
                look.forget()
        if self.notify is not None:
            decision = "approved" if approved else "refused"
            self.notify("decided", run=run, decision=decision, by=who, digest=digest[:12])
