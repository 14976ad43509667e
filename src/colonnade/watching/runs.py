"""One run as its folder shows it: how far it is, how good, who is waited for since when, and what it has cost."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, cast

from colonnade.errors import ColonnadeError
from colonnade.folder import in_use
from colonnade.live import Event, read_live
from colonnade.record import RECORD, STORE, RunRecord
from colonnade.watching.stores import Read, StoreReader

_FIGURES = ("round", "rounds", "metric", "score", "best", "bytes", "seconds")
PARTY_STORE, PROPOSAL = "party.db", "proposal.json"
DEPLOYMENT = "deployment.json"  # as `deploy/undertaking_files.py` calls it
TRAINS, WAITS, FINISHED, DIVERGED = "training", "waiting", "finished", "diverged"
STOPPED, BEGINS, DAMAGED, UNKNOWN = "not running", "beginning", "damaged", "not a run"
GIVEN_UP = "failed"  # a version that will not go on
FRESH = 30.0  # seconds within which the last round in live.jsonl counts, though the store is a few ahead
OVER = (FINISHED, DIVERGED)
SIMULATION, LABEL_HOLDER, PARTY = "simulation", "label holder", "party"


@dataclass(frozen=True)
class Epsilon:
    """What training has cost; never a figure without what belongs to it."""

    epsilon: float
    legend: str  # accountant, unit, neighbours, delta, and what is not covered

    def __str__(self) -> str:
        return f"epsilon {self.epsilon:.3f} ({self.legend})"


@dataclass(frozen=True)
class RunStatus:
    """One run."""

    run: str
    folder: Path
    role: str = SIMULATION
    state: str = UNKNOWN
    method: str = ""
    parties: tuple[str, ...] = ()
    round: int | None = None
    rounds: int | None = None
    metric: str = ""  # what `score` and `best` are
    score: float | None = None  # of the last evaluation
    best: float | None = None
    test_metric: str = ""
    test: float | None = None  # measured once, at the end
    waits_for: tuple[str, ...] = ()
    since: str = ""  # when that began
    note: str = ""  # why it waits, or how it ended
    bytes: int | None = None  # of training
    seconds: float | None = None  # of training
    epsilon: Epsilon | None = None
    time: str = ""  # of the last sign of life
    decided: str = ""  # who approved or refused it and when, where a person did

    def to_json(self) -> dict[str, object]:
        """Plain values."""
        facts = {name: value for name, value in vars(self).items() if name != "epsilon"}
        spent = None if self.epsilon is None else {"epsilon": self.epsilon.epsilon, "is": self.epsilon.legend}
        lists = {"parties": list(self.parties), "waits_for": list(self.waits_for), "folder": str(self.folder)}
        return {**facts, **lists, "epsilon": spent}


@dataclass
class RunReader:
    """A run folder that is looked at again and again; what was read once is not read again."""

    folder: Path
    name: str = ""  # where the folder's own is not what the run is called
    _coordinator: StoreReader = field(init=False, repr=False)
    _party: StoreReader = field(init=False, repr=False)
    _finished: tuple[tuple[int, int], RunRecord] | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        self._coordinator, self._party = StoreReader(self.folder / STORE), StoreReader(self.folder / PARTY_STORE)

    @property
    def is_party(self) -> bool:
        """Whether this is a party's own folder of a run."""
        held = (self.folder / PARTY_STORE).exists() or (self.folder / PROPOSAL).exists()
        return held and not (self.folder / STORE).exists()

    @property
    def busy(self) -> bool:
        """Whether a process works on it; that of a party that serves holds the folder of all its runs."""
        return bool(in_use(self.folder)) or (self.is_party and bool(in_use(self.folder.parent)))

    def read(self) -> Read | None:
        """What the run's store says."""
        return (self._party if self.is_party else self._coordinator).look()

    def record(self) -> RunRecord | None:
        """The record of a finished run; read once."""
        try:
            found = (self.folder / RECORD).stat()
        except OSError:
            return None
        key = (found.st_ino, found.st_mtime_ns)
        if self._finished is None or self._finished[0] != key:
            record = json.loads((self.folder / RECORD).read_text(encoding="utf-8"))
            self._finished = (key, cast(RunRecord, record))
        return self._finished[1]

    def status(self) -> RunStatus:
        """How the run is now; whatever is wrong with its files is said in it."""
        shown = RunStatus(self.name or self.folder.resolve().name, self.folder)
        try:
            if self.is_party:
                return _of_party(shown, self.read(), self.folder, read_live(self.folder), self.busy)
            if named := self._named():  # also before there is anything in its store
                shown = replace(shown, run=named, role=LABEL_HOLDER)
            if (record := self.record()) is not None:
                return _of_record(shown, record)
            return _of_training(shown, self.read(), read_live(self.folder), self.busy)
        except ColonnadeError as error:
            return replace(shown, state=DAMAGED, note=str(error))
        except (OSError, ValueError, KeyError, TypeError) as error:
            return replace(shown, state=DAMAGED, note=f"its files cannot be read ({error!r}); restore them from a copy")

    def _named(self) -> str:
        """What a run of several organisations is called; a simulation has no name. Its store is not opened for it."""
        try:
            return str(json.loads((self.folder / DEPLOYMENT).read_text(encoding="utf-8"))["run"])
        except FileNotFoundError:
            return ""


