"""CELU-VFL (Fu et al., VLDB 2022): between two exchanges both sides go on training on exchanges they have cached.

Problem: as in Split Learning. Each side keeps its W most recent exchanges: rows, embeddings, derivatives, use counts.

    party        h_k = f(x_k)                                                       up: b x d_f
    coordinator  g_k = grad_h_k L(h, y; theta_0), one step of theta_0               (exact); down: b x d_f
    party        one step along g_k                                                 (exact)
    both         steps 2 to Q: the next cached exchange, round-robin, used at most R times     (cached)
      party        h'_k = f(x_k) of the cached rows now, w_j = cos(h'_kj, h_kj), step along w_j g_kj      (weight)
      coordinator  g' = grad_h L now at the cached embeddings, w_j = cos(g'_j, g_j), step on sum_j w_j l_j    (weight)
                   w_j = 0 where the angle is above 60 degrees: too stale to be trusted

Deviations. (1) The publication has two parties, of which one holds the labels and columns of its own; *M parties is an
extension of ours*: each party keeps a cache of its own, and the coordinator one over all embeddings side by side, whose
weight compares the derivatives of all parties together. (2) In the publication the steps fill the time an exchange
takes; here there are Q of them, the exact one included. More than R find nothing left to use. (3) Slots
are round numbers modulo W: a party that sat out rounds has fewer entries. (4) `h_k` is the embedding as released: under
strong noise no fresh embedding resembles it, all weights are 0, and what is left is Split Learning. (5) The default
optimisers are ours.

Labels: as in Split Learning, the rows of g_k point one way per class.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from colonnade.config import Settings
from colonnade.federation import Task
from colonnade.methods._server import (
    apart,
    apply_server,
    follow,
    get_server,
    join,
    open_server,
    predict_server,
    server_gradients,
    step_server,
)
from colonnade.methods._steps import embedding, local_steps, published_sgd, task_loss, upload_embedding
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

# lr, Q, momentum. The VIMADMM paper did not run this method; these are its FedBCD's, the nearest relative
NEAREST = {
    "mnist": (0.01, 5, 0.9),
    "cifar10": (0.005, 5, 0.9),
    "nus_wide": (0.02, 5, 0.9),
    "modelnet40": (0.01, 5, 0.9),
}


class CELUVFL(Settings):
    """Split Learning that trains on cached exchanges between two real ones, weighted by how stale they are."""

    name: ClassVar[str] = "celu_vfl"
    needs_uploads: ClassVar[Literal["each", "total", "nothing"]] = "each"
    exposes: ClassVar[LabelExposure] = LabelExposure.FULL
    pools: ClassVar[bool] = False

    local_steps: int = Field(4, ge=1, description="gradient steps per exchange, the first on the exchange itself (Q)")
    cache: int = Field(5, ge=1, description="exchanges that each side keeps (W)")
    uses: int = Field(5, ge=1, description="how often an exchange is used at most, the first time included (R)")
    angle: float = Field(60.0, gt=0, le=90, description="degrees above which a cached row is too stale to count")
    optimiser: Optimiser = Field(AdamW(lr=2e-3, weight_decay=1e-3), description="local optimiser")
    server_optimiser: Optimiser = Field(AdamW(lr=2e-3, weight_decay=1e-3), description="optimiser of the server model")

    @classmethod
    def paper(cls, dataset: str = "mnist") -> CELUVFL:
        """W = R = 5 and 60 degrees as published, with the step sizes that the VIMADMM paper has for FedBCD."""
        steps, local, server = published_sgd(NEAREST, dataset)
        return cls(local_steps=steps, optimiser=local, server_optimiser=server)

    def open_party(self, cohort: Cohort) -> None:
        """An empty cache."""
        cohort.memory["last"] = torch.zeros(len(cohort.names), dtype=torch.int64, device=cohort.device)

    def open_coordinator(self, schema: Schema, labels: Labels) -> tuple[State, Reply | None]:
        """A first server model, and an empty cache."""
        state: State = {"last": torch.zeros(1, dtype=torch.int64, device=schema.device)}
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
        """(exact): one step and the derivatives; then (cached) steps of the server model."""
        h = [group["h"] for group in uploads.groups]  # (P, B, d_f) per group
        x = join(h)
        logits = apply_server(get_server(state), x)
        targets = labels.targets(plan, logits)
        weights = labels.weights(plan.rows, targets)
        slopes, slope = server_gradients(state, x, targets, labels.task, plan.number, weights)
        step_server(state, slopes, self.server_optimiser, plan.number)
        kept = {"x": x[None], "targets": targets[None], "slope": slope[None]}
        if weights is not None:
            kept["weights"] = weights[None]
        remember(state, plan.number, self.cache, kept, [1])
        for _ in range(1, self.local_steps):
            for entry in following(state, self.cache, self.uses, [True]):
                if entry is not None:
                    slopes = self.weighted(state, entry, labels.task)
                    step_server(state, slopes, self.server_optimiser, plan.number)
        own = tuple({"slope": part} for part in apart(slope, h))
        return Reply(own=own, notes=labels.task.notes(logits, targets))

    def weighted(self, state: State, entry: str, task: Task) -> dict[str, Tensor]:
        """Gradients of sum_j w_j l_j / b, w by the derivatives: w multiplies the slope of the loss in the logits."""
        x, targets, slope, number = (state[f"{entry}.{k}"][0] for k in ("x", "targets", "slope", "number"))
        own = state[f"{entry}.weights"][0] if f"{entry}.weights" in state else None
        drop = float(state["drop.rate"]) if "drop.rate" in state else 0.0
        with torch.enable_grad():
            model = {k: v.detach().requires_grad_() for k, v in get_server(state).items()}
            at = x.detach().requires_grad_()
            logits = apply_heads(model, at[None], drop, state.get("drop.key"), number)  # the dropout of that exchange
            (pull,) = torch.autograd.grad(task_loss(task, logits, targets, own), logits, retain_graph=True)
            (fresh,) = torch.autograd.grad(logits, at, pull, retain_graph=True)
            weight = trusted(fresh, slope, self.angle)  # (weight)
            slopes = torch.autograd.grad(logits, list(model.values()), pull * weight)
        return dict(zip(model, slopes, strict=True))

    def learn(self, cohort: Cohort, plan: RoundPlan, uploaded: Mapping[str, Tensor], reply: Received) -> None:
        """(exact), then (cached) steps, each party on the next exchange of its own cache."""
        steps = local_steps(cohort, plan, self.local_steps)
        counts = [steps] * len(cohort.names) if isinstance(steps, int) else steps
        slope = reply.own["slope"]
        inputs = {"x": cohort.x(plan.rows), "slope": slope}
        first = [min(1, count) for count in counts]
        descend(cohort, follow, inputs, steps=first, optimiser=self.optimiser, round_number=plan.number)
        rows = plan.rows.to(cohort.device).expand(len(cohort.names), -1)
        remember(cohort.memory, plan.number, self.cache, {"rows": rows, "sent": uploaded["h"], "slope": slope}, first)
        for number in range(1, max(counts)):
            chosen = following(cohort.memory, self.cache, self.uses, [count > number for count in counts])
            for entry in sorted({e for e in chosen if e is not None}):  # one, unless somebody sat out
                kept = {k: cohort.memory[f"{entry}.{k}"] for k in ("rows", "sent", "slope")}
                inputs = {"x": cohort.x_of_each(kept["rows"]), "sent": kept["sent"], "slope": kept["slope"]}
                now = [int(e == entry) for e in chosen]
                descend(cohort, self.objective, inputs, steps=now, optimiser=self.optimiser, round_number=plan.number)

    def objective(self, cohort: Cohort, inputs: Mapping[str, Tensor]) -> Tensor:
        """sum_j w_j g_j . f(x_j), w by the embeddings (weight)."""
        h = cohort.encode(inputs["x"], Mode.LEARN)
        weight = trusted(h.detach(), inputs["sent"], self.angle)
        return (weight * h * inputs["slope"]).sum()

    def predict(self, state: State, uploads: Uploads) -> Tensor:
        """The server model on all embeddings."""
        return predict_server(state, uploads)


def trusted(fresh: Tensor, cached: Tensor, angle: float) -> Tensor:
    """(..., 1): the cosine of the angle between two vectors, 0 if the angle is too wide."""
    cosine = F.cosine_similarity(fresh, cached, dim=-1).unsqueeze(-1)
    return torch.where(cosine >= math.cos(math.radians(angle)), cosine, 0.0)


def remember(home: dict[str, Tensor], number: int, slots: int, kept: Mapping[str, Tensor], used: Sequence[int]) -> None:
    """Put an exchange, (P, B, ...) each, into its slot; entries are "cache.SLOT.ROWS", since a batch may be short."""
    slot, rows = number % slots, next(iter(kept.values())).shape[1]
    for name, value in home.items():
        if name.startswith(f"cache.{slot}.") and name.endswith(".number"):
            value.zero_()  # what stood there was an exchange of another size: number 0 is an empty entry
    entry, last = f"cache.{slot}.{rows}", home["last"]
    home |= {f"{entry}.{name}": value.clone() for name, value in kept.items()}
    home[f"{entry}.number"] = torch.full_like(last, number)
    home[f"{entry}.used"] = torch.tensor(list(used), device=last.device)
    home["last"] = torch.full_like(last, slot)


def following(home: dict[str, Tensor], slots: int, most: int, wanted: Sequence[bool]) -> list[str | None]:
    """For each party that needs one the next entry, round-robin, with uses left; counts the use."""
    entries = sorted(name.removesuffix(".number") for name in home if name.endswith(".number"))
    chosen: list[str | None] = []
    for place, needs_one in enumerate(wanted):
        last = int(home["last"][place])
        order = sorted(entries, key=lambda entry: (int(entry.split(".")[1]) - last - 1) % slots)
        fits = (e for e in order if home[f"{e}.number"][place] > 0 and home[f"{e}.used"][place] < most)
        entry = next(fits, None) if needs_one else None
        chosen.append(entry)
        if entry is not None:
            home[f"{entry}.used"][place] += 1
            home["last"][place] = int(entry.split(".")[1])
    return chosen
