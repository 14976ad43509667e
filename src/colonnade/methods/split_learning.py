"""Split Learning (Vepakomma et al., 2018), as Algorithm 3 of the VIMADMM paper: gradients come back, one step a round.

Problem: minimise (1/N) sum_j l([f(x_j^1; theta_1), ..., f(x_j^M; theta_M)], y_j; theta_0) + regularisation, where the
server model theta_0 reads all embeddings side by side. A round, in the paper's equation names:

    party        h_k = f(x_k)                                                      up: b x d_f
    coordinator  theta_0 = theta_0 - eta grad_theta_0 L(theta_0)                   (update_W_sdg)
                 g_k     = grad_h_k L(theta_0)                                     (compute_gradient_sgd); down: b x d_f
    party        theta_k = theta_k - eta_k sum_j (dh_j/dtheta_k) g_j               (update_theta_sgd)

L is the mean over the b rows, so g_k carries the 1/b. Deviations. (1) `gradient`: Algorithm 3 prints g_k of the
server model *after* its step; the paper's program takes both gradients from one backward pass, *before* the step.
(2) The default optimisers are ours. (3) g_k is the slope at the embedding as released: clipping and noise are
constants to the chain rule.

Labels: for a linear server model the row of g_k is W_k (softmax - y) / b, so rows of one class point one way; a party
sorts its rows by label without knowing W_k. Nothing bounds this but a label mechanism.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor

from colonnade.config import Settings
from colonnade.methods._server import (
    follow,
    open_server,
    predict_server,
    train_and_reply,
)
from colonnade.methods._steps import embedding, local_steps, published_sgd, upload_embedding
from colonnade.methods.base import Received, Reply, State, Uploads
from colonnade.models.cohort import Cohort
from colonnade.models.descend import descend
from colonnade.models.optimise import AdamW, Optimiser
from colonnade.models.schema import Group, Schema
from colonnade.models.stack import Mode
from colonnade.privacy.events import LabelExposure
from colonnade.privacy.labels import Labels
from colonnade.privacy.sealed import Array, Upload
from colonnade.schedule import RoundPlan

# lr of the parties and the server model, local steps, momentum of the parties, in the paper's experiments
PUBLISHED = {
    "mnist": (0.3, 1, 0.9),
    "cifar10": (0.008, 1, 0.9),
    "nus_wide": (0.5, 1, 0.9),
    "modelnet40": (0.05, 1, 0.9),
}


class SplitLearning(Settings):
    """A server model on all embeddings side by side; its gradient comes back, one local step per round."""

    name: ClassVar[str] = "split_learning"
    needs_uploads: ClassVar[Literal["each", "total", "nothing"]] = "each"
    exposes: ClassVar[LabelExposure] = LabelExposure.FULL
    pools: ClassVar[bool] = False

    optimiser: Optimiser = Field(AdamW(lr=5e-3, weight_decay=1e-3), description="local optimiser")
    server_optimiser: Optimiser = Field(AdamW(lr=1e-2, weight_decay=1e-3), description="optimiser of the server model")
    gradient: Literal["before", "after"] = Field(
        "before",
        description="the gradient sent down is of the server model before its step (program), or after (print)",
    )
    smoothing: float = Field(0.0, ge=0, lt=1, description="label smoothing: weight spread evenly over all classes")

    @classmethod
    def paper(cls, dataset: str = "mnist") -> SplitLearning:
        """The published settings, as the paper's program runs them: only the parties have momentum."""
        _, local, server = published_sgd(PUBLISHED, dataset)
        return cls(optimiser=local, server_optimiser=server)

    def open_party(self, cohort: Cohort) -> None:
        """The server model lives at the coordinator: nothing to prepare."""

    def open_coordinator(self, schema: Schema, labels: Labels) -> tuple[State, Reply | None]:
        """A first server model."""
        state: State = {}
        open_server(state, schema, self.server_optimiser)
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
        """Steps (2) and (3): (update_W_sdg), (compute_gradient_sgd)."""
        after = self.gradient == "after"
        return train_and_reply(state, plan, uploads, labels, self.server_optimiser, after, self.smoothing)

    def learn(self, cohort: Cohort, plan: RoundPlan, uploaded: Mapping[str, Tensor], reply: Received) -> None:
        """Step (4): one step (update_theta_sgd)."""
        inputs = {"x": cohort.x(plan.rows), "slope": reply.own["slope"]}
        steps = local_steps(cohort, plan, 1)
        descend(cohort, follow, inputs, steps=steps, optimiser=self.optimiser, round_number=plan.number)

    def predict(self, state: State, uploads: Uploads) -> Tensor:
        """The server model on all embeddings."""
        return predict_server(state, uploads)
