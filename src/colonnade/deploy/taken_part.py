"""At a party: its part of a finished run, which it brings to a run that takes the parts of that one over."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from colonnade.deploy.agreement import Proposal
from colonnade.deploy.party_setup import PartySetup
from colonnade.engines.base import Encoders, Local
from colonnade.errors import Refused, RunError
from colonnade.part import PARTY, Part
from colonnade.privacy.registry import kind_of
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
                return Part.load(place, _own_model(setup.encoders, party, place))
            except RunError as error:
                raise Refused(f"the part of {party!r} in run {former.run!r} cannot be taken over: {error}") from None
    looked = ", ".join(str(place) for place, _ in places[1:]) or "no folder"
    raise Refused(
        f"the proposal takes over the part of {party!r} in run {former.run!r}, and no finished one is here (looked in "
        f"{looked}); put the run's folder back, or name it as takes_over in [party]"
    )


def check_promise(part: Part, proposal: Proposal, columns: Tensor) -> None:
    """Refuse a proposal that would undo what the run promised in which the part was trained.

    Args:
        part: of the former run.
        proposal: of the run that is to take it over.
        columns: (R, ...) of the party, by the row numbers of the proposal.

    Raises:
        Refused: settings differ, or rows that trained with noise would not count as such.
    """
    design, named = part.design, f"the part of {part.party!r} in run {part.design.id!r}"
    if design.privacy != proposal.privacy() or design.method != proposal.method():
        raise Refused(f"the proposal takes over {named}, and has another method or promises another privacy than there")
    if not part.noisy:
        return
    if kind_of(str(proposal.body["mechanism"])).bare:
        raise Refused(f"the proposal takes over {named}, which was trained with noise, and proposes none")
    if part.trained is None:
        raise Refused(f"{named} was trained with noise and does not know its training rows; propose a run without it")
    trained = part.trained.among({part.party: columns})[part.party]
    trained[proposal.train] = False
    if bool(trained.any()):
        raise Refused(
            f"the proposal takes over {named}, which was trained with noise; {int(trained.sum())} of its training rows "
            "would count as new ones, about which predictions leave without noise"
        )


def _own_model(encoders: Encoders, party: str, folder: Path) -> Local | None:
    """The local model that a party brought itself, if it did."""
    if encoders is None or isinstance(encoders, Mapping):
        return (encoders or {}).get(party)
    return encoders(party, tuple(int(n) for n in read_json(folder / PARTY)["part"]["shape"]))


def _agreed(folder: Path) -> str:
    """The digest of the proposal that a finished part was trained by; empty: there is none."""
    try:
        return hashlib.sha256(canonical(read_json(folder / PARTY)["proposal"])).hexdigest()
    except (OSError, ValueError, KeyError, TypeError):
        return ""
