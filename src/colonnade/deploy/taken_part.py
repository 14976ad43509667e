"""At a party: its part of a finished run, which it brings to a run that takes the parts of that one over."""

from __future__ import annotations

import hashlib
from pathlib import Path

from colonnade.deploy.agreement import Proposal
from colonnade.deploy.party_setup import PartySetup
from colonnade.errors import Refused, RunError
from colonnade.part import PARTY, Part
from colonnade.saved import read_json
from colonnade.wire.notice import canonical


def part_for(proposal: Proposal, party: str, setup: PartySetup, folder: Path) -> Part | None:
    """The part that a party brings; None: it trains.

    Args:
        proposal: of the run.
        party: whose part.
        setup: what says where finished runs are.
        folder: of the run itself, which has a copy of the part once it is over.

    Raises:
        Refused: it is not here, or is not of the run that the proposal names.
    """
    former = proposal.former
    if former is None or proposal.trains(party):
        return None
    places = [(folder, proposal.digest)] + [(place, former.proposal) for place in setup.places_of(former.run)]
    for place, digest in places:
        if _agreed(place) == digest:
            try:
                return Part.load(place, (setup.encoders or {}).get(party) if isinstance(setup.encoders, dict) else None)
            except RunError as error:
                raise Refused(f"the part of {party!r} in run {former.run!r} cannot be taken over: {error}") from None
    looked = ", ".join(str(place) for place, _ in places[1:]) or "no folder"
    raise Refused(
        f"the proposal takes over the part of {party!r} in run {former.run!r}, and no finished one is here (looked in "
        f"{looked}); put the run's folder back, or name it as takes_over in [party]"
    )


def _agreed(folder: Path) -> str:
    """The digest of the proposal that a finished part was trained by; empty: there is none."""
    try:
        return hashlib.sha256(canonical(read_json(folder / PARTY)["proposal"])).hexdigest()
    except (OSError, ValueError, KeyError, TypeError):
        return ""
