"""C-VFL (Castiglia, Das, Wang, Patterson 2022): Q local steps against a snapshot, and all that travels is compressed.

Problem and parties as in Flex-VFL, with equal Q. C is a compressor of `_compress.py`: codes of a few bits per value.

    coordinator  before round 1: the labels of all training rows, once                  down: one byte per row
    party        C(h_k), h_k = f(x_k)                                                   up: b (d_f log2(L)/8 + 5) bytes
    coordinator  Phi = [C(h_1), ..., C(h_M)] and C(theta_0), a snapshot for all          down: M times that + C(theta_0)
                 Q steps of theta_0 on l(Phi, y; theta_0)                                (server)
    party        Q steps of theta_k on l(Phi with f(x_k) in place of C(h_k), y; C(theta_0))     (local)

A party's own embedding is fresh and exact; the others' and the server model are as the compressor left them, and the
server's own steps use its exact parameters. With error feedback the coordinator adds to theta_0, before it compresses
it, what the last compression lost: C(theta_0 + e), e = theta_0 + e - C(theta_0 + e).           (feedback)

Deviations. (1) The publication scales embeddings into [0, 1]; here each row is scaled by its largest absolute value,
which travels with it (4 bytes), and so does the salt of its dither (1 byte). (2) Evaluation and prediction uploads are
compressed like all others: the score is that of the system as it would be used. (3) Error feedback is ours, and is for
the server model only: an embedding belongs to a row, so its error could be repaid only when the row comes again.
(4) The default optimisers are ours.

Privacy: *all* embeddings, compressed, reach *every* party; compressing is no protection. Labels: all hold them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from colonnade.config import Settings
from colonnade.methods._compress import Kind, Packed, arrays, compress, expand, first_salt, shared_key
from colonnade.methods._given import OPENING, keep_labels, release_labels
from colonnade.methods._server import apply_server, get_server, join, open_server
from colonnade.methods._snapshot import loss_beside_snapshot, snapshot, train_beside
from colonnade.methods._steps import local_steps, published_sgd
from colonnade.methods.base import Received, Reply, State, Uploads
from colonnade.models.cohort import Cohort
from colonnade.models.descend import descend
from colonnade.models.heads import dropout_keys
from colonnade.models.optimise import AdamW, Optimiser
from colonnade.models.schema import Group, Schema
from colonnade.models.stack import Mode
from colonnade.privacy.events import LabelExposure
from colonnade.privacy.labels import Labels
from colonnade.privacy.sealed import Array, Upload
from colonnade.schedule import RoundPlan

# lr, Q, momentum. Q is the publication's; the VIMADMM paper did not run this method: step sizes are its FedBCD's
NEAREST = {
    "mnist": (0.01, 10, 0.9),
    "cifar10": (0.005, 10, 0.9),
    "nus_wide": (0.02, 10, 0.9),
    "modelnet40": (0.01, 10, 0.9),
}


class CVFL(Settings):
    """Flex-VFL with equal local steps, and embeddings and server model compressed to a few bits per number."""

    name: ClassVar[str] = "c_vfl"
    needs_uploads: ClassVar[Literal["each", "total", "nothing"]] = "each"
    exposes: ClassVar[LabelExposure] = LabelExposure.FULL
    pools: ClassVar[bool] = False
    packs: ClassVar[bool] = True  # uploads are whole numbers: nobody else may round them

    local_steps: int = Field(5, ge=1, description="gradient steps of a party, and of the server model, per round (Q)")
    compressor: Kind = Field(
        "scalar", description="scalar: L levels per number; lattice: L x L points per pair; topk: the largest ones"
    )
    bits: int = Field(4, ge=2, le=8, description="bits per number, L = 2^bits levels; topk keeps bits/32 of them")
    error_feedback: bool = Field(False, description="repay what compressing the server model lost in the next round")
    optimiser: Optimiser = Field(AdamW(lr=1e-3, weight_decay=1e-3), description="local optimiser")
    server_optimiser: Optimiser = Field(AdamW(lr=1e-3, weight_decay=1e-3), description="optimiser of the server model")

    @classmethod
    def paper(cls, dataset: str = "mnist") -> CVFL:
        """Plain SGD and Q = 10 as in the publication, with the step sizes that the VIMADMM paper has for FedBCD."""
        steps, local, server = published_sgd(NEAREST, dataset)
        return cls(local_steps=steps, optimiser=local, server_optimiser=server)

    def open_party(self, cohort: Cohort) -> None:
        """Count the messages: each has a dither of its own."""
        cohort.memory["messages"] = torch.zeros(len(cohort.names), dtype=torch.int64, device=cohort.device)

    def open_coordinator(self, schema: Schema, labels: Labels) -> tuple[State, Reply | None]:
        """A first server model, and what decoding needs to know."""
        state: State = {"dither": torch.tensor(shared_key(schema.seed), device=schema.device)}
        state |= {f"width.{g}": torch.tensor(group.width) for g, group in enumerate(schema.groups)}
        open_server(state, schema, self.server_optimiser)
        if self.error_feedback:
            state |= {f"lost.{k}": torch.zeros_like(w) for k, w in get_server(state).items()}
        return state, release_labels(schema, labels)

    def upload_arrays(self, schema: Schema, group: Group) -> Mapping[str, Array]:
        """A compressed embedding per row."""
        return arrays(self.compressor, 2**self.bits, group.width)

    def upload(self, cohort: Cohort, x: Tensor, training: bool) -> Upload:
        """C(h_k)."""
        s = cohort.schema
        h = cohort.encode(x, Mode.UPLOAD if training else Mode.PREDICT)
        keys = dropout_keys([shared_key(s.seed, party) for party in cohort.names], cohort.device)
        if training:
            salt = first_salt(h, keys, cohort.memory["messages"])
        else:  # one for all rows: a row is predicted alike wherever it stands, and by a saved model
            salt = first_salt(h[:, :1], keys, torch.zeros_like(cohort.memory["messages"])).repeat(1, h.shape[1], 1)
        key = torch.tensor(shared_key(s.seed), device=cohort.device)
        return Upload(compress(self.compressor, 2**self.bits, h, salt, key))

    def coordinate(self, state: State, plan: RoundPlan, uploads: Uploads, labels: Labels) -> Reply:
        """The snapshot as it is now goes down, compressed; then the server model takes its own steps."""
        down = {f"{k}.{g}": join([part]) for g, group in enumerate(uploads.groups) for k, part in group.items()}
        for name, weight in get_server(state).items():
            down |= {f"{k}.server.{name}": part for k, part in self.packed_server(state, name, weight, plan).items()}
        notes = train_beside(state, self.uploads(state, uploads), plan, labels, self.server_optimiser, self.local_steps)
        return Reply(down, notes=notes)  # (server) was the line before

    def packed_server(self, state: State, name: str, weight: Tensor, plan: RoundPlan) -> Packed:
        """C(theta_0), one tensor of it as one vector; with what was lost last time (feedback)."""
        wanted = weight + state[f"lost.{name}"] if self.error_feedback else weight
        salt = torch.full((1, 1), plan.number % 256, dtype=torch.uint8, device=weight.device)
        packed = compress(self.compressor, 2**self.bits, wanted.reshape(1, -1), salt, state["dither"])
        if self.error_feedback:
            read = expand(self.compressor, 2**self.bits, packed, weight.numel(), state["dither"], weight.dtype)
            state[f"lost.{name}"] = wanted - read.view_as(weight)
        return packed

    def learn(self, cohort: Cohort, plan: RoundPlan, uploaded: Mapping[str, Tensor], reply: Received) -> None:
        """Keep the labels of round 0; afterwards Q steps against the snapshot."""
        if plan.number == OPENING:
            return keep_labels(cohort, reply)
        cohort.memory["messages"] += 1
        server, everyone = self.read(cohort.schema, reply.common)
        inputs = snapshot(cohort, plan, server, everyone)
        steps = local_steps(cohort, plan, self.local_steps)
        return descend(
            cohort, loss_beside_snapshot, inputs, steps=steps, optimiser=self.optimiser, round_number=plan.number
        )  # (local)

    def read(self, schema: Schema, common: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], Tensor]:
        """The server model and all embeddings side by side, as the compressor left them."""
        key = torch.tensor(shared_key(schema.seed), device=schema.device)
        parts = []
        for g, group in enumerate(schema.groups):
            packed = {k: common[f"{k}.{g}"] for k in arrays(self.compressor, 2**self.bits, group.width)}
            each = {k: v.unflatten(1, (len(group.parties), -1)) for k, v in packed.items()}  # (B, P, bytes)
            parts.append(expand(self.compressor, 2**self.bits, each, group.width, key, schema.dtype).transpose(0, 1))
        return self.read_server(schema, common, key), join(parts)

    def read_server(self, schema: Schema, common: Mapping[str, Tensor], key: Tensor) -> dict[str, Tensor]:
        """C(theta_0) in its own shapes."""
        wide, last = sum(len(g.parties) * g.width for g in schema.groups), schema.head.layers - 1
        server = {}
        for layer in range(last + 1):
            out = schema.outputs if layer == last else wide
            shapes = {f"weight.{layer}": (1, wide, out), f"bias.{layer}": (1, 1, out)}
            for name, shape in list(shapes.items())[: 1 if last == 0 else 2]:
                size = shape[1] * shape[2]
                packed = {k: common[f"{k}.server.{name}"] for k in arrays(self.compressor, 2**self.bits, size)}
                server[name] = expand(self.compressor, 2**self.bits, packed, size, key, schema.dtype).view(shape)
        return server

    def uploads(self, state: State, uploads: Uploads) -> Tensor:
        """Phi: all embeddings side by side, decoded."""
        dtype, key = state["server.weight.0"].dtype, state["dither"]
        widths = [int(state[f"width.{g}"]) for g in range(len(uploads.groups))]
        pairs = zip(uploads.groups, widths, strict=True)
        return join([expand(self.compressor, 2**self.bits, group, width, key, dtype) for group, width in pairs])

    def predict(self, state: State, uploads: Uploads) -> Tensor:
        """The server model on all embeddings, decoded."""
        return apply_server(get_server(state), self.uploads(state, uploads))