def _of_record(shown: RunStatus, record: RunRecord) -> RunStatus:
    result, traffic = record["result"], record["traffic"]
    noisy = bool(dict(record.get("privacy", {})).get("labels", {}).get("epsilon"))
    judged = str(result.get("validation_metric", result.get("metric", "")))
    return replace(
        shown,
        state=DIVERGED if result["diverged"] else FINISHED,
        method=record["method"]["name"],
        parties=tuple(party["name"] for party in record["about"]["parties"]),
        round=result["rounds"],
        rounds=int(record["training"].get("rounds") or result["rounds"]),
        metric=f"agreement with noisy labels ({judged})" if noisy else f"validation {judged}",
        score=result["validation_score"],
        best=result["validation_score"],
        test_metric=str(result.get("metric", "")),
        test=result["test_score"],
        note=result["stop"],
        bytes=traffic["up"] + traffic["down"],
        seconds=result["seconds"],
        epsilon=_spent(record),
    )


def _of_training(shown: RunStatus, read: Read | None, events: Sequence[Event], busy: bool) -> RunStatus:
    last = _last(events, "round")
    if read is not None:
        about, scores = read.about, read.scores
        shown = replace(
            shown, run=about.run or shown.run, role=LABEL_HOLDER if about.run else shown.role, method=about.method,
            parties=about.parties, rounds=about.rounds, round=_whole(read.facts.get("number"), about.rounds),
            metric=str(last.get("metric") or "") if last else "", score=scores[max(scores)] if scores else None,
            bytes=sum(read.up.values()) + sum(read.down.values()), seconds=read.facts.get("seconds"),
        )  # fmt: skip
    if last is not None and (read is None or (busy and _counts(last, shown))):
        known: Mapping[str, Any] = {name: last.get(name) for name in _FIGURES}
        shown = replace(shown, **known, epsilon=_told(last))
    shown = replace(shown, time=str(events[-1].get("time", "")) if events else "")
    if read is None and not events and not busy:
        return replace(shown, note="there is no store in it")
    if not busy:
        over = events and events[-1]["event"] == "ended"
        return replace(shown, state=STOPPED, note=str(events[-1].get("reason", "")) if over else "")
    return _waited(replace(shown, state=TRAINS if shown.round else BEGINS), events)


def _counts(last: Event, shown: RunStatus) -> bool:
    """Whether the last round in live.jsonl, whose figures belong together, is not much older than the store.

    A process that was killed and goes on begins with the store's round, which may be the earlier one; where nothing
    was written for long, the store is the newer one.
    """
    return int(last.get("round") or 0) >= (shown.round or 0) or seconds_since(str(last.get("time"))) < FRESH


def seconds_since(stamp: str) -> float:
    """How long ago something was written; endless, where nobody can say."""
    try:
        at = datetime.strptime(stamp, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc)
    except ValueError:
        return math.inf
    return max(0.0, (datetime.now(timezone.utc) - at).total_seconds())


def _waited(shown: RunStatus, events: Sequence[Event]) -> RunStatus:
    """Who is waited for: told by the last event of all, because a round that is done ends it."""
    last = events[-1] if events else {}
    if last.get("event") == "waiting":
        who = tuple(map(str, last.get("parties", ()))) or ("the label holder",)
        return replace(shown, state=WAITS, waits_for=who, since=str(last["time"]), note=str(last.get("note", "")))
    if last.get("event") in ("server", "disconnected"):
        told = str(last.get("trouble") or "the connection was lost")
        return replace(shown, state=WAITS, waits_for=("the server",), since=str(last["time"]), note=told)
    return shown


