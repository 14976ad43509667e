"""The server model: what the coordinator puts on top of the parties' embeddings, and its gradients.

One linear layer without bias, or an MLP with dropout, as `model.head` says; hidden layers are as wide as the input,
as in the paper's program. The input is all embeddings side by side (`join`), or whatever else a method makes of
them: a weighted sum, a decoded total. Everything lives in the flat coordinator state, and so is saved and restored
without more code: "server.*" the parameters, "step.*" what their optimiser remembers, both with a leading axis of
one, and "drop.*" the dropout of an MLP.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from colonnade.federation import Task
from colonnade.methods._steps import task_loss
from colonnade.methods.base import Reply, Uploads
from colonnade.models.cohort import Cohort
from colonnade.models.heads import Head, apply_heads, dropout_keys, open_heads
from colonnade.models.optimise import Optimiser, rate_of
from colonnade.models.schema import Schema
from colonnade.models.stack import Mode
from colonnade.privacy.labels import Labels
from colonnade.randomness import dropout_key
from colonnade.schedule import RoundPlan

COORDINATOR = "coordinator"  # whose streams the server model draws from


def open_server(state: dict[str, Tensor], schema: Schema, optimiser: Optimiser, width: int | None = None) -> None:
    """Put a first server model into the state; `width` of its input, unset: all embeddings side by side."""
    wide = sum(len(g.parties) * g.width for g in schema.groups) if width is None else width
    drawn = open_heads(schema.head, (COORDINATOR,), wide, schema.outputs, schema.seed)
    state |= {f"server.{k}": v.to(schema.device, schema.dtype) for k, v in drawn.items()}
    state |= {f"step.{k}": v for k, v in optimiser.open(list(get_server(state).values())).items()}
    if schema.head.layers > 1 and schema.head.dropout:
        state["drop.rate"] = torch.tensor(schema.head.dropout, dtype=torch.float64, device=schema.device)
        state["drop.key"] = dropout_keys([dropout_key(schema.seed, COORDINATOR)], schema.device)


def get_server(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The parameters of the server model, always in the same order; each (1, in, out)."""
    return {k.removeprefix("server."): state[k] for k in sorted(state) if k.startswith("server.")}


def join(parts: Sequence[Tensor]) -> Tensor:
    """(P, B, d) per group -> (B, sum of all widths), parties in group order."""
    return torch.cat([part.transpose(0, 1).flatten(1) for part in parts], dim=1)


def apart(joined: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """The inverse of `join`: (P, B, d) per group."""
    pieces = joined.split([part.shape[0] * part.shape[2] for part in like], dim=1)
    return [
        piece.unflatten(1, (part.shape[0], -1)).transpose(0, 1).contiguous()
        for piece, part in zip(pieces, like, strict=True)
    ]


def apply_server(model: Head, x: Tensor) -> Tensor:
    """(B, width) -> logits (B, K), without dropout."""
    return apply_heads(model, x.unsqueeze(0))[0]


def server_gradients(
    state: Mapping[str, Tensor],
    x: Tensor,
    targets: Tensor,
    task: Task,
    round_number: int,
    weights: Tensor | None = None,
) -> tuple[dict[str, Tensor], Tensor]:
    """Gradients of the mean loss over the rows: one per parameter, and (B, width) with respect to the input x.

    Dropout is on; its mask depends on the round only, so a second call in a round sees the same one. `weights` (B,) are
    those of the rows.
    """
    drop = float(state["drop.rate"]) if "drop.rate" in state else 0.0
    with torch.enable_grad():  # coordinate() runs without
        model = {k: v.detach().requires_grad_() for k, v in get_server(state).items()}
        at = x.detach().requires_grad_()
        logits = apply_heads(model, at.unsqueeze(0), drop, state.get("drop.key"), round_number)
        *slopes, slope = torch.autograd.grad(task_loss(task, logits, targets, weights), [*model.values(), at])
    return dict(zip(model, slopes, strict=True)), slope


def step_server(
    state: dict[str, Tensor], slopes: Mapping[str, Tensor], optimiser: Optimiser, round_number: int
) -> None:
    """One step of the server model. Tensors are replaced, not written into: who was sent the old ones keeps them."""
    model = {k: v.clone() for k, v in get_server(state).items()}
    memory = {k.removeprefix("step."): v.clone() for k, v in state.items() if k.startswith("step.")}
    optimiser.step(list(model.values()), [slopes[k] for k in model], memory, None, rate_of(optimiser, round_number))
    state |= {f"server.{k}": v for k, v in model.items()}
    state |= {f"step.{k}": v for k, v in memory.items()}


def train_server(
    state: dict[str, Tensor],
    x: Tensor,
    plan: RoundPlan,
    labels: Labels,
    optimiser: Optimiser,
    after: bool = False,
    smoothing: float = 0.0,
) -> tuple[Tensor, dict[str, Tensor]]:
    """One step of the server model on x (B, width); the slope of the mean loss in x before or after it, and notes."""
    logits = apply_server(get_server(state), x)
    seen = labels.targets(plan, logits)
    targets, weights = labels.task.smoothed(seen, smoothing), labels.weights(plan.rows, seen)
    slopes, slope = server_gradients(state, x, targets, labels.task, plan.number, weights)
    step_server(state, slopes, optimiser, plan.number)
    if after:
        _, slope = server_gradients(state, x, targets, labels.task, plan.number, weights)
    return slope, labels.task.notes(logits, targets)


def train_and_reply(
    state: dict[str, Tensor],
    plan: RoundPlan,
    uploads: Uploads,
    labels: Labels,
    optimiser: Optimiser,
    after: bool,
    smoothing: float,
) -> Reply:
    """One step of the server model on all embeddings; each party is sent the slope at its own, before or after it."""
    h = [group["h"] for group in uploads.groups]  # (P, B, d_f) per group
    slope, notes = train_server(state, join(h), plan, labels, optimiser, after, smoothing)
    return Reply(own=tuple({"slope": part} for part in apart(slope, h)), notes=notes)


def predict_server(state: Mapping[str, Tensor], uploads: Uploads) -> Tensor:
    """The server model on all embeddings side by side."""
    return apply_server(get_server(state), join([group["h"] for group in uploads.groups]))


def follow(cohort: Cohort, inputs: Mapping[str, Tensor]) -> Tensor:
    """sum f(x) . dL/dh, an objective for `descend`: its gradient is the chain rule through the parties' networks.

    The slope (P, B, d) was taken at the embedding as released; clipping and noise count as constants.
    """
    return (cohort.encode(inputs["x"], Mode.LEARN) * inputs["slope"]).sum()
