"""Pieces that several methods share: functions, not a base class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from colonnade.errors import ConfigError
from colonnade.models.cohort import Cohort
from colonnade.models.heads import Head, open_heads
from colonnade.models.optimise import SGD
from colonnade.models.schema import Group, Schema
from colonnade.models.stack import Mode
from colonnade.privacy.sealed import Array, Upload
from colonnade.randomness import key
from colonnade.schedule import RoundPlan
from colonnade.tasks import Task


def task_loss(
    task: Task, logits: Tensor, targets: Tensor, weights: Tensor | None = None, held: Tensor | None = None
) -> Tensor:
    """The task's loss, mean over rows and summed over parties; logits (P, B, K), targets (B, K), weights (B,).

    `held` (P, B): rows that a party does not hold count nothing.
    """
    if held is not None:
        logits = torch.where(held.unsqueeze(2), logits, logits.detach())  # a constant, without a gradient
    return task.loss(logits, targets.expand_as(logits), weights) / logits.shape[1]


def weighted_slope(task: Task, outputs: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
    """Derivative of each row's loss in its outputs (..., B, K), times its weight (B,)."""
    slope = task.slope(outputs, targets)
    return slope if weights is None else slope * weights[:, None]


def first_heads(schema: Schema) -> list[dict[str, Tensor]]:
    """Heads for every group, each party's from its own stream."""
    drawn = [open_heads(schema.head, g.parties, g.width, schema.outputs, schema.seed) for g in schema.groups]
    return [{k: v.to(schema.device, schema.dtype) for k, v in head.items()} for head in drawn]


def put_heads(state: dict[str, Tensor], heads: Sequence[Head]) -> None:
    """Store heads in a flat coordinator state."""
    for g, head in enumerate(heads):
        for name, value in head.items():
            state[f"head.{g}.{name}"] = value


def get_heads(state: Mapping[str, Tensor]) -> list[dict[str, Tensor]]:
    """The heads in a flat coordinator state, in group order."""
    heads: dict[int, dict[str, Tensor]] = {}
    for name, value in state.items():
        if name.startswith("head."):
            _, g, rest = name.split(".", 2)
            heads.setdefault(int(g), {})[rest] = value
    return [heads[g] for g in sorted(heads)]


def published(table: Mapping[str, tuple[float, int, float]], dataset: str) -> tuple[float, int, float]:
    """lr, tau and rho of a published experiment."""
    if dataset not in table:
        raise ConfigError(f"no published settings for {dataset!r}; there are some for {', '.join(table)}")
    return table[dataset]


def published_sgd(table: Mapping[str, tuple[float, int, float]], dataset: str) -> tuple[int, SGD, SGD]:
    """Local steps, local and server optimiser of a published experiment: only the parties have momentum."""
    lr, steps, momentum = published(table, dataset)
    return steps, SGD(lr=lr, momentum=momentum, weight_decay=1e-3), SGD(lr=lr, momentum=0.0, weight_decay=1e-3)


def embedding(group: Group) -> dict[str, Array]:
    """What methods declare whose parties send their embedding of each row."""
    return {"h": Array(group.width)}


def upload_embedding(cohort: Cohort, x: Tensor, training: bool) -> Upload:
    """The embeddings (P, B, d) of these columns."""
    return Upload({"h": cohort.encode(x, Mode.UPLOAD if training else Mode.PREDICT)})


def check_damping(damping: float | None, parties: int) -> None:
    """Damping below 1/M would leave part of the residual to nobody."""
    if damping is not None and damping * parties < 1 - 1e-9:
        raise ConfigError(f"damping = {damping} is below 1/M; with {parties} parties use {1 / parties:.4g} to 1")


def local_steps(cohort: Cohort, plan: RoundPlan, default: int) -> int | list[int]:
    """Steps of each party of the cohort: the method's number unless the round says otherwise."""
    special = dict(plan.steps)
    if not any(name in special for name in cohort.names):
        return default
    return [special.get(name, default) for name in cohort.names]


def party_code(party: str) -> int:
    """A number for the name of a party: a coordinator's state has no texts."""
    return key(0, "party", party) % 2**62


def sum_logits(parts: Sequence[Tensor]) -> Tensor:
    """(P, B, K) per group -> (B, K), always in group order so that engines agree to the last bit."""
    total = parts[0].sum(dim=0)
    for part in parts[1:]:
        total = total + part.sum(dim=0)
    return total
