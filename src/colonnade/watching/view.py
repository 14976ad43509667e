"""One run in full, for a page: curves, parties, traffic, the end of the ledger, and the last events."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

from colonnade.errors import ColonnadeError
from colonnade.ledger_files import flat
from colonnade.live import Event, read_live
from colonnade.privacy.chain import LEDGER
from colonnade.record import RunRecord
from colonnade.watching.runs import OVER, PARTY, SIMULATION, RunReader, RunStatus
from colonnade.watching.stores import TAIL, Read

MOST_POINTS = 400  # of a curve on the page
LAST = 15  # events on the page
LONGEST_LEDGER = 2**18  # bytes from the end of a ledger that are read
CELLS = ("entry", "time", "owner", "audience", "purpose", "round", "rows", "mechanism", "unit", "bytes")
Point = tuple[int, float]


class PartyView(TypedDict):
    """A party on the page."""

    name: str
    state: str
    since: str
    up: int | None  # training bytes that it sent
    down: int | None


class RunView(TypedDict):
    """A run on the page."""

    status: dict[str, object]
    curve: list[Point]  # score after a round
    primal: list[Point]
    dual: list[Point]
    parties: list[PartyView]
    evaluation: int | None  # bytes
    entries: int | None
    ledger: list[dict[str, object]]
    events: list[Event]


def view_of(reader: RunReader) -> RunView:
    """The run as it is now; what cannot be read is left out, and its status says why."""
    shown, events = reader.status(), read_live(reader.folder)
    plain = {name: value for name, value in shown.to_json().items() if name != "folder"}
    view: RunView = {
        "status": plain, "curve": [], "primal": [], "dual": [], "parties": [], "evaluation": None, "entries": None,
        "ledger": [], "events": events[-LAST:],
    }  # fmt: skip
    try:
        record = None if reader.is_party else reader.record()
        read = reader.read() if record is None else None
    except (ColonnadeError, OSError, ValueError):
        return view
    if record is not None:
        _from_record(view, record, reader.folder)
    elif read is not None:
        _from_store(view, read, events, shown)
    view["parties"] = _parties(shown, events, record, read)
    return view


def _from_record(view: RunView, record: RunRecord, folder: Path) -> None:
    history = record["history"]
    view["curve"] = thinned({one["round"]: one["score"] for one in history if "score" in one})
    view["primal"] = thinned({one["round"]: one["primal"] for one in history if "primal" in one})
    view["dual"] = thinned({one["round"]: one["dual"] for one in history if "dual" in one})
    view["evaluation"] = record["traffic"]["evaluation"]
    view["entries"] = entries = sum(int(count) for *_, count in record["releases"])
    lines = _last_lines(folder / LEDGER)
    first = entries - len(lines) + 1
    view["ledger"] = [_entry(first + at, line) for at, line in enumerate(lines)][-TAIL:]


def _from_store(view: RunView, read: Read, events: Sequence[Event], shown: RunStatus) -> None:
    scores = dict(read.scores)
    for event in events:  # those after the last commit
        if event["event"] == "round" and isinstance(event.get("scored"), int):
            scores[event["scored"]] = float(event["score"])
    view["curve"] = thinned(scores)
    view["primal"] = thinned({at: primal for at, (primal, _) in read.residuals.items() if primal is not None})
    view["dual"] = thinned({at: dual for at, (_, dual) in read.residuals.items() if dual is not None})
    view["evaluation"] = None if shown.role == PARTY else read.evaluation
    view["entries"] = read.entries
    view["ledger"] = [_entry(number, line) for number, line in read.tail]


def thinned(values: Mapping[int, float]) -> list[Point]:
    """So many points that a picture can show, the first and the last among them."""
    points = [(at, value) for at, value in sorted(values.items()) if math.isfinite(value)]
    step = max(1, -(-len(points) // MOST_POINTS))
    kept = points[::-1][::step][::-1]
    return kept if not points or kept[0] == points[0] else [points[0], *kept]


def _entry(number: int, line: Mapping[str, Any]) -> dict[str, object]:
    cells = flat(number, line)
    return {name: cells[name] for name in CELLS}


def _last_lines(path: Path) -> list[Mapping[str, Any]]:
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - LONGEST_LEDGER))
            lines = file.read().splitlines()[1 if size > LONGEST_LEDGER else 0 :]
        return [json.loads(line) for line in lines[-TAIL:]]
    except (OSError, ValueError):
        return []


def _parties(shown: RunStatus, events: Sequence[Event], record: RunRecord | None, read: Read | None) -> list[PartyView]:
    moved = record["traffic"]["per_party"] if record is not None else {}
    up = {party: both["up"] for party, both in moved.items()} or (read.up if read is not None else {})
    down = {party: both["down"] for party, both in moved.items()} or (read.down if read is not None else {})
    if shown.role == PARTY:
        sent = read.sent if read is not None else {}
        up, down = {party: size for party, size in sent.items() if party in shown.parties}, {}
    away = read.absent if read is not None and shown.state not in OVER else ()
    return [
        {**_presence(party, shown, away, events), "up": up.get(party), "down": down.get(party)}
        for party in shown.parties
    ]


def _presence(party: str, shown: RunStatus, away: Sequence[str], events: Sequence[Event]) -> PartyView:
    state, since = "present", ""
    if shown.state in OVER:
        state = "took part"
    elif shown.role == PARTY:
        state = "takes part"  # a party sees the label holder only
    elif shown.role == SIMULATION:
        state = "in this process"
    elif party in shown.waits_for:
        state, since = "waited for", shown.since
    elif party in away:
        told = (e for e in reversed(events) if e["event"] == "absent" and party in e.get("parties", ()))
        state, since = "away", str(next(told, {}).get("time", ""))
    elif shown.state == "not running":
        state = "not known"
    return {"name": party, "state": state, "since": since, "up": None, "down": None}