def _of_party(shown: RunStatus, read: Read | None, folder: Path, events: Sequence[Event], busy: bool) -> RunStatus:
    shown = replace(shown, role=PARTY, time=str(events[-1].get("time", "")) if events else "")
    proposed = _proposed(folder)
    facts = proposed.get("facts", {})
    shown = replace(
        shown, run=str(proposed.get("run") or shown.run), method=str(facts.get("method", "")),
        rounds=_whole(facts.get("rounds")), parties=tuple(map(str, facts.get("parties") or ())),
        state=str(proposed.get("state", STOPPED)), note=str(proposed.get("reason", "")),
    )  # fmt: skip
    decided, told = _decision(folder, str(proposed.get("digest", "")))
    shown = replace(shown, decided=told)
    if read is None:
        if shown.state == "waits for approval":
            shown = replace(shown, waits_for=("a person here",), since=_first_asked(events, proposed), note=shown.note)
            return replace(shown, state=decided, waits_for=(), since="") if decided else shown
        return shown
    ended, number = str(read.facts.get("finished", "")), int(read.facts.get("number", 0))
    shown = replace(
        shown, run=read.about.run or shown.run, method=read.about.method or shown.method,
        rounds=read.about.rounds or shown.rounds, parties=read.about.parties or shown.parties,
        round=max(0, min(number, read.about.rounds or number)), bytes=None, note=ended,
        state=FINISHED if ended else TRAINS if busy else STOPPED,
    )  # fmt: skip
    return shown if ended or not busy else _waited(shown, events)


def _proposed(folder: Path) -> Mapping[str, Any]:
    """What was proposed to a party, and what became of it."""
    try:
        found = json.loads((folder / PROPOSAL).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return found if isinstance(found, dict) else {}


def _decision(folder: Path, digest: str) -> tuple[str, str]:
    """What a person decided, as a state and in words; whether it is signed the process checks."""
    try:
        body = json.loads((folder / f"decision-{digest[:16]}.json").read_text(encoding="utf-8"))["body"]
        told = "approved" if body.get("approved") is True else "refused"
        when = f" at {body['time']}" if body.get("time") else ""
        return f"{told}, not read yet", f"{told} by {body.get('by') or 'a person'}{when}"
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return "", ""


def _first_asked(events: Sequence[Event], proposed: Mapping[str, Any]) -> str:
    """Since when a person is waited for: the first of the last events that say so."""
    since = ""
    for event in reversed(events):
        if event["event"] == "approval needed":
            since = str(event["time"])
        elif since:
            break
    return since or str(proposed.get("time", ""))


def _last(events: Sequence[Event], kind: str) -> Event | None:
    return next((event for event in reversed(events) if event["event"] == kind), None)


def _whole(value: object, most: int | None = None) -> int | None:
    if not isinstance(value, int):
        return None
    return max(0, min(value, most) if most else value)


def _told(event: Event) -> Epsilon | None:
    epsilon, legend = event.get("epsilon"), event.get("epsilon_is")
    return Epsilon(float(epsilon), legend) if isinstance(epsilon, (int, float)) and isinstance(legend, str) else None


def _spent(record: RunRecord) -> Epsilon | None:
    """The largest over the parties, where all uploads of training passed Gaussian noise; as while it trained."""
    from colonnade.privacy.accounting import exact_epsilon

    privacy, tallies = dict(record.get("privacy", {})), record.get("tally", [])
    shifts = [one["shift"] for one in tallies if isinstance(one.get("shift"), float) and not one.get("bounded")]
    if not shifts or len(shifts) < len(tallies) or not all(0 < shift < math.inf for shift in shifts):
        return None  # no noise, or noise of another kind: `colonnade privacy explain` says which
    try:
        relation, delta = privacy["neighbours"], float(privacy["delta"])
        epsilon = exact_epsilon(max(shifts), delta)
    except (ColonnadeError, KeyError, TypeError):
        return None
    told = f"exact accountant, unit PARTY, neighbours: {relation}, delta {delta:g}"
    told = f"largest over parties: {told}; labels, evaluation and predictions are not covered"
    return Epsilon(epsilon, told) if math.isfinite(epsilon) else None
