"""Ask the parties of a finished run to upload once more. Every answer passes a gate and stands in the ledger: EXPLAIN.

One clean answer about the rows; per draw of noise one answer with noise on a party's own columns; and where heads live
at the parties, their norms. All parties answer each question at once, so a question is one message per party.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from colonnade.engines.party import PartySide, upload_about
from colonnade.errors import ConfigError, DataError, RunError
from colonnade.federation import Federation
from colonnade.methods.base import Uploads
from colonnade.models.schema import Schema
from colonnade.part import open_parts
from colonnade.privacy.gate import Gate, Passed
from colonnade.privacy.mechanism import Protection
from colonnade.privacy.sealed import Array, Upload
from colonnade.randomness import stream
from colonnade.run import Run
from colonnade.wire.messages import Purpose

FIRST = 4  # rounds between the last round and the first question: keep, test, stop


def refuse(run: Run) -> None:
    """Say in one sentence why a run cannot be explained at all."""
    if run.privacy.secure_sum.use:
        raise ConfigError(
            "this run has a secure sum: the coordinator may only learn the total, and what one party contributes is "
            "just what it hides; explain a run without privacy.secure_sum"
        )
    if run.method.pools or len(run.models) < 2:
        raise ConfigError(f"a run of {run.method.name} over {len(run.models)} party has no parties to tell apart")
    if not all(run.models.values()):
        raise RunError(
            "this run was made by separate organisations, whose networks are with them and not in its folder; "
            "explain a simulation of it"
        )


@dataclass
class Listener:
    """The parties of a finished run, ready to answer questions about some rows."""

    run: Run
    schema: Schema
    sides: list[PartySide] = field(repr=False)
    number: int  # of this conversation, after all rounds of the run
    count: int  # rows asked about
    asked: int = 0

    @classmethod
    def open(cls, run: Run, federation: Federation, rows: Tensor, covered: bool) -> Listener:
        """Put the run's networks back. Without `covered`, a gate that lets nothing leave stands before each party."""
        _check(run, federation)
        protection = Protection() if covered else Protection(evaluation=None, prediction=None)
        columns = federation.select(rows).columns
        engine = open_parts(run.model.design, list(run.model.parts.values()), run.ledger, protection, columns)
        earlier = {release.number for release in run.ledger if release.purpose is Purpose.EXPLAIN}
        return cls(run, engine.schema, engine.sides, run.result["rounds"] + FIRST + len(earlier), len(rows))

    def tokens(self) -> str | None:
        """A party whose columns are tokens, if there is one: no noise can be added to them."""
        return next((s.cohort.names[0] for s in self.sides if not s.cohort.columns.is_floating_point()), None)

    def clean(self) -> Uploads:
        """What the parties say about their columns as they are."""
        return self._ask(lambda side: side.cohort.whole)

    def noisy(self, std: float | None, seed: int, draw: int) -> Uploads:
        """What each of them says with noise on its own columns; std None: as wide as the party's columns are."""
        return self._ask(lambda side: side.cohort.whole + _noise(side, std, seed, draw))

    def _ask(self, columns: Callable[[PartySide], Tensor]) -> Uploads:
        groups = []
        for side in self.sides:
            upload = upload_about(self.run.method, side.cohort, side.cohort.scale_columns(columns(side)))
            passed = side.gate.release(
                upload, side.cohort.names, self.number, Purpose.EXPLAIN, self.count, part=self.asked
            )
            groups.append(passed.sent)
        self.asked += 1
        return Uploads(tuple(groups))

    def norms(self) -> dict[str, float]:
        """The norms of heads that live at the parties: one number per party, released like anything else."""
        found: dict[str, float] = {}
        for side in self.sides:
            heads = torch.stack([head_norm(self.run.models[name]) for name in side.cohort.names])
            passed = self._tell(side, "norm", heads.unsqueeze(1), rows=0)
            found |= dict(zip(passed.parties, passed.values["norm"][:, 0].tolist(), strict=True))
        self.asked += 1
        return found

    def pictures(self, most: int) -> dict[str, Tensor]:
        """The first rows' columns of every party whose rows are images: raw columns, released as they are."""
        found: dict[str, Tensor] = {}
        count = min(most, self.count)
        for side in self.sides:
            columns = side.cohort.whole[:, :count]
            if columns.dim() < 4:
                continue
            passed = self._tell(side, "picture", columns.flatten(2), rows=count)
            shown = passed.values["picture"].view_as(columns).cpu()
            found |= dict(zip(passed.parties, shown, strict=True))
        self.asked += 1
        return found

    def _tell(self, side: PartySide, name: str, values: Tensor, rows: int) -> Passed:
        agreed = {name: Array(values.shape[-1], values.dtype, per_row=values.dim() == 3)}
        gate = Gate(self.run.id, self.run.ledger, agreed, side.gate.protection)
        return gate.release(
            Upload({name: values}), side.cohort.names, self.number, Purpose.EXPLAIN, rows, part=self.asked
        )

    @property
    def places(self) -> tuple[tuple[int, int], ...]:
        """(group, place) of every party, in federation order."""
        return tuple(self.schema.position(party) for party in self.schema.parties)


def head_norm(tensors: Mapping[str, Tensor]) -> Tensor:
    """The Frobenius norm over all weights of one head, given a model that holds it as `head.weight.*`."""
    weights = [value.double().flatten() for name, value in tensors.items() if name.startswith("head.weight")]
    norm: Tensor = torch.linalg.vector_norm(torch.cat(weights))
    return norm.cpu()


def _noise(side: PartySide, std: float | None, seed: int, draw: int) -> Tensor:
    columns = side.cohort.whole
    drawn = []
    for place, party in enumerate(side.cohort.names):
        width = std if std is not None else float(columns[place].double().std())
        noise = stream(seed, "explain noise", party, draw).normal(0.0, width, tuple(columns.shape[1:]))
        drawn.append(torch.from_numpy(noise).to(columns))
    return torch.stack(drawn)


def _check(run: Run, federation: Federation) -> None:
    wanted = {p["name"]: tuple(p["shape"]) for p in run.about["parties"]}
    got = {p.name: tuple(p.columns.shape[1:]) for p in federation.parties}
    if wanted != got:
        wrong = next(name for name in [*wanted, *got] if wanted.get(name) != got.get(name))
        raise DataError(
            f"party {wrong!r}: the run was trained on {wanted.get(wrong, 'no such party')}, this federation has "
            f"{got.get(wrong, 'no such party')}; give explain() the data of the run"
        )
