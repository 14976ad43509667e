"""A short training with every message recorded: what each side received, and what the parties had before the gate.

Simulation only. The recorder stands round an engine and changes nothing; the tap stands before a mechanism and keeps
clean uploads, which no player of a real run has: it is needed to know what was to be hidden.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from torch import Tensor

from colonnade.audit.travelled import unlogged
from colonnade.engines.base import Collected, Engine, Message
from colonnade.engines.party import PartySide
from colonnade.federation import Federation
from colonnade.fit import Trainer
from colonnade.models.schema import Schema
from colonnade.models.stack import Way
from colonnade.privacy.around import Around, AroundSum
from colonnade.privacy.gate import Down
from colonnade.privacy.mechanism import Hiding, Mechanism
from colonnade.progress import Watcher
from colonnade.run import Run
from colonnade.wire.messages import Purpose, Request

CleanUploads = dict[str, list[dict[str, Tensor]]]  # by party: the clean training uploads, in order


@dataclass(frozen=True)
class RecordedUploads:
    """What came up in answer to one query: party -> array name -> (B, ...)."""

    purpose: Purpose
    rows: Tensor = field(repr=False)
    uploaded: Mapping[str, Mapping[str, Tensor]] = field(repr=False)
    messages: tuple[Message, ...] = field(default=(), repr=False)  # as they travelled, one per party


@dataclass(frozen=True)
class RecordedRound:
    """One round trip, as both sides saw it. The reply in `common` and `own` answers the round before."""

    number: int
    learners: tuple[str, ...]
    common: Mapping[str, Tensor] = field(repr=False)  # every party gets this
    own: Mapping[str, Mapping[str, Tensor]] = field(repr=False)  # party -> what only that party gets
    uploads: tuple[RecordedUploads, ...] = field(repr=False)
    messages: tuple[Message, ...] = field(repr=False)


@dataclass
class Recorder:
    """An engine that remembers every round of the one inside."""

    inner: Engine
    schema: Schema
    recorded_rounds: list[RecordedRound] = field(default_factory=list, repr=False)

    def __post_init__(self) -> None:
        self.name = self.inner.name  # a run is the same with and without a listener

    @property
    def ways(self) -> list[Way]:
        """Of the engine inside."""
        return self.inner.ways

    def run_round(self, request: Request, down: Down) -> Collected:
        """Pass on, and keep a copy."""
        own = self._own(down)
        common = {name: value.detach().cpu().clone() for name, value in down.common.items()}
        collected = self.inner.run_round(request, down)
        uploads = tuple(
            RecordedUploads(
                query.purpose, query.rows.cpu(), self._uploaded(collected, at), tuple(collected.releases[at])
            )
            for at, query in enumerate(request.queries)
        )
        up = [message for query in collected.releases for message in query]
        messages = (down.everyone, *down.own.values(), *up)
        self.recorded_rounds.append(RecordedRound(request.number, request.learners, common, own, uploads, messages))
        return collected

    def _own(self, down: Down) -> dict[str, dict[str, Tensor]]:
        return {
            party: {name: value[place].detach().cpu().clone() for name, value in part.items()}
            for group, part in zip(self.schema.groups, down.groups, strict=False)
            for place, party in enumerate(group.parties)
        }

    def _uploaded(self, collected: Collected, at: int) -> dict[str, dict[str, Tensor]]:
        if at >= len(collected.uploaded):
            return {}
        return {
            group.parties[place]: {n: v[index].detach().cpu().clone() for n, v in part.values.items()}
            for group, part in zip(self.schema.groups, collected.uploaded[at], strict=False)
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

    clean: CleanUploads = field(repr=False)

    def given(self, upload: Mapping[str, Tensor], parties: Sequence[str]) -> Mapping[str, Tensor]:
        """The upload, of which a copy is kept."""
        for place, party in enumerate(parties):
            mine = {name: value[place].detach().cpu().clone() for name, value in upload.items()}
            self.clean.setdefault(party, []).append(mine)
        return upload


@dataclass
class TapOfSum(Tap, AroundSum):
    """The same before a secure sum."""


def _tapped(mechanism: Mechanism, clean: CleanUploads) -> Mechanism:
    return TapOfSum(mechanism, clean) if isinstance(mechanism, Hiding) else Tap(mechanism, clean)


@dataclass(frozen=True)
class Transcript:
    """Every message of a training, and the run it gave."""

    federation: Federation
    schema: Schema
    run: Run
    recorded_rounds: tuple[RecordedRound, ...] = field(repr=False)
    clean: CleanUploads = field(repr=False)
    sides: tuple[PartySide, ...] = field(repr=False)  # the parties as training left them
    mechanism: Mechanism = field(repr=False)  # that stood before training uploads

    def replies(self) -> Iterator[tuple[Tensor, RecordedRound]]:
        """The rows of a round, and the round that carries the reply to it."""
        rows: Tensor | None = None
        for recorded in self.recorded_rounds:
            if rows is not None and recorded.common:
                yield rows, recorded
            trained = [uploads.rows for uploads in recorded.uploads if uploads.purpose is Purpose.TRAIN]
            rows = trained[0] if trained else None

    def last_words(self) -> RecordedUploads | None:
        """The last training uploads, as the coordinator got them; None if nobody uploaded."""
        passed = [h for e in self.recorded_rounds for h in e.uploads if h.purpose is Purpose.TRAIN and h.uploaded]
        return passed[-1] if passed else None

    def unlogged(self) -> tuple[str, ...]:
        """Senders of messages that the run's ledger does not know: always none, unless code is wrong."""
        return unlogged((m for e in self.recorded_rounds for m in e.messages), self.run.ledger)


def record(trainer: Trainer, watch: Watcher | None = None) -> Transcript:
    """Train a fresh trainer to its end, and remember everything."""
    recorder, clean = Recorder(trainer.engine, trainer.coordinator.schema), CleanUploads()
    sides = tuple(recorder.parties())
    before = sides[0].gate.protection.training
    for side in sides:
        protection = side.gate.protection
        side.gate.protection = replace(protection, training=_tapped(protection.training, clean))
    trainer.engine = recorder
    run = trainer.train(watch=watch)
    recorded_rounds = tuple(recorder.recorded_rounds)
    return Transcript(trainer.federation, trainer.coordinator.schema, run, recorded_rounds, clean, sides, before)
