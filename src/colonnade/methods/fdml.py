"""FDML (Hu et al., 2019): parties own whole models and know the labels; only logits are exchanged.

Problem: minimise (1/N) sum_j l(a sum_k o_j^k, y_j), o^k = f(x^k; theta_k) W_k, with a = 1 (sum) or 1/M (mean).

    coordinator  before round 1: the labels of all training rows, once                down: one byte per row
    party        o_k = f(x_k) W_k                                                      up: b x d_c
    coordinator  s = sum_k o_k, the same for all                                       down: b x d_c
    party        one step of theta_k, W_k along (1/b) sum_j a l'(a s_j, y_j) . d(o_j^k)                (received)
                 or on (1/b) sum_j l(a (s_j - o_j^k + f(x_j^k) W_k), y_j)                              (fresh)

(received) is published: a party pulls s and computes its own gradient. In (fresh), ours, the others' part s - o_k
stands still, o_k as it was sent, and the party's own logits are new at every step. As long as uploads leave unchanged
and one step is taken without dropout, f(x_k) W_k = o_k and both are one. They differ where they should: several steps
follow a loss and not a line, and noise on a party's own upload does not come back to it.

Deviations. (1) The publication averages; the paper's program sums, and its step sizes are for the sum: `combine`.
(2) `gradient` = fresh and `local_steps` > 1 are ours. (3) The publication is asynchronous with bounded delay. Here that
is a schedule (order "asynchronous" with `staleness`), not the default: who is silent in a round counts with its
last upload about those rows.

The coordinator needs only the total of the logits, so a secure sum can stand in the way. Labels: every party
holds them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from colonnade.config import Settings
from colonnade.errors import ConfigError
from colonnade.methods._given import (
    OPENING,
    along_gradient,
    keep_labels,
    kept_labels,
    learning,
    loss_beside_others,
    release_labels,
)
from colonnade.methods._steps import local_steps, published, weighted_slope
from colonnade.methods.base import Received, Reply, State, Uploads
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

# lr and local steps of the paper's experiments, for the sum; there is no penalty
PUBLISHED = {
    "mnist": (0.1, 1, 0.0),
    "cifar10": (0.008, 1, 0.0),
    "nus_wide": (0.3, 1, 0.0),
    "modelnet40": (0.05, 1, 0.0),
}


class FDML(Settings):
    """Logits are summed; parties know the labels and compute their own gradient."""

    name: ClassVar[str] = "fdml"
    needs_uploads: ClassVar[Literal["each", "total", "nothing"]] = "total"
    exposes: ClassVar[LabelExposure] = LabelExposure.FULL
    pools: ClassVar[bool] = False
    lacking: ClassVar[bool] = True

    combine: Literal["sum", "mean"] = Field("sum", description="logits are summed (program) or averaged (publication)")
    gradient: Literal["fresh", "received"] = Field(
        "fresh", description="of the loss at the own logits of now (ours), or at the sum as it was received (published)"
    )
    local_steps: int = Field(1, ge=1, description="gradient steps per round; 1: published")
    optimiser: Optimiser = Field(AdamW(lr=5e-3, weight_decay=1e-2), description="local optimiser")
    bayes_after: int | None = Field(
        None,
        ge=0,
        description="rounds after which a party weighs noisy labels with what the sum says (ALIBI's Bayes step at "
        "home, ours); unset: never",
    )
    smoothing: float = Field(0.0, ge=0, lt=1, description="label smoothing: weight spread evenly over all classes")

    @classmethod
    def paper(cls, dataset: str = "mnist") -> FDML:
        """The published settings, as the paper's program runs them."""
        lr, steps, _ = published(PUBLISHED, dataset)
        sgd = SGD(lr=lr, momentum=0.9, weight_decay=1e-3)
        return cls(combine="sum", gradient="received", local_steps=steps, optimiser=sgd)

    def open_party(self, cohort: Cohort) -> None:
        """Each party draws its own head."""
        if self.bayes_after is not None and not cohort.schema.task.exclusive:
            raise ConfigError("fdml.bayes_after weighs classes of which a row has one; leave it out for this task")
        cohort.own_heads()

    def open_coordinator(self, schema: Schema, labels: Labels) -> tuple[State, Reply | None]:
        """The labels of all training rows go down once."""
        share = torch.tensor(self.share(schema), dtype=schema.dtype, device=schema.device)
        return {"share": share}, release_labels(schema, labels)

    def upload_arrays(self, schema: Schema, group: Group) -> Mapping[str, Array]:
        """What a party sends per row."""
        return {"o": Array(schema.outputs)}

    def upload(self, cohort: Cohort, x: Tensor, training: bool) -> Upload:
        """The logits, dropout off."""
        return Upload(self.computed(cohort, x, Mode.UPLOAD if training else Mode.PREDICT))

    def computed(self, cohort: Cohort, x: Tensor, mode: Mode) -> dict[str, Tensor]:
        """f(x) W of every party."""
        return {"o": cohort.silent_where_lacking(apply_heads(cohort.head, cohort.encode(x, mode)))}

    def coordinate(self, state: State, plan: RoundPlan, uploads: Uploads, labels: Labels) -> Reply:
        """The sum of the logits goes back; the targets are read for the history only."""
        total = uploads.total("o")  # s (B, K)
        y = labels.targets(plan, total)
        return Reply({"total": total}, notes=labels.task.notes(total, y))

    def learn(self, cohort: Cohort, plan: RoundPlan, uploaded: Mapping[str, Tensor], reply: Received) -> None:
        """Keep the labels of round 0; afterwards (received) or (fresh)."""
        if plan.number == OPENING:
            return keep_labels(cohort, reply)
        a, total, kept = self.share(cohort.schema), reply.common["total"], kept_labels(cohort, plan.rows)
        if self.bayes_after is not None and plan.number > self.bayes_after:
            kept["targets"] = believed(kept["targets"], a * total)
        kept["targets"] = cohort.schema.task.smoothed(kept["targets"], self.smoothing)
        inputs = learning(cohort, plan)
        if self.gradient == "received":
            slope = weighted_slope(cohort.schema.task, a * total, kept["targets"], kept.get("weights"))
            inputs["gradient"] = a * slope
        else:
            inputs |= kept | {"others": total - uploaded["o"], "share": total.new_tensor(a)}  # others (P, B, K)
        return descend(
            cohort,
            along_gradient if self.gradient == "received" else loss_beside_others,
            inputs,
            steps=local_steps(cohort, plan, self.local_steps),
            optimiser=self.optimiser,
            parts=(("head", "encoder"),),
            round_number=plan.number,
        )

    def share(self, schema: Schema) -> float:
        """The factor a before the sum."""
        return 1 / len(schema.parties) if self.combine == "mean" else 1.0

    def predict(self, state: State, uploads: Uploads) -> Tensor:
        """a sum_k o_k."""
        return uploads.total("o") * state["share"]

    def scores(self, state: State, uploads: Uploads) -> Tensor:
        """a o_k: what the sum is of."""
        return torch.cat([group["o"] for group in uploads.groups]) * state["share"]


def believed(targets: Tensor, outputs: Tensor) -> Tensor:
    """Bayes' rule (B, K): targets under a uniform prior are the evidence, the outputs' probabilities the prior."""
    weighed = targets * outputs.softmax(dim=1)
    return weighed / weighed.sum(dim=1, keepdim=True).clamp(min=torch.finfo(weighed.dtype).tiny)
