"""VIMADMM (Xie et al., Algorithm 1): one head per party at the label holder, several local steps per round.

Problem: minimise (1/N) sum_j l(sum_k f(x_j^k; theta_k) W_k, y_j) + regularisation, split by ADMM with
one auxiliary variable z_j and one dual lambda_j per row. A round, in the paper's equation names:

    party        h_k = f(x_k)                                                      up: b x d_f
    coordinator  z      = argmin l(z, y) - lambda.z + rho/2 |yhat - z|^2            (update_z)
                 lambda = lambda + rho (yhat - z)                                   (update_lambda)
                 W_k    = one SGD step, or a joint solve                            (update_W)
    party        tau steps on rho/(2b) |f(x_k) W_k - u_k|^2 + beta R(theta_k)       (update_theta)

Deviations. (1) The paper sends lambda and the residual s_k; they enter the local objective only through
u_k = s_k - lambda/rho, and u_k = v + own part with one matrix v for all parties. So one common b x d_c
matrix and the heads go down, exactly equivalent. The own part uses the embedding *as released*.
(2) `residual`: the printed residual uses the heads after their step; the paper's program uses the heads
before it, which is stable with SGD steps. (3) `damping`: each party tries to remove the whole residual,
so M alike parties over-correct M-fold; d < 1 asks for a share d with weight rho/d (1/M is Boyd's
sharing ADMM). (4) `head_update = "joint"` solves all heads at once.

Labels: after the z-step lambda = softmax(z) - y, and v carries lambda, so parties can decode every label.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from colonnade.admm.heads import joint_solve, sgd_step
from colonnade.admm.step import residuals, update_dual, update_z
from colonnade.config import Settings
from colonnade.errors import ConfigError
from colonnade.methods._convolutions import FOR_CONVOLUTIONS, LOCAL_OPTIMISER
from colonnade.methods._steps import (
    check_damping,
    embedding,
    first_heads,
    get_heads,
    local_steps,
    published,
    put_heads,
    sum_logits,
    upload_embedding,
)
from colonnade.methods.base import Received, Reply, State, Uploads
from colonnade.models.approach import Effort, approach
from colonnade.models.cohort import Cohort
from colonnade.models.heads import Head, apply_heads, dropout_keys
from colonnade.models.optimise import SGD, AdamW, Optimiser, rate_of
from colonnade.models.schema import Group, Schema
from colonnade.models.stack import Mode
from colonnade.privacy.events import LabelExposure
from colonnade.privacy.labels import Labels
from colonnade.privacy.sealed import Array, Upload
from colonnade.randomness import dropout_key
from colonnade.schedule import RoundPlan

# lr, tau, rho of the paper's experiments
PUBLISHED = {
    "mnist": (0.1, 20, 1.0),
    "cifar10": (0.008, 10, 2.0),
    "nus_wide": (0.1, 10, 2.0),
    "modelnet40": (0.05, 5, 0.5),
}


class VIMADMM(Settings):
    """One head per party at the label holder, several local steps per round (Algorithm 1)."""

    name: ClassVar[str] = "vimadmm"
    needs_uploads: ClassVar[Literal["each", "total", "nothing"]] = "each"
    exposes: ClassVar[LabelExposure] = LabelExposure.FULL
    pools: ClassVar[bool] = False
    needs_gradients: ClassVar[bool] = False
    lacking: ClassVar[bool] = True
    convolutional: ClassVar[Optimiser] = FOR_CONVOLUTIONS

    rho: float = Field(1.0, gt=0, description="weight of the agreement penalty")
    local_steps: int = Field(20, ge=1, description="gradient steps a party takes per round (tau)")
    optimiser: Optimiser = Field(AdamW(lr=1e-3, weight_decay=1e-3), description=LOCAL_OPTIMISER)
    head_update: Literal["auto", "joint", "sgd"] = Field(
        "auto", description="joint: ridge solve (ours); sgd: one step (paper); auto: joint for linear heads"
    )
    head_lr: float = Field(0.1, gt=0, description="step size of the heads, with head_update = sgd")
    beta: float = Field(5e-4, ge=0, description="weight of |W|^2 on the heads")
    kappa: float = Field(0.1, ge=0, description="pull towards the last heads, with head_update = joint")
    residual: Literal["auto", "before", "after"] = Field(
        "auto", description="heads in the residual: before their step (program), after it (print); auto: after if joint"
    )
    damping: float | None = Field(
        None,
        gt=0,
        le=1,
        description="share of the residual a party removes; 1: paper; unset: 1, or 1/sqrt(M) with sgd heads",
    )
    smoothing: float = Field(0.0, ge=0, lt=1, description="label smoothing: weight spread evenly over all classes")

    @classmethod
    def paper(cls, dataset: str = "mnist") -> VIMADMM:
        """The published settings, as the paper's program runs them."""
        lr, tau, rho = published(PUBLISHED, dataset)
        sgd = SGD(lr=lr, momentum=0.9, weight_decay=1e-3)
        heads = {"head_update": "sgd", "head_lr": lr, "beta": 5e-4, "residual": "before"}
        return cls(rho=rho, local_steps=tau, optimiser=sgd, damping=1.0, **heads)

    def open_party(self, cohort: Cohort) -> None:
        """Heads live at the coordinator: nothing to prepare."""
        if not cohort.encoder.gradients and cohort.schema.head.layers > 1:
            raise ConfigError(
                f"the local model of party {cohort.names[0]!r} has no gradients, and vimadmm can move it through "
                "linear heads only; use model.head.layers = 1, or vimadmm_j"
            )

    def open_coordinator(self, schema: Schema, labels: Labels) -> tuple[State, Reply | None]:
        """First heads, and a zero dual for every row."""
        if self.head_update == "joint" and schema.head.layers > 1:
            raise ConfigError("head_update = 'joint' solves linear heads only; use 'sgd' with model.head.layers > 1")
        if schema.head.layers == 1 and self.head_update != "sgd" and self.beta == self.kappa == 0:
            raise ConfigError(
                "beta = 0 and kappa = 0: the joint solve of the heads then has no single answer; set one of them above "
                "0, or head_update = 'sgd'"
            )
        if schema.held is not None and schema.head.layers > 1:
            raise ConfigError(
                "vimadmm leaves a party that lacks a row out of its sum only with linear heads; use "
                "model.head.layers = 1, or rows that all parties hold (Federation.matched())"
            )
        check_damping(self.damping, len(schema.parties))
        state: State = {"dual": schema.zeros(schema.rows, schema.outputs)}
        put_heads(state, first_heads(schema))
        return state, None

    def upload_arrays(self, schema: Schema, group: Group) -> Mapping[str, Array]:
        """What a party sends per row."""
        return embedding(group)

    def upload(self, cohort: Cohort, x: Tensor, training: bool) -> Upload:
        """Step (1): the embeddings."""
        return upload_embedding(cohort, x, training)

    def computed(self, cohort: Cohort, x: Tensor, mode: Mode) -> dict[str, Tensor]:
        """The embeddings."""
        return {"h": cohort.encode(x, mode)}

    def coordinate(self, state: State, plan: RoundPlan, uploads: Uploads, labels: Labels) -> Reply:
        """Steps (2) to (5)."""
        h = [group["h"] for group in uploads.groups]  # (P, B, d_f) per group
        old = get_heads(state)
        total = sum_logits([apply_heads(w, e) for w, e in zip(old, h, strict=True)])  # yhat (B, K)
        seen = labels.targets(plan, total)
        y, w = labels.task.smoothed(seen, self.smoothing), labels.weights(plan.rows, seen)
        last = state["dual"][plan.rows]
        z = update_z(total, last, y, self.rho, labels.task, w)  # (update_z)
        dual = update_dual(last, total, z, self.rho)  # (update_lambda)
        joint = self.joint(old[0])
        if joint:
            new = joint_solve(old, h, z - dual / self.rho, self.rho, self.beta, self.kappa)
        else:  # (update_W), one step
            lr = self.head_lr * rate_of(self.optimiser, plan.number)
            new = sgd_step(old, h, dual + self.rho * (total - z), lr, self.beta)
        state["dual"][plan.rows] = dual
        put_heads(state, new)
        gaps = residuals(total, z, dual)
        notes = {"primal": gaps.primal, "dual": gaps.dual, **labels.task.notes(total, y)}
        after = joint if self.residual == "auto" else self.residual == "after"
        if after:  # the printed residual: yhat once more, with the new heads
            total = sum_logits([apply_heads(w, e) for w, e in zip(new, h, strict=True)])
        v = z - total - dual / self.rho  # (def_residual), folded
        own = [{f"head.{k}": w for k, w in head.items()} for head in new]
        if not after:  # the own part needs the heads that v was made with
            own = [part | {f"before.{k}": w for k, w in head.items()} for part, head in zip(own, old, strict=True)]
        return Reply({"v": v}, tuple(own), notes)

    def learn(self, cohort: Cohort, plan: RoundPlan, uploaded: Mapping[str, Tensor], reply: Received) -> None:
        """Step (6): tau steps towards u_k = own part + d v."""
        head = {k[5:]: w for k, w in reply.own.items() if k.startswith("head.")}
        before = {k[7:]: w for k, w in reply.own.items() if k.startswith("before.")} or head
        target = apply_heads(before, uploaded["h"]) + self.share(cohort.schema) * reply.common["v"]
        keys = [dropout_key(cohort.schema.seed, party, plan.number) for party in cohort.names]
        steps = local_steps(cohort, plan, self.local_steps)
        effort = Effort(steps, self.optimiser, dropout_keys(keys, cohort.device), plan.number)
        x, held = cohort.x(plan.rows), cohort.holding(plan.rows)
        approach(cohort, x, target, self.weight(cohort.schema), effort, head, held)

    def weight(self, schema: Schema) -> float:
        """Of |f(x) W_k - u_k|^2 / (2b) at a party: rho/d."""
        return self.rho / self.share(schema)

    def joint(self, head: Head) -> bool:
        """Whether all heads are solved at once: the only exact way, and possible for linear ones."""
        return "weight.1" not in head if self.head_update == "auto" else self.head_update == "joint"

    def share(self, schema: Schema) -> float:
        """The damping in force. The joint solve has removed what alike parties would remove twice."""
        joint = schema.head.layers == 1 if self.head_update == "auto" else self.head_update == "joint"
        default = 1.0 if joint else len(schema.parties) ** -0.5
        return default if self.damping is None else self.damping

    def predict(self, state: State, uploads: Uploads) -> Tensor:
        """yhat = sum_k h_k W_k."""
        return sum_logits([apply_heads(w, g["h"]) for w, g in zip(get_heads(state), uploads.groups, strict=True)])

    def scores(self, state: State, uploads: Uploads) -> Tensor:
        """h_k W_k: what the sum is of."""
        return torch.cat([apply_heads(w, g["h"]) for w, g in zip(get_heads(state), uploads.groups, strict=True)])
