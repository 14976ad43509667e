"""assisted_boosting: parallel boosting on residuals (gradient assisted learning, Diao et al., 2022), Newton's targets.

    coordinator  F = base, the outputs of whoever knows only how frequent labels are
                 before round 1: labels and base                                    down: a bit or a byte a row
    every round
    coordinator  g = y - mean(F),  h = max(curvature of the loss at F, 0.05)       down: b x d_c (g, for counts also h)
    party        D_k = a new local model, fitted to v = g/h with weights h          up: b x d_c, and of validation rows
    coordinator  a = argmin loss(F + sum_k a_k D_k), 0 <= a_k <= 1, on one half of the validation rows
                 F += share * sum_k a_k D_k                                         down: each party its own a_k
    party        F_k += share * a_k D_k

    prediction   base + sum_k F_k

The other half of the validation rows judges the rounds: step sizes would hide from their own rows when to stop. v is
never clipped: with the floor of h, weight times target is the gradient exactly. v and h are told as g, from which a
party computes them where labels are plain: one array says both. Step sizes are rounded to
seven binary digits, which every number format carries exactly, so that both sides have the same sum.

Where only the total of the increments can be read (secure sum), and where nothing is ever evaluated, a_k = 1/M.
Of a row that a party lacks, its increments are zero, and none is fitted to it.
Differences from the paper: Newton's targets and weights in place of the plain gradient, step sizes on rows that train
nobody, half of the step, and the model as local models see it: trees, ridge, networks, or a regressor of a user's own.
Labels: v gives them away, as ADMM's does. Behind a label mechanism y are the noisy labels, everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from colonnade.config import Settings
from colonnade.methods._given import OPENING, keep_weights, release_in_bits
from colonnade.methods._increments import Wanted, fit_increment
from colonnade.methods._residuals import checked, counts, newton, residuals, rounded, seen
from colonnade.methods._steps import party_code
from colonnade.methods.base import Received, Reply, State, Uploads
from colonnade.methods.rounds import New, Usual
from colonnade.models.cohort import Cohort
from colonnade.models.increments import Increments
from colonnade.models.optimise import AdamW, Optimiser
from colonnade.models.schema import Group, Schema
from colonnade.models.stack import Mode
from colonnade.models.step_sizes import step_sizes
from colonnade.privacy.events import LabelExposure
from colonnade.privacy.labels import Labels
from colonnade.privacy.sealed import Array, Upload
from colonnade.schedule import RoundPlan


class AssistedBoosting(Settings):
    """Parties fit what is left to explain, round by round; the label holder weighs what they found."""

    name: ClassVar[str] = "assisted_boosting"
    needs_uploads: ClassVar[Literal["each", "total", "nothing"]] = "total"
    exposes: ClassVar[LabelExposure] = LabelExposure.FULL
    pools: ClassVar[bool] = False
    needs_gradients: ClassVar[bool] = False
    whole: ClassVar[bool] = True
    lacking: ClassVar[bool] = True
    usual: ClassVar[Usual] = Usual(rounds=20, evaluate_every=1, patience=4, by_loss=True)

    share: float = Field(0.5, gt=0, le=1, description="part of the chosen steps that is taken")
    local_steps: int = Field(100, ge=1, description="gradient steps of a network on each increment, 256 rows each")
    optimiser: Optimiser = Field(AdamW(lr=5e-3, weight_decay=1e-2), description="local optimiser of networks")

    def open_party(self, cohort: Cohort) -> None:
        """No increment; networks have a head of their own."""
        cohort.own_heads()
        cohort.encoder, cohort.head = Increments.of(cohort), {}

    def open_coordinator(self, schema: Schema, labels: Labels) -> tuple[State, Reply | None]:
        """F = base. `cache.` is about rows and rounds, and no part of the model."""
        parties = [party for group in schema.groups for party in group.parties]
        y, weights = seen(labels, schema.train), counts(labels, schema.train)
        heavy = torch.ones_like(y[:, :1]) if weights is None else weights.to(y)[:, None]
        base = labels.task.constant((y * heavy).sum(dim=0) / heavy.sum()).to(y)
        state = {
            "base": base,
            "cache.total": base.repeat(schema.rows, 1),
            "cache.steps": _alike(len(parties)),
            "cache.parties": torch.tensor([party_code(party) for party in parties]),
            "cache.groups": torch.tensor([len(group.parties) for group in schema.groups]),
        }
        return state, Reply({**release_in_bits(schema, labels).common, "base": base.to(schema.dtype)})

    def upload_arrays(self, schema: Schema, group: Group) -> Mapping[str, Array]:
        """What a party sends per row."""
        return {"o": Array(schema.outputs)}

    def upload(self, cohort: Cohort, x: Tensor, training: bool) -> Upload:
        """D_k while there is one, also of validation rows; F_k after training."""
        new = Increments.within(cohort).newest(x)
        if new is None and training:
            new = cohort.schema.zeros(len(cohort.names), x.shape[1], cohort.schema.outputs)
        if new is None:
            return Upload(self.computed(cohort, x, Mode.PREDICT))
        return Upload({"o": cohort.silent_where_lacking(new)})

    def computed(self, cohort: Cohort, x: Tensor, mode: Mode) -> dict[str, Tensor]:
        """F_k of every party."""
        return {"o": cohort.encode(x, mode)}

    def add_increments(self, state: State, uploads: Sequence[Uploads], labels: Labels, new: New) -> list[Uploads]:
        """Choose a on one half of the validation rows, and go on to F there; what they said before judges."""
        moves = torch.cat([_each(piece) for piece in uploads], dim=1).double()  # (M, V, K); (1, V, K) of a secure sum
        before = state.get("cache.validation", torch.zeros_like(moves))
        sent, choosing = _sent(state, new.senders), torch.arange(0, len(new.rows), 2)
        steps = _alike(len(sent)) * sent
        if len(moves) == len(sent) and bool(sent.any()):
            rows = new.rows[choosing]
            y, at = seen(labels, rows).cpu(), choosing.to(moves.device)
            total = state["base"] + before[:, at].sum(dim=0)
            found = step_sizes(labels.task, total, moves[sent][:, at], y, counts(labels, rows))
            steps[sent] = rounded(found)
        state["cache.steps"] = steps
        state["cache.validation"] = before + self.share * _weighed(steps, moves)
        return _like(uploads, before)

    def judging(self, rows: Tensor) -> Tensor:
        """Every second row; the others choose the step sizes."""
        return torch.arange(0 if len(rows) < 2 else 1, len(rows), 2)

    def coordinate(self, state: State, plan: RoundPlan, uploads: Uploads, labels: Labels) -> Reply:
        """F += share * sum_k a_k D_k, and what is left to explain."""
        steps = state["cache.steps"] * _sent(state, plan.senders)
        move = _weighed(steps, _each(uploads).double()).sum(dim=0)
        total = state["cache.total"][plan.rows] + self.share * move
        state["cache.total"][plan.rows], state["cache.steps"] = total, _alike(len(steps))
        y = seen(labels, plan.rows)
        told = residuals(labels.task, total, y, uploads.groups[0]["o"].dtype)
        own = torch.split(steps[:, None].to(told["g"]), state["cache.groups"].tolist())
        notes = {"step": steps.mean().to(total), **labels.task.notes(total, y)}
        return Reply(told, tuple({"step": part} for part in own), notes)

    def learn(self, cohort: Cohort, plan: RoundPlan, uploaded: Mapping[str, Tensor], reply: Received) -> None:
        """The last increment counts as much as it was found to be worth; then a new one is fitted to what is left."""
        s, told = cohort.schema, dict(reply.common)
        if plan.number == OPENING:
            keep_weights(cohort, reply)
            y, base = s.task.expand(told["targets"], torch.float64), told["base"].double()
            told = residuals(s.task, base.expand(len(y), -1), y, torch.float64)
        target, weights = newton(s.task, told)
        if "weights" in cohort.memory:
            weights = weights * cohort.memory["weights"][0, plan.rows.to(cohort.device), None].double()
        x, held = cohort.x(plan.rows), cohort.holding(plan.rows)
        efforts, grown = dict(plan.steps), Increments.within(cohort)
        grown.training = True
        for place, own in enumerate(grown.parties):
            model, effort = own.fresh(plan.number + 1), efforts.get(cohort.names[place])
            if plan.number != OPENING:
                own.settle(self.share * checked(float(reply.own["step"][place, 0])))
            mine = slice(None) if held is None else held[place]  # a row that it lacks teaches a party nothing
            wanted = Wanted(x[place : place + 1, mine], target[mine], weights[mine], effort, plan.number + 1)
            if effort != 0 and len(wanted.target):
                fit_increment(model, wanted, self.local_steps, self.optimiser)
                own.pending = model

    def predict(self, state: State, uploads: Uploads) -> Tensor:
        """base + sum_k F_k."""
        total = uploads.total("o")
        return total + state["base"].to(total)

    def scores(self, state: State, uploads: Uploads) -> Tensor:
        """F_k: what the sum is of."""
        return _each(uploads)


def _each(uploads: Uploads) -> Tensor:
    """Every party's increments (M, B, K), group by group; of a secure sum (1, B, K)."""
    return torch.cat([group["o"] for group in uploads.groups])


def _like(uploads: Sequence[Uploads], values: Tensor) -> list[Uploads]:
    """Values (M, V, K) by piece and group, as uploads are."""
    out, at = [], 0
    for piece in uploads:
        size = piece.groups[0]["o"].shape[1]
        parts = torch.split(values[:, at : at + size], [len(group["o"]) for group in piece.groups])
        out.append(Uploads(tuple({"o": part.to(group["o"])} for part, group in zip(parts, piece.groups, strict=True))))
        at += size
    return out


def _weighed(steps: Tensor, moves: Tensor) -> Tensor:
    """a_k D_k (M, B, K); of a secure sum, whose parties have one step, (1, B, K)."""
    return steps[: len(moves), None, None].to(moves) * moves


def _alike(parties: int) -> Tensor:
    """1/M for each."""
    return rounded(torch.full((parties,), 1 / parties, dtype=torch.float64))


def _sent(state: State, senders: Sequence[str]) -> Tensor:
    """(M,) whose increments have come."""
    told = torch.tensor([party_code(party) for party in senders], dtype=torch.int64)
    return torch.isin(state["cache.parties"].cpu(), told)
