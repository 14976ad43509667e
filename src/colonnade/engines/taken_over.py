"""What a run takes over from a finished one: the scores that parties sent there, so that they need not train again.

Only the parties that are new are asked and learn. Of the others, whose parts of the model stay as they are, the label
holder has what they said about training, validation and test rows; a method that `Extends` puts both together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from colonnade.methods._guest import opening_reply
from colonnade.methods.base import Extends, Method, Reply, State, Uploads
from colonnade.methods.without import in_their_places
from colonnade.models.schema import Schema
from colonnade.privacy.labels import Labels
from colonnade.wire.messages import Query


@dataclass(frozen=True)
class TakenOver:
    """What the label holder kept of a former run, and by which row numbers it stands there."""

    asked: tuple[str, ...]  # the parties that train now
    kept: State = field(repr=False)
    places: Tensor = field(repr=False)  # (N,) where each row stood; -1: nowhere
    labels: Labels | None = field(default=None, repr=False)  # as they were drawn then; None: they were not protected

    def put(self, method: Method, state: State) -> None:
        """Put what was kept into a new state."""
        assert isinstance(method, Extends)
        method.take_over(state, self.kept, self.places)

    def to_each(self, opening: Reply | None, schema: Schema) -> Reply | None:
        """An opening reply that goes to each learner alone: the others had the same one in the former run."""
        if opening is None or opening.own:
            return opening
        return Reply(own=tuple(_repeated(opening.common, group.parties) for group in schema.groups))

    def beside(
        self, method: Method, schema: Schema, state: State, query: Query, told: Mapping[str, Mapping[str, Tensor]]
    ) -> Uploads:
        """Everybody's uploads to a query: what those who were asked `told`, and what the others had said."""
        assert isinstance(method, Extends)
        full, _ = in_their_places(method, schema, told, len(query.rows))
        return method.beside(state, query.rows, full, query.senders)


def asked_of(taken: TakenOver | None, parties: tuple[str, ...]) -> tuple[str, ...]:
    """Those of some parties that train in a run, and so are asked: all, where nothing is taken over."""
    return parties if taken is None else tuple(party for party in parties if party in taken.asked)


def opened(
    method: Method, schema: Schema, labels: Labels, home: Labels | None, taken: TakenOver | None
) -> tuple[State, Reply | None]:
    """The first state and reply of a run, with what it takes over."""
    state, opening = opening_reply(method, schema, labels, home)
    if taken is None:
        return state, opening
    taken.put(method, state)
    return state, taken.to_each(opening, schema)


def _repeated(common: Mapping[str, Tensor], parties: Sequence[str]) -> dict[str, Tensor]:
    """(P, ...) the same for each party of a group."""
    return {name: value.expand(len(parties), *value.shape) for name, value in common.items()}
