"""Every mechanism that has events of its own, by the name that ledgers store. A new one is a line here.

Other packages offer the events of theirs by entry points of the group `colonnade.mechanisms`, named as in ledgers.
"""

from __future__ import annotations

import warnings
from functools import lru_cache
from typing import Any

from colonnade.errors import ConfigError, PluginLeftOut
from colonnade.plugins import Table
from colonnade.privacy.bounded import BoundedGaussianEvent
from colonnade.privacy.declared import ModelNoiseEvent
from colonnade.privacy.events import EmptyEvent, Event, Kind, OtherEvent, Parameters, PlainEvent, Unit
from colonnade.privacy.gaussian import GaussianEvent
from colonnade.privacy.labels.alibi import AlibiEvent
from colonnade.privacy.labels.randomised import RandomisedResponseEvent
from colonnade.privacy.pbm import PoissonBinomialEvent
from colonnade.privacy.sampled import SampledGaussianEvent
from colonnade.privacy.secure_sum.event import SUM, SumEvent, kind_of_sum

EVENTS: dict[Kind, type[Event]] = {
    PlainEvent.kind: PlainEvent,
    EmptyEvent.kind: EmptyEvent,
    GaussianEvent.kind: GaussianEvent,
    BoundedGaussianEvent.kind: BoundedGaussianEvent,
    PoissonBinomialEvent.kind: PoissonBinomialEvent,
    ModelNoiseEvent.kind: ModelNoiseEvent,
    SampledGaussianEvent.kind: SampledGaussianEvent,
    AlibiEvent.kind: AlibiEvent,
    RandomisedResponseEvent.kind: RandomisedResponseEvent,
}  # a secure sum of any of them is stored as "<name> sum"
SUMS = {kind_of_sum(kind).name: event for kind, event in EVENTS.items()}
ENDING = f" {SUM}"
BUILT_IN = {kind.name: event for kind, event in EVENTS.items()}
KINDS = {known.name: known for kind in EVENTS for known in (kind, kind_of_sum(kind))}


def _wrong(name: str, event: Any) -> str:
    """What is wrong with the event of another package's mechanism; empty: nothing."""
    if not isinstance(event, type) or not issubclass(event, Event):
        return f"needs to be a subclass of colonnade.privacy.events.Event; it is {event!r}"
    kind = event.__dict__.get("kind")
    if not isinstance(kind, Kind):
        return "needs a constant `kind`, which says what is true of all its events"
    return "" if kind.name == name else f"calls itself {kind.name!r}; the name of its entry point must be the same"


ALONE: Table[type[Event]] = Table("colonnade.mechanisms", BUILT_IN, _wrong)


def kind_of(name: str) -> Kind:
    """What is known of a mechanism by its stored name alone; unknown names are said to be unknown."""
    return KINDS.get(name) or _kind_offered(name) or OtherEvent(name).kind


def _kind_offered(name: str) -> Kind | None:
    """Of another package's mechanism, alone or in a secure sum; None: nobody offers it, or it cannot be loaded."""
    event: Any = _offered(name)
    if event is not None:
        return event.kind  # type: ignore[no-any-return]
    part: Any = _part(name)
    return None if part is None else kind_of_sum(part.kind)


def _part(name: str) -> type[Event] | None:
    """What is summed under that name, where another package offers it; those of built-in ones are in SUMS."""
    part = name.removesuffix(ENDING)
    return _offered(part) if part != name and part not in BUILT_IN else None


def _offered(name: str) -> type[Event] | None:
    try:
        return ALONE.get(name)
    except ConfigError as error:  # one broken package must not keep a ledger from being read
        warnings.warn(f"{error}; its releases count as those of an unknown mechanism", PluginLeftOut, stacklevel=2)
        return None


@lru_cache(maxsize=4096)  # a ledger repeats few events many times: they are made once, and shared
def read_event(name: str, unit: Unit, parameters: Parameters) -> tuple[Event, Parameters]:
    """The event of a ledger's line, and what was noted beside it.

    A name that has no class, or parameters that do not fit their class, give an event that every accountant refuses.
    """
    facts = dict(parameters)
    try:
        if name in SUMS:
            return SumEvent.around(*SUMS[name].read(facts, unit))
        if (alone := _offered(name)) is not None:
            return alone.read(facts, unit)
        if (part := _part(name)) is not None:
            return SumEvent.around(*part.read(facts, unit))
    except ValueError:
        pass
    return OtherEvent(name, parameters, unit=unit), ()
