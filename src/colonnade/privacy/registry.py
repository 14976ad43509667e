"""Every mechanism that has events of its own, by the name that ledgers store. A new one is a line here."""

from __future__ import annotations

from functools import lru_cache

from colonnade.privacy.bounded import BoundedGaussianEvent
from colonnade.privacy.declared import ModelNoiseEvent
from colonnade.privacy.events import EmptyEvent, Event, Kind, OtherEvent, Parameters, PlainEvent, Unit
from colonnade.privacy.gaussian import GaussianEvent
from colonnade.privacy.labels.alibi import AlibiEvent
from colonnade.privacy.labels.randomised import RandomisedResponseEvent
from colonnade.privacy.pbm import PoissonBinomialEvent
from colonnade.privacy.secure_sum.event import SumEvent, kind_of_sum

EVENTS: dict[Kind, type[Event]] = {
    PlainEvent.kind: PlainEvent,
    EmptyEvent.kind: EmptyEvent,
    GaussianEvent.kind: GaussianEvent,
    BoundedGaussianEvent.kind: BoundedGaussianEvent,
    PoissonBinomialEvent.kind: PoissonBinomialEvent,
    ModelNoiseEvent.kind: ModelNoiseEvent,
    AlibiEvent.kind: AlibiEvent,
    RandomisedResponseEvent.kind: RandomisedResponseEvent,
}  # a secure sum of any of them is stored as "<name> sum"
SUMS = {kind_of_sum(kind).name: event for kind, event in EVENTS.items()}
ALONE = {kind.name: event for kind, event in EVENTS.items()}
KINDS = {known.name: known for kind in EVENTS for known in (kind, kind_of_sum(kind))}


def kind_of(name: str) -> Kind:
    """What is known of a mechanism by its stored name alone; unknown names are said to be unknown."""
    return KINDS.get(name) or OtherEvent(name).kind


@lru_cache(maxsize=4096)  # a ledger repeats few events many times: they are made once, and shared
def read_event(name: str, unit: Unit, parameters: Parameters) -> tuple[Event, Parameters]:
    """The event of a ledger's line, and what was noted beside it.

    A name that has no class, or parameters that do not fit their class, give an event that every accountant refuses.
    """
    facts = dict(parameters)
    try:
        if name in SUMS:
            return SumEvent.around(*SUMS[name].read(facts, unit))
        if name in ALONE:
            return ALONE[name].read(facts, unit)
    except ValueError:
        pass
    return OtherEvent(name, parameters, unit=unit), ()
