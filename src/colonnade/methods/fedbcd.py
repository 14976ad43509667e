"""FedBCD (Liu et al., 2022): Split Learning with Q local steps that use the received gradient again and again.

    party        h_k = f(x_k)                                                      up: b x d_f
    coordinator  g_k = grad_h_k L([h_1, ..., h_M], y; theta_0), one step of theta_0     down: b x d_f     (partial)
    party        Q times: theta_k = theta_k - eta sum_j (df(x_j)/dtheta_k) g_j + pull   (stale), g_k held, f recomputed

The pull, if any, is the gradient of mu |theta_k - anchor|^2 towards the parameters the round began with: it bounds how
far a stale gradient is followed (proximal).

Parallel (FedBCD-p) and sequential (FedBCD-s, block coordinate descent) differ in their rounds only: in order "together"
all parties take their Q steps at once, in order "sequential" the parties follow each other on one batch.

Deviations. (1) In sequence a party that has not had its round with a batch yet counts with its upload about these
rows an epoch ago, zero before the first time. (2) The server model takes one step per round, as in the VIMADMM paper's
program; the publication lets the label holder take Q, too. (3) `gradient` before or after the server's step, and
clipping and noise as constants, as in Split Learning. (4) The default optimisers are ours.

Labels: as in Split Learning, the rows of g_k point one way per class.
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

# lr of the parties and the server model, Q, momentum of the parties. Q is the tau the VIMADMM paper names for its
# communication costs; its program runs 5 and 10 as well
PUBLISHED = {
    "mnist": (0.01, 20, 0.9),
    "cifar10": (0.005, 30, 0.9),
    "nus_wide": (0.02, 20, 0.9),
    "modelnet40": (0.01, 5, 0.9),
}


class FedBCD(Settings):
    """Split Learning with several local steps per round along the same, stale gradient."""

    name: ClassVar[str] = "fedbcd"
    needs_uploads: ClassVar[Literal["each", "total", "nothing"]] = "each"
    exposes: ClassVar[LabelExposure] = LabelExposure.FULL
    pools: ClassVar[bool] = False

    local_steps: int = Field(5, ge=1, description="gradient steps a party takes per round along one gradient (Q)")
    optimiser: Optimiser = Field(AdamW(lr=1e-3, weight_decay=1e-3), description="local optimiser")
    server_optimiser: Optimiser = Field(AdamW(lr=1e-2, weight_decay=1e-3), description="optimiser of the server model")
    proximal: float = Field(
        0.0, ge=0, description="weight of |theta - its value at the round's start|^2; published 0.1"
    )
    gradient: Literal["before", "after"] = Field(
        "before", description="the gradient sent down is of the server model before its step (program), or after"
    )
    smoothing: float = Field(0.0, ge=0, lt=1, description="label smoothing: weight spread evenly over all classes")

    @classmethod
    def paper(cls, dataset: str = "mnist") -> FedBCD:
        """The published settings, as the VIMADMM paper's program runs them: only the parties have momentum."""
        steps, local, server = published_sgd(PUBLISHED, dataset)
        return cls(local_steps=steps, optimiser=local, server_optimiser=server)

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
        """The embeddings."""
        return upload_embedding(cohort, x, training)

    def computed(self, cohort: Cohort, x: Tensor, mode: Mode) -> dict[str, Tensor]:
        """The embeddings."""
        return {"h": cohort.encode(x, mode)}

    def coordinate(self, state: State, plan: RoundPlan, uploads: Uploads, labels: Labels) -> Reply:
        """One step of the server model, and the gradient of every party (partial)."""
        after = self.gradient == "after"
        return train_and_reply(state, plan, uploads, labels, self.server_optimiser, after, self.smoothing)  # (partial)

    def learn(self, cohort: Cohort, plan: RoundPlan, uploaded: Mapping[str, Tensor], reply: Received) -> None:
        """Q steps along the gradient that was received once."""
        inputs = {"x": cohort.x(plan.rows), "slope": reply.own["slope"]}
        if self.proximal:  # as inputs, since a captured step sees nothing else
            anchors = enumerate(cohort.trained(("encoder",)))
            inputs |= {f"anchor.{i}": value.detach().clone() for i, value in anchors}
        steps = local_steps(cohort, plan, self.local_steps)
        descend(cohort, self.objective, inputs, steps=steps, optimiser=self.optimiser, round_number=plan.number)

    def objective(self, cohort: Cohort, inputs: Mapping[str, Tensor]) -> Tensor:
        """(stale), and with a weight (proximal)."""
        value = follow(cohort, inputs)
        if self.proximal:
            gaps = (p - inputs[f"anchor.{i}"] for i, p in enumerate(cohort.trained(("encoder",))))
            value = value + self.proximal * sum(gap.square().sum() for gap in gaps)
        return value

    def predict(self, state: State, uploads: Uploads) -> Tensor:
        """The server model on all embeddings."""
        return predict_server(state, uploads)
