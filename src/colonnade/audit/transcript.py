"""A short training with everybody listening: what each side received, and what the parties had before the gate.

Simulation only. The recorder stands round an engine and changes nothing; the tap stands before a mechanism and keeps
clean uploads, which no player of a real run has: it is needed to know what was to be hidden.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from torch import Tensor

from colonnade.audit.around import Around
from colonnade.audit.travelled import unlogged
from colonnade.engines.base import Answers, Engine, Message
from colonnade.engines.party import PartySide
from colonnade.federation import Federation
from colonnade.fit import Trainer
from colonnade.models.schema import Schema
from colonnade.models.stack import Way
from colonnade.privacy.gate import Down
from colonnade.privacy.mechanism import Mechanism
from colonnade.progress import Watcher
from colonnade.run import Run
from colonnade.wire.messages import Order, Purpose

Uploads = dict[str, list[dict[str, Tensor]]]  # by party: the clean training uploads, in order


@dataclass(frozen=True)
class Heard:
    """What came up in answer to one ask: party -> array name -> (B, ...)."""

    purpose: Purpose
    rows: Tensor = field(repr=False)
    said: Mapping[str, Mapping[str, Tensor]] = field(repr=False)
    messages: tuple[Message, ...] = field(default=(), repr=False)  # as they travelled, one per party


@dataclass(frozen=True)
class Exchange:
    """One round trip, as both sides saw it. The reply in `common` and `own` answers the exchange before."""

    number: int
    learners: tuple[str, ...]
    common: Mapping[str, Tensor] = field(repr=False)  # every party gets this
    own: Mapping[str, Mapping[str, Tensor]] = field(repr=False)  # party -> what only that party gets
    heard: tuple[Heard, ...] = field(repr=False)
    messages: tuple[Message, ...] = field(repr=False)


@dataclass
class Recorder:
    """An engine that remembers every exchange of the one inside."""

    inner: Engine
    schema: Schema
    exchanges: list[Exchange] = field(default_factory=list, repr=False)

    def __post_init__(self) -> None:
        self.name = self.inner.name  # a run is the same with and without a listener

    @property
    def ways(self) -> list[Way]:
        """Of the engine inside."""
        return self.inner.ways

    def exchange(self, order: Order, down: Down) -> Answers:
        """Pass on, and keep a copy."""
        own = self._own(down)
        common = {name: value.detach().cpu().clone() for name, value in down.common.items()}
        answers = self.inner.exchange(order, down)
        heard = tuple(
            Heard(ask.purpose, ask.rows.cpu(), self._said(answers, at), tuple(answers.releases[at]))
            for at, ask in enumerate(order.asks)
        )
        up = [message for ask in answers.releases for message in ask]
        messages = (down.everyone, *down.own.values(), *up)
        self.exchanges.append(Exchange(order.number, order.learners, common, own, heard, messages))
        return answers

    def _own(self, down: Down) -> dict[str, dict[str, Tensor]]:
        return {
            party: {name: value[place].detach().cpu().clone() for name, value in part.items()}
            for group, part in zip(self.schema.groups, down.groups, strict=False)
            for place, party in enumerate(group.parties)
        }

    def _said(self, answers: Answers, at: int) -> dict[str, dict[str, Tensor]]:
        if at >= len(answers.said):
            return {}
        return {
            group.parties[place]: {n: v[index].detach().cpu().clone() for n, v in part.values.items()}
            for group, part in zip(self.schema.groups, answers.said[at], strict=False)
            for index, place in enumerate(part.places)
        }

    def parties(self) -> list[PartySide]:
        """Of the engine inside."""
        return self.inner.parties()

    def tensors(self) -> dict[str, Tensor]:
        """Of the engine inside."""
        return self.inner.tensors()

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Into the engine inside."""
        self.inner.restore(tensors)


@dataclass
class Tap(Around):
    """A mechanism that keeps the clean uploads it is given, and passes them to the one inside."""

    clean: Uploads = field(repr=False)

    def __call__(
        self, upload: Mapping[str, Tensor], parties: Sequence[str], number: int, what: str
    ) -> Mapping[str, Tensor]:
        """Keep a copy, and pass on."""
        for place, party in enumerate(parties):
            mine = {name: value[place].detach().cpu().clone() for name, value in upload.items()}
            self.clean.setdefault(party, []).append(mine)
        return self.inner(upload, parties, number, what)


@dataclass(frozen=True)
class Transcript:
    """All that was said in a training, and the run it gave."""

    federation: Federation
    schema: Schema
    run: Run
    exchanges: tuple[Exchange, ...] = field(repr=False)
    clean: Uploads = field(repr=False)
    sides: tuple[PartySide, ...] = field(repr=False)  # the parties as training left them
    mechanism: Mechanism = field(repr=False)  # that stood before training uploads

    def replies(self) -> Iterator[tuple[Tensor, Exchange]]:
        """The rows of a round, and the exchange that carries the reply to it."""
        rows: Tensor | None = None
        for exchange in self.exchanges:
            if rows is not None and exchange.common:
                yield rows, exchange
            trained = [heard.rows for heard in exchange.heard if heard.purpose is Purpose.TRAIN]
            rows = trained[0] if trained else None

    def last_words(self) -> Heard | None:
        """The last training uploads, as the coordinator got them; None if nobody spoke."""
        spoken = [h for e in self.exchanges for h in e.heard if h.purpose is Purpose.TRAIN and h.said]
        return spoken[-1] if spoken else None

    def unlogged(self) -> tuple[str, ...]:
        """Senders of messages that the run's ledger does not know: always none, unless code is wrong."""
        return unlogged((m for e in self.exchanges for m in e.messages), self.run.ledger)


def record(trainer: Trainer, watch: Watcher | None = None) -> Transcript:
    """Train a fresh trainer to its end, and remember everything."""
    recorder, clean = Recorder(trainer.engine, trainer.coordinator.schema), Uploads()
    sides = tuple(recorder.parties())
    before = sides[0].gate.protection.training
    for side in sides:
        protection = side.gate.protection
        side.gate.protection = replace(protection, training=Tap(protection.training, clean))
    trainer.engine = recorder
    run = trainer.train(watch=watch)
    exchanges = tuple(recorder.exchanges)
    return Transcript(trainer.federation, trainer.coordinator.schema, run, exchanges, clean, sides, before)
