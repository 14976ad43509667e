"""What a job will send, before it is trained: bytes per party, round and direction.

The run is rehearsed: the real coordinator writes its orders and counts the bytes, the real gates encode
messages of the right shape, but nobody computes: parties say noise, and the method is asked for one reply
per batch size. So the estimate cannot drift away from the messages. It differs from a full run by a few bytes
of header (whether a round was the best so far is one word), and is too high if the run stops early.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypedDict, cast

import torch
from torch import Tensor

from colonnade.admm.stopping import Stopping
from colonnade.engines.base import Collected, GroupUploads
from colonnade.engines.party import PartySide
from colonnade.federation import Federation
from colonnade.fit import Trainer
from colonnade.job import Job
from colonnade.methods._guest import guest_of
from colonnade.methods.base import Method, Reply, State, Uploads, brings
from colonnade.models.schema import Group, Schema
from colonnade.privacy.colluders import Colluders
from colonnade.privacy.labels import Labels
from colonnade.privacy.ledger import Ledger
from colonnade.privacy.sealed import Array, Release, Upload
from colonnade.randomness import stream
from colonnade.schedule import RoundPlan
from colonnade.wire.messages import Purpose, Query, Request
from colonnade.wire.traffic import Traffic


class EstimateRecord(TypedDict):
    """An estimate as plain values; bytes are of training unless they say evaluation."""

    method: str
    federation: str
    parties: int
    rounds: int
    batch: int
    per_round: dict[str, float]
    total: dict[str, int]
    per_party: dict[str, dict[str, float]]
    colluders: int | None


@dataclass(frozen=True)
class Estimate:
    """The traffic of a full run."""

    method: str
    federation: str
    rounds: int
    batch: int
    traffic: Traffic = field(repr=False)
    colluders: Colluders | None = None  # of a secure sum

    def to_json(self) -> EstimateRecord:
        """Plain values; bytes are of training unless they say evaluation."""
        t = self.traffic
        totals = {"up": t.up, "down": t.down, "both": t.up + t.down, "multicast": t.multicast}
        per_party: dict[str, dict[str, float]] = {
            party: {**both, **{f"{way}_per_round": both[way] / self.rounds for way in ("up", "down")}}
            for party, both in t.per_party().items()
        }
        return {
            "method": self.method,
            "federation": self.federation,
            "parties": len(t.parties),
            "rounds": self.rounds,
            "batch": self.batch,
            "per_round": {name: total / self.rounds for name, total in totals.items()},
            "total": {**totals, "evaluation": t.evaluation},
            "per_party": per_party,
            "colluders": None if self.colluders is None else self.colluders.tolerated,
        }


def estimate(job: Job, federation: Federation) -> Estimate:
    """Rehearse the job on its own data; nothing is trained and nothing is written.

    Args:
        job: what would be trained.
        federation: its data, from `job.federation()`.
    """
    # On the CPU, whatever the job says: sizes are the same. No stopping: the estimate is of all rounds.
    training = job.training.model_copy(update={"device": "cpu", "engine": "loop", "stopping": Stopping()})
    trainer = Trainer.open(federation, job.method, training, job.model, None, None, privacy=job.privacy)
    coordinator = trainer.coordinator
    coordinator.method = cast(Method, _Rehearsed(coordinator.method, coordinator.schema))
    coordinator.opener = None  # nobody masks in a rehearsal: sizes are the same
    parties = _Speaking(trainer.engine.parties(), coordinator.schema, trainer.id)
    while True:
        request, _ = coordinator.request()
        if request.stop is not None:
            break
        coordinator.receive(request, parties.answer(request))
    if len(federation.split.test) and job.privacy.evaluates():
        request, _ = coordinator.test_request(federation.split.test)
        coordinator.count_up(request, parties.answer(request).releases)
    name, batch = trainer.federation.name, coordinator.schedule.batch
    return Estimate(
        job.method.name, name, trainer.training.rounds, batch, coordinator.traffic, _colluders(job, federation)
    )


def _colluders(job: Job, federation: Federation) -> Colluders | None:
    """Who may collude with the label holder, where only sums open."""
    sums, guest = job.privacy.secure_sum, guest_of(job.method)
    noised = job.privacy.protects or bool(brings(job.method))
    own = (guest,) if guest else ()
    return Colluders(len(federation.names), sums.colluders, own, noised) if sums.use else None


class _Rehearsed:
    """The method as the coordinator sees it, asked once per batch size: no reply depends on anything else."""

    def __init__(self, method: Method, schema: Schema) -> None:
        self._method, self._schema = method, schema
        self._replies: dict[int, Reply] = {}

    def coordinate(self, state: State, plan: RoundPlan, uploads: Uploads, labels: Labels) -> Reply:
        rows = len(plan.rows)
        if rows not in self._replies:
            self._replies[rows] = self._method.coordinate(dict(state), plan, uploads, labels)
        return self._replies[rows]

    def upload_arrays(self, schema: Schema, group: Group) -> Mapping[str, Array]:
        return self._method.upload_arrays(schema, group)

    def predict(self, state: State, uploads: Uploads) -> Tensor:
        uploaded = next(iter(uploads.groups[0].values()))  # (P, B, ...)
        return self._schema.zeros(uploaded.shape[1], self._schema.outputs)


class _Speaking:
    """Parties that say noise of the agreed shapes, through gates whose ledger nobody keeps."""

    def __init__(self, sides: Sequence[PartySide], schema: Schema, run: str) -> None:
        self._schema = schema
        gates = {name: side.gate for side in sides for name in side.cohort.names}
        self._gates = {name: replace(gate, run=run, ledger=Ledger()) for name, gate in gates.items()}
        self._agreed = [gates[group.parties[0]].agreed for group in schema.groups]
        self._noise: dict[tuple[int, ...], Tensor] = {}
        self._sealed: dict[tuple[str, Purpose, int, int], Release] = {}

    def answer(self, request: Request) -> Collected:
        """One answer per query, as an engine gives them."""
        uploaded: list[list[GroupUploads]] = []
        releases: list[list[Release]] = []
        for part, query in enumerate(request.queries):
            uploaded.append([self._uploaded(query, g) for g in range(len(self._schema.groups))])
            releases.append(
                [
                    released
                    for g in range(len(self._schema.groups))
                    for released in self._send(query, g, request.number, part)
                ]
            )
        return Collected(uploaded, releases)

    def _uploaded(self, query: Query, group: int) -> GroupUploads:
        names = self._schema.groups[group].parties
        places = tuple(i for i, name in enumerate(names) if name in set(query.senders))
        return GroupUploads(places, self._values(group, len(places), len(query.rows)) if places else {})

    def _send(self, query: Query, group: int, number: int, part: int) -> list[Release]:
        """A message per speaker; sizes depend on the rows and on the digits of the number, so few are encoded."""
        sent, rows = [], len(query.rows)
        for party in self._schema.groups[group].parties:
            if party not in query.senders:
                continue
            key = (party, query.purpose, rows, len(str(number)))
            if key not in self._sealed:
                upload = Upload(self._values(group, 1, rows))
                passed = self._gates[party].release(upload, [party], number, query.purpose, rows, part)
                self._sealed[key] = passed.releases[0]
            sent.append(self._sealed[key])
        return sent

    def _values(self, group: int, parties: int, rows: int) -> Mapping[str, Tensor]:
        agreed = self._agreed[group].items()
        return {name: self._draw((parties, *array.shape(rows)), array.dtype) for name, array in agreed}

    def _draw(self, shape: tuple[int, ...], dtype: torch.dtype | None) -> Tensor:
        """Noise rather than zeros, so that a joint solve of the heads has a solution."""
        if shape not in self._noise:
            self._noise[shape] = torch.from_numpy(stream(0, "estimate").standard_normal(shape))
        return self._noise[shape].to(dtype or self._schema.dtype)
