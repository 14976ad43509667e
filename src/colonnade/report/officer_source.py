"""Where the page for a data-protection officer comes from: a run, a party's own folder, or a plan.

All three become one `Source`: what left (or would leave) one party, counted, and what is promised about it. A run
folder of a simulation has everybody's ledger. Between organisations the label holder's folder has its own ledger and
the traffic of all, and a party's folder has the ledger of that party.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple

from colonnade.engines.base import DEPLOYED
from colonnade.errors import ColonnadeError, RunError
from colonnade.methods import make_method
from colonnade.methods._guest import guest_of, is_told, what_is_shown
from colonnade.methods.base import FitsAtHome, Method, brings
from colonnade.part import BROKEN, PARTY, Part, open_parts
from colonnade.privacy import sampled
from colonnade.privacy.events import Hides, LabelExposure
from colonnade.privacy.gaussian import GaussianEvent
from colonnade.privacy.ledger import Entry, Ledger
from colonnade.privacy.mechanism import Protection
from colonnade.privacy.promise import Circumstances
from colonnade.privacy.registry import kind_of
from colonnade.privacy.settings import PrivacySettings
from colonnade.privacy.spent import Spent
from colonnade.privacy.statement import Statement
from colonnade.record import TrafficRound
from colonnade.report.privacy import shown, statement_of_run
from colonnade.report.uploads import ELSEWHERE, UNMEASURED, told_of_uploads
from colonnade.run import Run
from colonnade.saved import LEDGER, read_json, read_ledger
from colonnade.wire.messages import COORDINATOR, Purpose

EACH = "single parties"
MASKED = 8  # bytes of a number under the masks of a secure sum
Origin = Literal["simulation", "label holder", "party", "plan"]


@dataclass(frozen=True)
class Flow:
    """Messages of one kind that leave for the same reader."""

    purpose: str  # TRAIN, EVALUATE, PREDICT or EXPLAIN
    to: str
    messages: int
    rows: int  # that they are about, over all messages
    noise: str  # what was done to them, in words; empty: nothing
    bytes: int | None = None
    counted: bool = True  # on encoded messages; else computed from the rows
    labels: bool = True  # of the label holder's: whether they were computed from labels


@dataclass(frozen=True)
class Source:
    """All that a page says, before it is words."""

    party: str  # whose page; COORDINATOR: the label holder's
    parties: tuple[str, ...]
    method: Method
    privacy: PrivacySettings
    origin: Origin
    name: str  # of the run, or of the file with the plan
    statement: Statement
    flows: tuple[Flow, ...]
    down: int | None = None  # bytes of replies in training: to this party; of the label holder's, to all
    per_row: int | None = None  # numbers that a message has about one row
    uploads: str = ""  # what they contributed, where privacy was promised
    ledger: str = ""  # SHA-256 of the file that the figures are from
    file: str = ""

    @property
    def holder(self) -> bool:
        """Whether it is the label holder's page."""
        return self.party == COORDINATOR

    @property
    def guest(self) -> str:
        """The party that got the true labels although labels are protected; empty: there is none."""
        return guest_of(self.method) if self.privacy.labels.protects else ""

    @property
    def labels_only(self) -> bool:
        """Whether parties get labels and nothing that is computed from anybody's messages."""
        return isinstance(self.method, FitsAtHome) or self.method.needs_uploads == "nothing"

    @property
    def shows(self) -> str:
        """What the messages of this party have of its columns as they are, in words; empty: nothing."""
        return what_is_shown(self.method, self.party)

    @property
    def at_home(self) -> bool:
        """Whether it is the page of a party that trains at home with noise (unit ROW), and sends nothing of that."""
        return self.privacy.by_row and not self.holder

    @property
    def former(self) -> str:
        """The run whose parts are taken over; empty: there is none."""
        return self.statement.about.former

    @property
    def spent(self) -> Spent | None:
        """What training cost this party; None: nothing was sent, or its ledger is not here."""
        return next((one for one in self.statement.spent if one.party == self.party and one.releases), None)


