"""What an operator sees of a process that runs for hours: a status line, or JSON lines; and how it is stopped.

On a terminal the last line says what the process is doing and is rewritten; events that matter stay above
it. Elsewhere (a service, a file) there is a line per event that matters, and now and then one about progress.
With --log json every event is one JSON object per line on stderr. No column, id, key or signature is ever an
event's fact.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from colonnade.cli.stopping import INTERRUPTED, TERMINATED, Terminated, terminable
from colonnade.errors import ConfigError

if TYPE_CHECKING:
    from colonnade.engines.message import Notify

LogKind = Annotated[
    Literal["text", "json"], typer.Option("--log", help="text: for people; json: one object per event.")
]
PASSING = {"answered", "waiting", "round", "repeating", "progress"}  # on a terminal shown in the status line only
EVERY = 10.0  # seconds between two lines about the same thing where there is no status line
SENTENCES = {"reason", "trouble", "note"}  # facts that need no name before them
EXTRAS = {"nats": "deploy", "cryptography": "deploy", "private_set_intersection": "align", "pandas": "tables"}
HOW_TO_GO_ON = "nothing is lost: start the same command again to go on"


class Journal:
    """A `Say` for the command line."""

    def __init__(self, kind: Literal["text", "json"], quiet: bool = False) -> None:
        self.kind, self.quiet = kind, quiet
        self._status = not quiet and kind == "text" and sys.stderr.isatty()
        self._shown = 0
        self._told: dict[str, float] = {}  # what passes -> when it was last told

    def __call__(self, event: str, **facts: Any) -> None:
        """One event."""
        if self.kind == "json":
            line = {"time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "event": event, **facts}
            print(json.dumps(line), file=sys.stderr, flush=True)
        elif self._status and event in PASSING:
            self._rewrite(in_words(event, facts))
        elif not self.quiet and (event not in PASSING or self._is_news(event, facts)):
            self._clear()
            print(f"{time.strftime('%H:%M:%S')} {in_words(event, facts)}", file=sys.stderr, flush=True)

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
        """Leave the cursor on a line of its own."""
        if self._shown:
            print(file=sys.stderr)
            self._shown = 0


def in_words(event: str, facts: Mapping[str, Any]) -> str:
    """An event in words; rounds below 1 are steps of the agreement, whose numbers say nothing to people."""
    shown = {k: v for k, v in facts.items() if v not in (None, "", []) and not (k == "round" and v < 1)}
    if event == "waiting":
        event = f"waiting for {', '.join(shown.pop('parties', ['the label holder']))}"
    elif event == "round":
        event = f"round {shown.pop('number')} of {shown.pop('rounds')}"
    elif event == "server":  # whatever the trouble is, it is tried again
        event = "waiting for the server"
    words = [_plain(v) if k in SENTENCES else f"{k.replace('_', ' ')} {_plain(v)}" for k, v in shown.items()]
    return event + (": " + ", ".join(words) if words else "")


def _plain(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


@contextmanager
def operated(journal: Journal) -> Iterator[Notify]:
    """Run until done, Ctrl-C (status 130) or SIGTERM (143); the last two say how to go on."""
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # it warns of every TLS connection that is closed
    try:
        with terminable():
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
    finally:
        journal.close()
