"""Training one round at a time, so that a test can check every message and every state on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor

from colonnade.config import build
from colonnade.engines.base import Collected, Encoders
from colonnade.federation import Federation
from colonnade.fit import Trainer
from colonnade.methods.base import Method, State, Uploads, brings
from colonnade.models.encoders import ModelSettings
from colonnade.privacy.chain import StoredLine
from colonnade.privacy.gate import Down
from colonnade.privacy.ledger import Entry, Ledger
from colonnade.privacy.mechanism import Mechanism
from colonnade.privacy.settings import PrivacySettings
from colonnade.run import Run, Training
from colonnade.wire.messages import Request

ENGINES = ("loop", "stacked")
TINY = ModelSettings(hidden=6, embedding=4)


def open_trainer(
    federation: Federation,
    method: Method,
    *,
    model: ModelSettings = TINY,
    encoders: Encoders = None,
    mechanism: Mechanism | None = None,
    ways: tuple[str, ...] = (),
    privacy: Mapping[str, Any] | None = None,
    **training: Any,
) -> Trainer:
    """A trainer whose run id is always the same, so that equal runs send equal bytes.

    A mechanism takes the place of noise that a method brings itself: both at once are refused.
    """
    if mechanism is not None and brings(method):
        method = cast(Any, method).model_copy(update={"noise": False})
    settings = build(Training, {"dtype": "float64", **training}, "training")
    about: dict[str, Any] = {"id": "test", "ways": ways, "config": None}
    promised = build(PrivacySettings, privacy or {}, "privacy")
    return Trainer.open(federation, method, settings, model, encoders, mechanism, about, promised)


@dataclass
class TrainedRound:
    """One round trip, as an eavesdropper sees it."""

    request: Request
    down: Down
    collected: Collected

    @property
    def payloads(self) -> list[bytes]:
        """Every message of the round, in the order in which the gates released them."""
        sealed = [self.down.everyone, *self.down.own.values(), *(r for query in self.collected.releases for r in query)]
        return [released.payload for released in sealed]


def unsigned(release: Entry) -> StoredLine:
    """A release without its digest, which depends on the run's id, and without its time."""
    return {k: v for k, v in timeless(release).items() if k != "digest"}


def timeless(release: Entry) -> StoredLine:
    """A release without its time, and without the hash that a file put together with it."""
    return {k: v for k, v in release.to_json().items() if k not in ("time", "chain")}


def events(ledger: Ledger) -> list[tuple[Any, ...]]:
    """What was released, without the digests; parties may answer in any order within a round."""
    return sorted((r.number, r.owner, r.audience, r.purpose, r.unit, r.mechanism, r.rows, r.parameters) for r in ledger)


def rounds_of(trainer: Trainer) -> Iterator[TrainedRound]:
    """Train; yield after each round and before the coordinator takes the uploads."""
    while True:
        request, down = trainer.coordinator.request()
        collected = trainer.engine.run_round(request, down)
        yield TrainedRound(request, down, collected)
        if request.stop is not None:
            return
        trainer.coordinator.receive(request, collected)


def party_tensors(trainer: Trainer) -> dict[str, dict[str, Tensor]]:
    """A copy of everything each party holds: weights, buffers, heads, memory and optimiser state."""
    held: dict[str, dict[str, Tensor]] = {}
    for side in trainer.engine.parties():
        for place, name in enumerate(side.cohort.names):
            held[name] = {k: v[0].clone() for k, v in side.cohort.pick([place]).tensors().items()}
    return held


@dataclass
class Recorded:
    """A finished run and the logits of every evaluation on the way (validation rows, at last the test rows)."""

    run: Run
    trainer: Trainer
    logits: list[Tensor] = field(default_factory=list)


def record(federation: Federation, method: Method, **options: Any) -> Recorded:
    """Train, and remember what `predict` gave each time it was asked."""
    seen: list[Tensor] = []
    kind: Any = type(method)
    original: Callable[[Method, State, Uploads], Tensor] = kind.predict

    def predict(self: Method, state: State, uploads: Uploads) -> Tensor:
        logits = original(self, state, uploads)
        seen.append(logits.detach().clone())
        return logits

    trainer = open_trainer(federation, method, **options)
    kind.predict = predict
    try:
        run = trainer.train()
    finally:
        kind.predict = original
    return Recorded(run, trainer, seen)


def untimed(history: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A history without the one thing that differs between equal runs."""
    return [{k: v for k, v in entry.items() if k != "seconds"} for entry in history]


def assert_same_tensors(one: dict[str, Tensor], other: dict[str, Tensor], atol: float) -> None:
    """The same names and, within `atol`, the same numbers."""
    assert one.keys() == other.keys()
    for name, value in one.items():
        if not _near(value, other[name], atol):  # asked first, because saying what differs takes ten times as long
            torch.testing.assert_close(value, other[name], rtol=0, atol=atol, msg=partial("{}: {}".format, name))


def _near(one: Tensor, other: Tensor, atol: float) -> bool:
    """Whether two tensors are alike in kind, and all their numbers finite and within `atol`."""
    alike = (one.dtype, one.shape, one.device) == (other.dtype, other.shape, other.device)
    return alike and (
        torch.equal(one, other) or (one.is_floating_point() and bool(((one - other).abs() <= atol).all()))
    )
