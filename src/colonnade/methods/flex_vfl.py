"""Flex-VFL (Castiglia, Wang, Patterson 2022): every party takes as many local steps as its speed allows.

Problem: as in Split Learning, minimise (1/N) sum_j l([h^1_j, ..., h^M_j], y_j; theta_0), h^k = f(x^k; theta_k). Parties
hold the labels, so a party that has the others' embeddings and theta_0 can compute its own gradient at every step.

    coordinator  before round 1: the labels of all training rows, once                 down: one byte per row
    party        h_k = f(x_k)                                                          up: b x d_f
    coordinator  Phi = [h_1, ..., h_M] and theta_0, a snapshot for all                 down: b x M d_f + |theta_0|
                 Q_0 steps of theta_0 on l(Phi, y; theta_0)                            (server)
    party        Q_k steps of theta_k on l(Phi with f(x_k) in place of h_k, y; theta_0)     (local)
                 Q_k = steps until the time-out, eta_k Q_k = eta Q for all                  (pace)

Deviations. (1) The publication measures speeds; here they are those of the schedule, so that runs repeat: a party of
speed s takes floor(s Q) steps, at least one, while one of speed 1 takes Q. (2) The server model takes Q steps: speed
1. (3) The default optimisers are ours; (pace) then holds for their step size.

Privacy: *all* embeddings reach *every* party, not only the coordinator. Labels: every party holds them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor

from colonnade.config import Settings
from colonnade.methods._given import OPENING, keep_labels, release_labels
from colonnade.methods._server import get_server, join, open_server, predict_server
from colonnade.methods._snapshot import loss_beside_snapshot, paced, paces, snapshot, train_beside
from colonnade.methods._steps import embedding, published_sgd, upload_embedding
from colonnade.methods.base import Received, Reply, State, Uploads
from colonnade.models.cohort import Cohort
from colonnade.models.optimise import AdamW, Optimiser
from colonnade.models.schema import Group, Schema
from colonnade.models.stack import Mode
from colonnade.privacy.events import LabelExposure
from colonnade.privacy.labels import Labels
from colonnade.privacy.sealed import Array, Upload
from colonnade.schedule import RoundPlan

# lr, Q, momentum. The VIMADMM paper did not run this method; these are its FedBCD's, the nearest relative
NEAREST = {
    "mnist": (0.01, 10, 0.9),
    "cifar10": (0.005, 10, 0.9),
    "nus_wide": (0.02, 10, 0.9),
    "modelnet40": (0.01, 10, 0.9),
}


class FlexVFL(Settings):
    """Parties hold labels and a snapshot of all embeddings, and take as many local steps as their speed allows."""

    name: ClassVar[str] = "flex_vfl"
    needs_uploads: ClassVar[Literal["each", "total", "nothing"]] = "each"
    exposes: ClassVar[LabelExposure] = LabelExposure.FULL
    pools: ClassVar[bool] = False

    local_steps: int = Field(
        5, ge=1, description="the time-out of a round: gradient steps that a party of speed 1 takes in it (Q)"
    )
    optimiser: Optimiser = Field(
        AdamW(lr=1e-3, weight_decay=1e-3), description="local optimiser; its step size is for Q steps, others scale it"
    )
    server_optimiser: Optimiser = Field(AdamW(lr=1e-3, weight_decay=1e-3), description="optimiser of the server model")

    @classmethod
    def paper(cls, dataset: str = "mnist") -> FlexVFL:
        """Plain SGD as in the publication, with the step sizes that the VIMADMM paper has for FedBCD."""
        steps, local, server = published_sgd(NEAREST, dataset)
        return cls(local_steps=steps, optimiser=local, server_optimiser=server)

    def open_party(self, cohort: Cohort) -> None:
        """The server model lives at the coordinator: nothing to prepare."""

    def open_coordinator(self, schema: Schema, labels: Labels) -> tuple[State, Reply | None]:
        """A first server model; the labels of all training rows go down once."""
        state: State = {}
        open_server(state, schema, self.server_optimiser)
        return state, release_labels(schema, labels)

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
        """The snapshot as it is now goes down; then the server model takes its own steps."""
        everyone = join([group["h"] for group in uploads.groups])  # Phi (B, M d_f)
        sent = {f"server.{k}": w for k, w in get_server(state).items()}
        notes = train_beside(state, everyone, plan, labels, self.server_optimiser, self.local_steps)  # (server)
        return Reply({"everyone": everyone, **sent}, notes=notes, steps=paces(plan, self.local_steps))  # (pace)

    def learn(self, cohort: Cohort, plan: RoundPlan, uploaded: Mapping[str, Tensor], reply: Received) -> None:
        """Keep the labels of round 0; afterwards Q_k steps against the snapshot."""
        if plan.number == OPENING:
            return keep_labels(cohort, reply)
        server = {k.removeprefix("server."): w for k, w in reply.common.items() if k.startswith("server.")}
        inputs = snapshot(cohort, plan, server, reply.common["everyone"])
        chosen = dict(plan.steps)
        steps = [chosen.get(party, self.local_steps) for party in cohort.names]
        return paced(
            cohort, loss_beside_snapshot, inputs, steps, self.optimiser, self.local_steps, plan.number
        )  # (local)

    def predict(self, state: State, uploads: Uploads) -> Tensor:
        """The server model on all embeddings."""
        return predict_server(state, uploads)
