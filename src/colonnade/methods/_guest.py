"""The guest: a party that belongs to the label holder: true labels do not leave by going there, nor columns from there.

Where the guest's upload says something of its columns, it does so in an array of its own, which no other party has:
the guest is alone in its group (`shown_by`, `engines/base.py`), the array has a `note`, so that every such release is
noted in the ledger, and between organisations the party's own policy must allow it (`shows_columns`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from colonnade.config import Settings
from colonnade.errors import ConfigError, GateError
from colonnade.federation import Federation
from colonnade.methods.base import FitsAtHome, Method, Reply, State
from colonnade.models.schema import Schema
from colonnade.privacy.labels import Labels
from colonnade.tasks import Task


@runtime_checkable
class HasGuest(FitsAtHome, Protocol):
    """Such a method that may know which party belongs to the label holder: true labels do not leave by going there."""

    @property
    def guest(self) -> str | None:
        """Its name; None: that of the federation, if it knows one; empty: there is none."""


@runtime_checkable
class ShowsColumns(Protocol):
    """A method in which the guest may tell the label holder of its columns, in an array of its group alone."""

    @property
    def guest(self) -> str | None:
        """As that of `HasGuest`."""

    @property
    def shows(self) -> str:
        """What of its columns, in words that follow "the guest shows"; empty: nothing."""


def guest_of(method: Method) -> str:
    """The label holder's own party; empty: there is none, or nobody said so."""
    return (method.guest or "") if isinstance(method, HasGuest) else ""


def shown_by(method: Method) -> str:
    """The party whose upload says something of its columns, alone in its group; empty: nobody's does."""
    return (method.guest or "") if isinstance(method, ShowsColumns) and method.shows else ""


def what_is_shown(method: Method, party: str) -> str:
    """What a party shows of its columns, in words; empty: nothing."""
    return method.shows if isinstance(method, ShowsColumns) and party == shown_by(method) else ""


def is_told(method: Method) -> bool:
    """Whether replies tell every party what is shown; such a method says `passes_on: ClassVar[bool] = True`."""
    return bool(shown_by(method)) and bool(getattr(method, "passes_on", False))


def is_shown(method: Method, parties: Sequence[str]) -> bool:
    """Whether these are the one party of which `shown_by` speaks: of a group, or of a process."""
    return tuple(parties) == (shown_by(method),)


def with_guest(method: Method, federation: Federation) -> Method:
    """The method; it knows the label holder's own party where the federation does and nobody said otherwise."""
    known, has = federation.guest, isinstance(method, HasGuest) or (isinstance(method, ShowsColumns) and method.shows)
    if known is None or not has or not isinstance(method, Settings) or getattr(method, "guest", None) is not None:
        return method
    named: Method = method.model_copy(update={"guest": known})
    return named


def check_guest(method: Method, parties: Sequence[str]) -> None:
    """Refuse a guest that is no party."""
    guest = guest_of(method) or shown_by(method)
    if guest and guest not in parties:
        raise ConfigError(
            f"guest = {guest!r} is no party of this run ({', '.join(parties)}); name the label holder's own one, or "
            "leave guest out"
        )


def check_shown(method: Method, noised: bool, secure_sum: bool) -> None:
    """Refuse to show columns of nobody, or where the run promises that uploads say less of them."""
    if not isinstance(method, ShowsColumns) or not method.shows:
        return
    if not method.guest:
        raise ConfigError(
            f"the guest shows {method.shows}, and nobody is the guest: name the party that belongs to the label holder "
            '(guest = "bank" in [method])'
        )
    if noised or secure_sum:
        other = "noise before uploads" if noised else "a secure sum"
        raise ConfigError(
            f"the guest {method.guest!r} shows {method.shows} as they are, which {other} would be about; leave one of "
            "the two out"
        )


def opening_reply(method: Method, schema: Schema, labels: Labels, home: Labels | None) -> tuple[State, Reply | None]:
    """The first state and reply; where labels are protected, the guest gets in its own part what true ones give."""
    state, reply = method.open_coordinator(schema, labels)
    guest = guest_of(method)
    if not guest or reply is None or home is None or labels.epsilon is None:
        return state, reply
    true = method.open_coordinator(schema, home)[1]
    if reply.own or true is None or true.common.keys() != reply.common.keys():
        raise GateError(f"{method.name} opens differently with true labels; nothing was released")
    noisy, plain = reply.common, {name: _like(schema.task, true.common[name], v) for name, v in reply.common.items()}
    return state, Reply(own=tuple(_each(group.parties, guest, noisy, plain) for group in schema.groups))


def _each(parties: Sequence[str], guest: str, noisy: Mapping[str, Tensor], plain: Mapping[str, Tensor]) -> State:
    """(P, ...) what each party of a group gets."""
    return {name: torch.stack([(plain if p == guest else noisy)[name] for p in parties]) for name in noisy}


def _like(task: Task, plain: Tensor, noisy: Tensor) -> Tensor:
    """True labels in the form of noisy ones, which may be shares of classes."""
    return plain.to(noisy.dtype) if plain.shape == noisy.shape else task.expand(plain, noisy.dtype)