def of_run(folder: Path, party: str) -> Source:
    """From the folder of a finished run.

    Raises:
        RunError: there is no such party, or all columns were in one place.
    """
    run = Run.load(folder)
    names = tuple(one["name"] for one in run.about["parties"])
    if run.method.pools:
        raise RunError(f"{folder}: {run.method.name} has all columns in one place, and nobody sends anything")
    if party not in (*names, COORDINATOR):
        raise RunError(f"{folder} has no party {party!r}; there are {', '.join(names)}, and {COORDINATOR} (the labels)")
    deployed = run.about["engine"] == DEPLOYED
    traffic, place = run.traffic.to_json(), names.index(party) if party in names else None
    mine = [entry for entry in run.ledger if entry.owner == party]
    flows = _replies(mine) if place is None else _flows(mine)
    if not flows and deployed and place is not None:
        flows = _by_traffic(run, traffic, place, party)
    flows = tuple(_sized(flow, traffic, place) for flow in flows)
    return Source(
        party,
        names,
        run.method,
        run.privacy,
        "label holder" if deployed else "simulation",
        run.id,
        statement_of_run(run),
        flows,
        down=run.traffic.down if place is None else sum(one["down"][place] for one in traffic),
        per_row=None if place is None else _per_row(run, party),
        uploads=told_of_uploads(run.record()),
        ledger=digest(folder / LEDGER),
        file=LEDGER,
    )


def of_party(folder: Path) -> Source:
    """From the folder of a party's own process, when training is over.

    Raises:
        RunError: it has no ledger, or it is a part that somebody saved alone.
    """
    about = read_json(folder / PARTY)
    if not isinstance(about, dict) or "proposal" not in about or not (folder / LEDGER).is_file():
        whose = about.get("party") if isinstance(about, dict) else None
        raise RunError(
            f"{folder} has the part of {whose!r} without what it released; name the folder of the party's "
            "process, or that of the run"
        )
    try:
        body, party, run = about["proposal"], str(about["party"]), str(about["run"])
        method = make_method(body["method"]["name"], body["method"]["settings"])
        privacy = PrivacySettings.model_validate(body["privacy"])
        names, own = tuple(map(str, body["parties"])), tuple(map(str, body.get("own", ())))
        former = str(body.get("takes_over", {}).get("run", ""))
    except BROKEN as error:
        raise RunError(f"{folder / PARTY} is damaged ({error!r}); restore it from a copy") from None
    ledger = read_ledger(folder)
    sent = any(e.purpose is Purpose.TRAIN for e in ledger)
    told = circumstances(method, privacy, deployed=True, uploaded=sent, former=former)
    statement = Statement.of(ledger, privacy, replace(told, parties=len(names), label_holders=own, only=party))
    size = _own_size(folder)
    flows = _flows([entry for entry in ledger if entry.owner == party])
    noisy = sent and not privacy.by_row and (statement.noised or privacy.labels.protects)
    return Source(
        party,
        names,
        method,
        privacy,
        "party",
        run,
        statement,
        tuple(_estimated(flow, size) for flow in flows),
        per_row=None if size is None else size.numbers,
        uploads=UNMEASURED.format(ELSEWHERE) if noisy else "",
        ledger=digest(folder / LEDGER),
        file=LEDGER,
    )


def _by_traffic(run: Run, traffic: Sequence[TrafficRound], place: int, party: str) -> tuple[Flow, ...]:
    """What a party sent, as the label holder knows it: by the bytes that came, and by what it asked itself."""
    training = planned_uploads(traffic, place, noise_words(run.method, run.privacy))
    looks = sum(bool(one["evaluation_up"]) for one in traffic)
    mine = [e for e in run.ledger if e.audience in ("*", party) and "consent" not in dict(e.notes)]
    flows = [training, Flow(Purpose.EVALUATE.value, COORDINATOR, looks, 0, "")]
    for purpose in (Purpose.PREDICT, Purpose.EXPLAIN):
        asked = [e for e in mine if e.purpose is purpose]
        flows.append(Flow(purpose.value, COORDINATOR, len(asked), sum(e.rows for e in asked), ""))
    return tuple(flow for flow in flows if flow.messages)


def _estimated(flow: Flow, size: _Size | None) -> Flow:
    """With about its bytes, where the ledger does not have them."""
    if size is None or flow.bytes is not None:
        return flow
    return replace(flow, bytes=flow.rows * size.bytes, counted=False)


