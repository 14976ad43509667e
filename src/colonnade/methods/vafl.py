"""VAFL (Chen et al., 2020): a weighted sum of the embeddings, a server model on it, gradients back.

Problem: minimise (1/N) sum_j l(sum_k a_k f(x_j^k; theta_k), y_j; theta_0) + regularisation over the server model
theta_0, the weights a_k (from 1/M) and the parties' theta_k. A round:

    party        h_k = f(x_k)                                                      up: b x d_f
    coordinator  s       = sum_k a_k h_k, with the last known h_k of who is silent      (sum)
                 theta_0 = theta_0 - eta grad_theta_0 L(s)                              (server)
                 a_k     = a_k - eta_a grad_s L . h_k                                   (weights)
                 g_k     = a_k grad_s L                                                 (gradient), down: b x d_f
    party        theta_k = theta_k - eta_k sum_j (dh_j/dtheta_k) g_j                    (local)

Synchronous if all parties upload in every round: what the VIMADMM paper compares with. The published method is
asynchronous, and differs only in its rounds: some parties upload and learn (silent_learn = false), the others'
embeddings of these rows are remembered, and count as zero before the first time. So nothing here asks who uploaded.

Deviations. (1) `gradient`: the paper's program takes all gradients from one backward pass, before the steps; "after"
takes g_k with the new theta_0 and a_k. (2) The publication perturbs after every local layer. Here `noise` does so
after the last one, at the gate, where it is counted: numbers within [-1, 1], then N(0, noise^2) in each (bounded).
Noise in layers below would change the model and no bound that we know. (3) Clipping and noise are constants to the
chain rule. (4) The default optimisers are ours.

Labels: grad_s L is W (softmax - y) / b for a linear server model, so rows of one class point one way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from colonnade.config import Settings
from colonnade.errors import ConfigError
from colonnade.methods._server import (
    apply_server,
    follow,
    get_server,
    open_server,
    server_gradients,
    step_server,
)
from colonnade.methods._steps import embedding, local_steps, published_sgd, sum_logits, upload_embedding
from colonnade.methods.base import Received, Reply, State, Uploads
from colonnade.models.cohort import Cohort
from colonnade.models.descend import descend
from colonnade.models.optimise import AdamW, Optimiser, rate_of
from colonnade.models.schema import Group, Schema
from colonnade.models.stack import Mode
from colonnade.privacy.bounded import BoundedGaussian, BoundedGaussianEvent
from colonnade.privacy.events import LabelExposure
from colonnade.privacy.gaussian import NoiseSource
from colonnade.privacy.labels import Labels
from colonnade.privacy.mechanism import Mechanism
from colonnade.privacy.sealed import Array, Upload
from colonnade.schedule import RoundPlan

# lr of the parties and the server model, local steps, momentum of the parties, in the VIMADMM paper's experiments
PUBLISHED = {
    "mnist": (0.3, 1, 0.9),
    "cifar10": (0.008, 1, 0.9),
    "nus_wide": (0.3, 1, 0.9),
    "modelnet40": (0.05, 1, 0.9),
}


class VAFL(Settings):
    """A server model on a learnt weighted sum of the embeddings; its gradient comes back, one local step per round."""

    name: ClassVar[str] = "vafl"
    needs_uploads: ClassVar[Literal["each", "total", "nothing"]] = "each"
    exposes: ClassVar[LabelExposure] = LabelExposure.FULL
    pools: ClassVar[bool] = False

    optimiser: Optimiser = Field(AdamW(lr=5e-3, weight_decay=1e-3), description="local optimiser")
    server_optimiser: Optimiser = Field(AdamW(lr=3e-2, weight_decay=1e-3), description="optimiser of the server model")
    weight_lr: float = Field(0.01, ge=0, description="step size of the parties' weights in the sum; 0: all stay 1/M")
    gradient: Literal["before", "after"] = Field(
        "before", description="the gradient sent down is of server model and weights before their step, or after"
    )

    smoothing: float = Field(0.0, ge=0, lt=1, description="label smoothing: weight spread evenly over all classes")
    noise: float = Field(
        0.0, ge=0, allow_inf_nan=False, description="its own noise on embeddings, which are kept in [-1, 1]; 0: neither"
    )

    @property
    def brings(self) -> str:
        """The name of its own noise."""
        return BoundedGaussianEvent.kind.name if self.noise else ""

    def mechanism(self, source: NoiseSource, schema: Schema) -> Mechanism | None:
        """(bounded): what the gate has to put before every upload of training."""
        return BoundedGaussian(1.0, self.noise, schema.groups[0].width, source) if self.noise else None

    @classmethod
    def paper(cls, dataset: str = "mnist") -> VAFL:
        """The settings of the VIMADMM paper's comparison: synchronous, only the parties have momentum."""
        _, local, server = published_sgd(PUBLISHED, dataset)
        return cls(optimiser=local, server_optimiser=server, weight_lr=0.01)

    def open_party(self, cohort: Cohort) -> None:
        """The server model lives at the coordinator: nothing to prepare."""

    def open_coordinator(self, schema: Schema, labels: Labels) -> tuple[State, Reply | None]:
        """A first server model, and equal weights."""
        widths = {group.width for group in schema.groups}
        if len(widths) > 1:
            raise ConfigError(
                f"vafl adds embeddings up, so all must be equally wide; got widths {sorted(widths)}; "
                "give all encoders one width, or use split_learning"
            )
        state: State = {
            f"weight.{g}": schema.zeros(len(group.parties)) + 1 / len(schema.parties)
            for g, group in enumerate(schema.groups)
        }
        open_server(state, schema, self.server_optimiser, width=widths.pop())
        return state, None

    def upload_arrays(self, schema: Schema, group: Group) -> Mapping[str, Array]:
        """What a party sends per row."""
        return embedding(group)

    def upload(self, cohort: Cohort, x: Tensor, training: bool) -> Upload:
        """The embeddings."""
        return upload_embedding(cohort, x, training)

    def computed(self, cohort: Cohort, x: Tensor, mode: Mode) -> dict[str, Tensor]:
        """The embeddings."""
        return {"h": cohort.encode(x, mode)}

    def coordinate(self, state: State, plan: RoundPlan, uploads: Uploads, labels: Labels) -> Reply:
        """(sum), (server), (weights), (gradient)."""
        h, a = [group["h"] for group in uploads.groups], _weights(state)  # (P, B, d_f) and (P,) per group
        s = _weighted(a, h)  # (sum)
        logits = apply_server(get_server(state), s)
        seen = labels.targets(plan, logits)
        y, weights = labels.task.smoothed(seen, self.smoothing), labels.weights(plan.rows, seen)
        slopes, slope = server_gradients(state, s, y, labels.task, plan.number, weights)
        step_server(state, slopes, self.server_optimiser, plan.number)  # (server)
        lr = self.weight_lr * rate_of(self.server_optimiser, plan.number)
        new = [w - lr * torch.einsum("bd,pbd->p", slope, e) for w, e in zip(a, h, strict=True)]  # (weights)
        state |= {f"weight.{g}": w for g, w in enumerate(new)}
        if self.gradient == "after":
            a, s = new, _weighted(new, h)
            _, slope = server_gradients(state, s, y, labels.task, plan.number, weights)
        own = tuple({"slope": w[:, None, None] * slope} for w in a)  # (gradient)
        return Reply(own=own, notes=labels.task.notes(logits, y))

    def learn(self, cohort: Cohort, plan: RoundPlan, uploaded: Mapping[str, Tensor], reply: Received) -> None:
        """One step (local)."""
        inputs = {"x": cohort.x(plan.rows), "slope": reply.own["slope"]}
        steps = local_steps(cohort, plan, 1)
        descend(cohort, follow, inputs, steps=steps, optimiser=self.optimiser, round_number=plan.number)

    def predict(self, state: State, uploads: Uploads) -> Tensor:
        """The server model on the weighted sum."""
        return apply_server(get_server(state), _weighted(_weights(state), [group["h"] for group in uploads.groups]))


def _weights(state: Mapping[str, Tensor]) -> list[Tensor]:
    """a_k (P,) in group order."""
    return [state[f"weight.{g}"] for g in range(sum(name.startswith("weight.") for name in state))]


def _weighted(weights: Sequence[Tensor], h: Sequence[Tensor]) -> Tensor:
    """sum_k a_k h_k, (B, d_f)."""
    return sum_logits([w[:, None, None] * e for w, e in zip(weights, h, strict=True)])
