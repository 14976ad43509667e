"""What an operator sees of a process that runs for hours: a status line, or JSON lines; and how it is stopped.

On a terminal the last line says what the process is doing and is rewritten; events that matter stay above
it. Elsewhere (a service, a file) there is a line per event that matters, and now and then one about progress.
With --log json (or COLONNADE_LOG=json) every event is one JSON object per line on stderr, with its time, its level and
the names of run and process. What comes again and again becomes one line with a count (`flood.py`). No column, id, key
or signature is ever an event's fact.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from colonnade.cli.flood import Flood
from colonnade.cli.stopping import INTERRUPTED, TERMINATED, Terminated, terminable
from colonnade.errors import ColonnadeError, ConfigError
from colonnade.live import is_step

if TYPE_CHECKING:
    from colonnade.engines.message import Notify

LogKind = Annotated[
    Literal["text", "json"],
    typer.Option("--log", envvar="COLONNADE_LOG", help="text: for people; json: one object per event."),
]
PASSING = {"answered", "waiting", "round", "repeating", "progress"}  # on a terminal shown in the status line only
EVERY = 10.0  # seconds between two lines about the same thing where there is no status line
WARNINGS = {
    "absent",
    "disconnected",
    "ignored",
    "kept to itself",
    "logged",
    "refused",
    "refusing",
    "server",
    "warning",
    "drift",
    "retraining due",
}
LONGEST = 1000  # characters of a fact
FRAMES = 8  # parts of the trace of a fault that are told: the last ones, and what was raised
SENTENCES = {"reason", "trouble", "note", "more"}  # facts that need no name before them
EXTRAS = {
    "nats": "deploy", "cryptography": "deploy", "private_set_intersection": "align", "pandas": "tables",
    "fastapi": "serve", "uvicorn": "serve", "prometheus_client": "serve",
}  # fmt: skip
HOW_TO_GO_ON = "nothing is lost: start the same command again to go on"


class Journal:
    """A `Notify` for the command line; any thread may call it."""

    def __init__(self, kind: Literal["text", "json"], quiet: bool = False) -> None:
        self.kind, self.quiet = kind, quiet
        self._status = not quiet and kind == "text" and sys.stderr.isatty()
        self._shown = 0
        self._told: dict[str, float] = {}  # what passes -> when it was last told
        self._of: dict[str, object] = {}  # run and process, as soon as they are known
        self._rounds: dict[object, int] = {}  # by run, the last one that was told of
        self._lock = threading.RLock()
        self._flood = Flood(self._write, self._lock)

    def of(self, **facts: Any) -> None:
        """Name the run and the process: they are in every JSON line from now on."""
        self._of.update(facts)

    def __call__(self, event: str, **facts: Any) -> None:
        """One event."""
        with self._lock:
            if self.kind == "text" and event in PASSING:  # has ways of its own to be short
                self._write(event, facts)
            else:
                self._flood(event, facts)

    def _write(self, event: str, said: Mapping[str, Any]) -> None:
        facts = {name: _clean(value) for name, value in said.items()}
        if self.kind == "json":
            print(json.dumps(self._line(event, facts)), file=sys.stderr, flush=True)
        elif self._status and event in PASSING:
            self._rewrite(in_words(event, facts))
        elif not self.quiet and (event not in PASSING or self._is_news(event, facts)):
            self._clear()
            print(f"{time.strftime('%H:%M:%S')} {in_words(event, facts)}", file=sys.stderr, flush=True)

    def _line(self, event: str, facts: Mapping[str, Any]) -> dict[str, object]:
        """An event as JSON has it; one that says no round has the last one of its run, if there was any."""
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        run = facts.get("run", self._of.get("run"))
        facts = {name: value for name, value in facts.items() if not is_step(name, value)}
        number = facts.get("number" if event == "round" else "round", self._rounds.get(run))
        known = {} if number is None else {"round": number}
        if isinstance(number, int):
            self._rounds[run] = number
        level = "error" if event == "failed" else "warning" if event in WARNINGS else "info"
        return {"time": at, "level": level, "event": event, **self._of, "run": run, **known, **facts}

    def _is_news(self, event: str, facts: Mapping[str, Any]) -> bool:
        about, now = f"{event} {facts.get('run')} {facts.get('parties')}", time.monotonic()
        news = now - self._told.get(about, -EVERY) >= EVERY
        if news:
            self._told[about] = now
        return news

    def _rewrite(self, text: str) -> None:
        print("\r" + text[:118].ljust(self._shown), end="", file=sys.stderr, flush=True)
        self._shown = len(text[:118])

    def _clear(self) -> None:
        if self._shown:
            print("\r" + " " * self._shown, end="\r", file=sys.stderr)
            self._shown = 0

    def close(self) -> None:
        """Tell what was counted, and leave the cursor on a line of its own."""
        with self._lock:
            self._flood.close()
        if self._shown:
            print(file=sys.stderr)
            self._shown = 0


def in_words(event: str, facts: Mapping[str, Any]) -> str:
    """An event in words."""
    shown = {k: v for k, v in facts.items() if v not in (None, "", []) and not is_step(k, v)}
    if event == "waiting":
        event = f"waiting for {', '.join(shown.pop('parties', ['the label holder']))}"
    elif event == "round":
        event = f"round {shown.pop('number')} of {shown.pop('rounds')}"
    elif event == "server":  # whatever the trouble is, it is tried again
        event = "waiting for the server"
    if "more" in shown:
        shown["more"] = f"{shown.pop('more'):,} more in {shown.pop('within')} s"
    words = [_plain(v) if k in SENTENCES else f"{k.replace('_', ' ')} {_plain(v)}" for k, v in shown.items()]
    return event + (": " + ", ".join(words) if words else "")


def _plain(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _clean(value: Any) -> Any:
    """A fact that may come from somebody else: no new line begins in it, and it has an end."""
    if isinstance(value, str):
        return "".join(letter if letter.isprintable() else "?" for letter in value[:LONGEST])
    return [_clean(one) for one in value] if isinstance(value, (list, tuple)) else value


@contextmanager
def _warnings_told(journal: Journal) -> Iterator[None]:
    """Where everything is JSON, so is a warning."""
    before = warnings.showwarning

    def show(message: Warning | str, *where: object, **more: object) -> None:
        journal("warning", reason=" ".join(str(message).split()))

    if journal.kind == "json":
        warnings.showwarning = show
    try:
        yield
    finally:
        warnings.showwarning = before


class Logged(logging.Handler):
    """What the program's own parts and its libraries log becomes an event: one line, and of a flood a count."""

    def __init__(self, journal: Journal) -> None:
        super().__init__(logging.WARNING)
        self._journal = journal

    def emit(self, record: logging.LogRecord) -> None:
        """One record; of an exception also where it was raised."""
        facts: dict[str, object] = {"of": record.name, "reason": " ".join(record.getMessage().split())}
        if record.exc_info and record.exc_info[1] is not None:
            told = traceback.format_exception(record.exc_info[1])
            facts["trace"] = [" ".join(line.split()) for part in told[-FRAMES:] for line in part.splitlines()]
        self._journal("logged", **facts)


