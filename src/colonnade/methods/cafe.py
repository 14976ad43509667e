"""CAFE's training set-up (Jin et al., 2021): FedAvg between parties that hold columns; the negative example.

    coordinator  before round 1: the labels of all training rows, once                down: one byte per row
    party        theta_k, all of its model but the input slot                          up: |theta|
    coordinator  theta = mean_k theta_k                                                down: |theta|      (average)
    party        theta_k = theta, then Q steps of slot and theta_k on l(f(x_k) W, y), its own loss        (local_step)

FedAvg needs models of one shape, so columns are padded: party k's stand in slot k of an input as wide as all columns
together, zeros elsewhere. A zero input gives no gradient, so slot k of the first layer is only ever changed by party
k, and comes back from the average with one M-th of that change. Nobody needs to send or to receive zeros for that: each
party keeps its slot, which is the first weight of its network, and takes one M-th of its change itself   (slot).
With plain SGD this is padded FedAvg, number by number; the tests compare.

Deviations. (1) Slots stay home. (2) The first average is sqrt(M) times larger: parties open with networks of their
own, and so their mean has the spread of a fresh one. (3) Buffers (BatchNorm) and optimiser states are not averaged.
(4) Only parties of one architecture are averaged with each other; one without its like learns alone.

Prediction is the mean of the parties' logits, each trained as if its own columns were all there is. Labels: every
party holds them; and parameters and their changes tell about columns, which is the attack CAFE is known for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from colonnade.config import Settings
from colonnade.methods._given import OPENING, keep_labels, kept_labels, learning, own_loss, release_labels
from colonnade.methods._steps import local_steps
from colonnade.methods.base import Received, Reply, State, Uploads
from colonnade.models.cohort import Cohort
from colonnade.models.descend import descend
from colonnade.models.heads import apply_heads
from colonnade.models.optimise import AdamW, Optimiser
from colonnade.models.schema import Group, Schema
from colonnade.models.stack import Mode
from colonnade.privacy.events import LabelExposure
from colonnade.privacy.labels import Labels
from colonnade.privacy.sealed import Array, Upload
from colonnade.schedule import RoundPlan


class CAFE(Settings):
    """Whole models are averaged between parties that all know the labels (FedAvg)."""

    name: ClassVar[str] = "cafe"
    needs_uploads: ClassVar[Literal["each", "total", "nothing"]] = "each"
    exposes: ClassVar[LabelExposure] = LabelExposure.FULL
    pools: ClassVar[bool] = False

    local_steps: int = Field(10, ge=1, description="gradient steps between two averages (Q)")
    optimiser: Optimiser = Field(AdamW(lr=5e-3, weight_decay=1e-2), description="local optimiser")

    def open_party(self, cohort: Cohort) -> None:
        """Each party draws a head, and remembers its slot."""
        cohort.own_heads()
        cohort.memory["slot"] = _slot(cohort).detach().clone()

    def open_coordinator(self, schema: Schema, labels: Labels) -> tuple[State, Reply | None]:
        """The labels of all training rows go down once."""
        share = torch.tensor(1 / len(schema.parties), dtype=schema.dtype, device=schema.device)
        return {"share": share, "averages": torch.zeros((), device=schema.device)}, release_labels(schema, labels)

    def upload_arrays(self, schema: Schema, group: Group) -> Mapping[str, Array]:
        """The parameters; and logits per row, of which only evaluation and prediction make use."""
        return {
            "theta": Array(sum(group.parameters[1:]) + head_size(schema, group), per_row=False),
            "o": Array(schema.outputs),
        }

    def upload(self, cohort: Cohort, x: Tensor, training: bool) -> Upload:
        """All of the model but its slot, and what it says about the rows."""
        logits = apply_heads(cohort.head, cohort.encode(x, Mode.UPLOAD if training else Mode.PREDICT))
        return Upload({"theta": torch.cat([t.flatten(1) for t in _shared(cohort)], dim=1), "o": logits})

    def coordinate(self, state: State, plan: RoundPlan, uploads: Uploads, labels: Labels) -> Reply:
        """(average) in every group, over the parties that ever uploaded."""
        own = []
        for group in uploads.groups:
            theta = group["theta"]  # (P, |theta|), zero before the first upload
            count = theta.any(dim=1).sum().clamp(min=1)
            root = count.sqrt() if state["averages"] == 0 else count.new_ones(())
            own.append({"theta": (theta.sum(dim=0) / count * root).expand_as(theta)})
        state["averages"] = state["averages"] + 1
        return Reply(own=tuple(own))

    def learn(self, cohort: Cohort, plan: RoundPlan, uploaded: Mapping[str, Tensor], reply: Received) -> None:
        """Keep the labels of round 0; afterwards take the average, and (local_step)."""
        if plan.number == OPENING:
            return keep_labels(cohort, reply)
        self.take(cohort, reply.own["theta"])
        return descend(
            cohort,
            own_loss,
            learning(cohort, plan) | kept_labels(cohort, plan.rows),
            steps=local_steps(cohort, plan, self.local_steps),
            optimiser=self.optimiser,
            parts=(("head", "encoder"),),
            round_number=plan.number,
        )

    def take(self, cohort: Cohort, theta: Tensor) -> None:
        """Put the average in place, unless nobody of the group ever uploaded; and (slot)."""
        known, at = theta.any(dim=1), 0  # (P,)
        like = next(len(g.parties) for g in cohort.schema.groups if cohort.names[0] in g.parties)  # M, of one shape
        slot, before = _slot(cohort).detach(), cohort.memory["slot"]
        slot.copy_(before + (slot - before) / like)
        cohort.memory["slot"] = slot.clone()
        for tensor in _shared(cohort):
            size = tensor[0].numel()
            tensor.detach()[known] = theta[known, at : at + size].view_as(tensor[known])
            at += size

    def predict(self, state: State, uploads: Uploads) -> Tensor:
        """The mean of the logits."""
        return uploads.total("o") * state["share"]


def head_size(schema: Schema, group: Group) -> int:
    """How many numbers a head holds."""
    width, out, layers = group.width, schema.outputs, schema.head.layers
    return width * out if layers == 1 else (layers - 1) * width * (width + 1) + (width + 1) * out


def _slot(cohort: Cohort) -> Tensor:
    """The weights that a party's own columns meet first, (P, ...)."""
    return cohort.trained(("encoder",))[0]


def _shared(cohort: Cohort) -> list[Tensor]:
    """Everything else that learns."""
    return cohort.trained(("encoder", "head"))[1:]
