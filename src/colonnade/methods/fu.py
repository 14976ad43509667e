"""Fu et al. (2022): logits up, the gradient of the loss with respect to the logits down; labels stay behind.

Problem: minimise (1/N) sum_j l(a sum_k o_j^k, y_j), o^k = f(x^k; theta_k) W_k, with a = 1 (sum) or 1/M (mean).

    party        o_k = f(x_k) W_k                                                      up: b x d_c
    coordinator  g = a l'(a sum_k o_k, y), row by row, the same for all                down: b x d_c     (gradient)
    party        one step of theta_k, W_k along (1/b) sum_j g_j . d(o_j^k)                               (local_step)

This is plain federated back-propagation without model splitting, the coordinator-label variant of `fdml`; with one
step and unchanged uploads both take the same steps. `local_steps` > 1 is ours: the received gradient is used again,
as FedBCD does.

The coordinator needs only the total of the logits, so a secure sum can stand in the way. Labels: g = a (softmax - y),
and the one negative entry of a row is its label. Whoever receives g holds the labels, although they were never sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from colonnade.config import Settings
from colonnade.methods._given import along_gradient, learning
from colonnade.methods._steps import local_steps, published, weighted_slope
from colonnade.methods.base import Received, Reply, State, Uploads
from colonnade.methods.fdml import PUBLISHED
from colonnade.models.cohort import Cohort
from colonnade.models.descend import descend
from colonnade.models.heads import apply_heads
from colonnade.models.optimise import SGD, AdamW, Optimiser
from colonnade.models.schema import Group, Schema
from colonnade.models.stack import Mode
from colonnade.privacy.events import LabelExposure
from colonnade.privacy.labels import Labels
from colonnade.privacy.sealed import Array, Upload
from colonnade.schedule import RoundPlan


class Fu(Settings):
    """Logits are summed; the gradient with respect to them comes back."""

    name: ClassVar[str] = "fu"
    needs_uploads: ClassVar[Literal["each", "total", "nothing"]] = "total"
    exposes: ClassVar[LabelExposure] = LabelExposure.FULL
    pools: ClassVar[bool] = False

    combine: Literal["sum", "mean"] = Field("sum", description="logits are summed (program) or averaged (publication)")
    local_steps: int = Field(1, ge=1, description="gradient steps per round with the same gradient; 1: published")
    optimiser: Optimiser = Field(AdamW(lr=5e-3, weight_decay=1e-2), description="local optimiser")

    @classmethod
    def paper(cls, dataset: str = "mnist") -> Fu:
        """The step sizes the paper's program uses for summed logits."""
        lr, steps, _ = published(PUBLISHED, dataset)
        return cls(combine="sum", local_steps=steps, optimiser=SGD(lr=lr, momentum=0.9, weight_decay=1e-3))

    def open_party(self, cohort: Cohort) -> None:
        """Each party draws its own head."""
        cohort.own_heads()

    def open_coordinator(self, schema: Schema, labels: Labels) -> tuple[State, Reply | None]:
        """Only the factor a before the sum."""
        share = 1 / len(schema.parties) if self.combine == "mean" else 1.0
        return {"share": torch.tensor(share, dtype=schema.dtype, device=schema.device)}, None

    def upload_arrays(self, schema: Schema, group: Group) -> Mapping[str, Array]:
        """What a party sends per row."""
        return {"o": Array(schema.outputs)}

    def upload(self, cohort: Cohort, x: Tensor, training: bool) -> Upload:
        """The logits, dropout off."""
        return Upload(self.computed(cohort, x, Mode.UPLOAD if training else Mode.PREDICT))

    def computed(self, cohort: Cohort, x: Tensor, mode: Mode) -> dict[str, Tensor]:
        """f(x) W of every party."""
        return {"o": apply_heads(cohort.head, cohort.encode(x, mode))}

    def coordinate(self, state: State, plan: RoundPlan, uploads: Uploads, labels: Labels) -> Reply:
        """(gradient), the same for every party since the sum treats them alike."""
        total = uploads.total("o") * state["share"]
        y = labels.targets(plan, total)
        gradient = state["share"] * weighted_slope(labels.task, total, y, labels.weights(plan.rows, y))
        return Reply({"gradient": gradient}, notes=labels.task.notes(total, y))

    def learn(self, cohort: Cohort, plan: RoundPlan, uploaded: Mapping[str, Tensor], reply: Received) -> None:
        """Back-propagate what came."""
        descend(
            cohort,
            along_gradient,  # (local_step)
            learning(cohort, plan) | {"gradient": reply.common["gradient"]},
            steps=local_steps(cohort, plan, self.local_steps),
            optimiser=self.optimiser,
            parts=(("head", "encoder"),),
            round_number=plan.number,
        )

    def predict(self, state: State, uploads: Uploads) -> Tensor:
        """a sum_k o_k."""
        return uploads.total("o") * state["share"]