@contextmanager
def _logs_told(journal: Journal) -> Iterator[None]:
    """Inside, nothing is logged past the journal, which strangers' calls could make as long as they like."""
    root, handler = logging.getLogger(), Logged(journal)
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)


@contextmanager
def operated(journal: Journal) -> Iterator[Notify]:
    """Run until done, Ctrl-C (status 130) or SIGTERM (143); the last two say how to go on."""
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # it warns of every TLS connection that is closed
    try:
        with terminable(), _warnings_told(journal), _logs_told(journal):
            yield journal
    except ModuleNotFoundError as missing:
        if missing.name not in EXTRAS:
            raise
        extra = EXTRAS[missing.name]
        told = f"this command needs {missing.name}, which is not installed; run: pip install 'colonnade[{extra}]'"
        raise ConfigError(told) from None
    except Terminated:
        journal("stopped", by="SIGTERM", note=HOW_TO_GO_ON)
        raise typer.Exit(TERMINATED) from None
    except KeyboardInterrupt:
        journal("stopped", by="the operator", note=HOW_TO_GO_ON)
        raise typer.Exit(INTERRUPTED) from None
    except ColonnadeError as error:
        if journal.kind != "json":
            raise
        journal("failed", reason=" ".join(str(error).split()))
        raise typer.Exit(2) from None
    finally:
        journal.close()