def is_party_folder(folder: Path) -> bool:
    """Whether a folder is that of one party."""
    return (folder / PARTY).is_file()


def circumstances(
    method: Method, privacy: PrivacySettings, *, deployed: bool, uploaded: bool, former: str = ""
) -> Circumstances:
    """What of a run matters to its promise, from its settings; `former`: the run whose parts it takes over."""
    return Circumstances(
        exposure=privacy.exposure(LabelExposure(method.exposes)),
        uploaded=uploaded or bool(former),
        deployed=deployed,
        former=former,
        own=brings(method),
        fits_at_home=isinstance(method, FitsAtHome),
        guest=guest_of(method),
        shown=shown(method),
        told=is_told(method),
    )


def planned_uploads(traffic: Sequence[TrafficRound], place: int, noise: str, rows: int = 0) -> Flow:
    """The uploads of training of one party by the traffic: rounds in which it sends, and their bytes."""
    sent = [one["up"][place] for one in traffic if one["up"][place]]
    return Flow("TRAIN", COORDINATOR, len(sent), rows * len(sent), noise, sum(sent))


def noise_words(method: Method, privacy: PrivacySettings) -> str:
    """What is done to uploads of training by the settings; empty: nothing."""
    if own := brings(method):
        return kind_of(own).words
    return GaussianEvent.kind.words if privacy.protects else ""


def digest(file: Path) -> str:
    """SHA-256 of a file; empty where it is not there."""
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else ""


def _flows(entries: Iterable[Entry]) -> tuple[Flow, ...]:
    """Messages of one purpose, reader and protection together."""
    alike: dict[tuple[str, str, str, bool], list[Entry]] = {}
    for entry in entries:
        if sampled.supports(entry.event):
            continue  # training at home: a line of the ledger, and no message
        kind = entry.event.kind
        noise = "" if entry.event.bare else kind.words
        key = (entry.purpose.value, entry.audience, noise, kind.hides is not Hides.NEEDLESS)
        alike.setdefault(key, []).append(entry)
    order = ["TRAIN", "EVALUATE", "PREDICT", "EXPLAIN"]
    found = [
        Flow(purpose, to, len(those), sum(e.rows for e in those), noise, _recorded(those), labels=labels)
        for (purpose, to, noise, labels), those in alike.items()
    ]
    return tuple(sorted(found, key=lambda flow: (order.index(flow.purpose), flow.to, flow.noise)))


def _recorded(entries: Sequence[Entry]) -> int | None:
    """The bytes of all of them; None where an earlier version did not write some down."""
    sizes = [entry.size for entry in entries if entry.size is not None]
    return sum(sizes) if len(sizes) == len(entries) else None


def _replies(entries: Iterable[Entry]) -> tuple[Flow, ...]:
    """What the label holder sends: to all, and to single parties, whoever they are."""
    return _flows(entry if entry.audience == "*" else replace(entry, audience=EACH) for entry in entries)


def _sized(flow: Flow, traffic: Sequence[TrafficRound], place: int | None) -> Flow:
    """With its bytes, where the traffic of the run tells them: uploads of training only are counted by party."""
    if place is None or flow.purpose != "TRAIN":
        return flow
    return replace(flow, bytes=sum(one["up"][place] for one in traffic))


class _Size(NamedTuple):
    """Of what a message has about one row, without its header."""

    numbers: int
    bytes: int


def _per_row(run: Run, party: str) -> int | None:
    part = run.model.parts.get(party)
    size = None if part is None else _size(part)
    return None if size is None else size.numbers


def _own_size(folder: Path) -> _Size | None:
    try:
        return _size(Part.load(folder))
    except ColonnadeError:  # a network of the party's own, which is not here
        return None


def _size(part: Part) -> _Size | None:
    try:
        engine = open_parts(part.design, [part], Ledger(), Protection())
    except (ColonnadeError, KeyError):  # its numbers are with the party, or its network is not here
        return None
    (side,) = engine.parties()
    arrays = [array for array in side.gate.agreed.values() if array.per_row]
    numbers = sum(array.width for array in arrays)
    masked = part.design.privacy.secure_sum.use
    return _Size(numbers, MASKED * numbers if masked else sum(array.size(engine.schema.dtype) for array in arrays))
