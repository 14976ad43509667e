"""The runs of a party as its folder shows them, whether a process serves them now or not; and deciding about one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from colonnade.deploy.approval import JOINED, REFUSED, WAITS, noted
from colonnade.deploy.decision import MOST_NAME, MOST_WORDS, Decision, decide, decided, now
from colonnade.deploy.party import STORE
from colonnade.errors import ColonnadeError, ConfigError, RunError
from colonnade.identity.credentials import Credentials
from colonnade.store import peek
from colonnade.withdrawn import read_mark

TRAINS, FINISHED, DAMAGED, APPROVED = "training", "finished", "damaged", "approved"


@dataclass(frozen=True)
class Listed:
    """One run: what was proposed, and how far it is."""

    run: str
    state: str
    folder: Path = field(repr=False)
    reason: str = ""  # why it waits, was refused or has ended
    time: str = ""  # of the last proposal
    digest: str = ""
    round: int = 0
    facts: Mapping[str, Any] = field(default_factory=dict, repr=False)  # as an operator sees them when it is proposed
    leaves: tuple[str, ...] = field(default=(), repr=False)  # what would leave this party, in words
    withdrawn: int = 0  # training rows of people who withdrew since
    decided: str = ""  # by whom and when, where a person did

    def to_json(self) -> dict[str, object]:
        """Plain values."""
        return {**asdict(self), "folder": str(self.folder), "leaves": list(self.leaves)}


def list_runs(folder: Path, me: Credentials) -> list[Listed]:
    """All runs of a party's folder, by name."""
    places = [folder, *sorted(path for path in folder.iterdir() if path.is_dir())] if folder.is_dir() else []
    return sorted((found for place in places for found in _of(place, me)), key=lambda listed: listed.run)


def _of(place: Path, me: Credentials) -> Iterator[Listed]:
    try:
        proposed, stored, mark = noted(place), peek(place / STORE, "$.agreement.proposal"), read_mark(place)
    except ColonnadeError as error:
        yield Listed(place.name, DAMAGED, place, str(error))
        return
    if stored is None and proposed is None:
        return
    said = proposed or {}
    run = str((stored[0] if stored else said)["run"])
    listed = Listed(
        run, str(said.get("state", JOINED)), place, str(said.get("reason", "")), str(said.get("time", "")),
        str(said.get("digest", "")), 0, said.get("facts", {}), tuple(said.get("leaves", ())),
    )  # fmt: skip
    listed = _with_decision(listed, me)
    if stored is None:
        yield listed
        return
    proposal, state = stored
    facts = listed.facts or {
        "method": proposal["method"]["name"],
        "rounds": proposal["training"]["rounds"],
        **{key: proposal.get(key) for key in ("rows", "parties", "purposes")},
    }
    ended = str(state.get("finished", ""))
    number = min(max(int(state.get("number", 0)), 0), int(facts.get("rounds", 0)))
    listed = replace(listed, withdrawn=mark.trained if mark else 0)
    yield replace(listed, state=FINISHED if ended else TRAINS, reason=ended, round=number, facts=facts)


def _with_decision(listed: Listed, me: Credentials) -> Listed:
    """With who decided; a proposal that waits counts as decided then: the process reads it in a few seconds."""
    try:
        decision = decided(listed.folder, listed.digest, me) if listed.digest else None
    except ColonnadeError as error:
        return replace(listed, reason=str(error)) if listed.state == WAITS else listed
    if decision is None:
        return listed
    listed = replace(listed, decided=str(decision))
    if listed.state != WAITS:
        return listed
    return replace(listed, state=APPROVED if decision.approved else REFUSED, reason=decision.because)


def decide_about(folder: Path, me: Credentials, decision: Decision) -> Listed:
    """Sign what a person decided about a run's proposal; what it is about.

    Args:
        folder: of the party.
        me: whose key signs it.
        decision: about the proposal with its digest; where that is empty, about the last one. It gets its time here.

    Raises:
        ConfigError: there is no such proposal, or it is another by now.
        RunError: it was agreed on already.
    """
    run = decision.run
    runs = {listed.run: listed for listed in list_runs(folder, me)}
    found = runs.get(run)
    if found is None or (not found.digest and found.state not in (TRAINS, FINISHED)):
        known = ", ".join(sorted(name for name, listed in runs.items() if listed.state in (WAITS, REFUSED, APPROVED)))
        raise ConfigError(f"there is no proposal of a run {run!r} in {str(folder)!r}; open: {known or 'none'}")
    if found.state in (TRAINS, FINISHED):
        raise RunError(
            f"run {run!r} was agreed on already: there is nothing to decide; to take no further part in it, stop the "
            f"process and move {str(found.folder)!r} away"
        )
    if decision.proposal and found.digest != decision.proposal:
        raise ConfigError(f"there is another proposal of run {run!r} by now; look again")
    words, who = " ".join(decision.because.split())[:MOST_WORDS], decision.by[:MOST_NAME]
    decide(found.folder, replace(decision, proposal=found.digest, because=words, time=now(), by=who), me)
    return found
