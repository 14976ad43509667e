"""Local training against a snapshot: the others' embeddings and the server model stand still, the own part moves.

Flex-VFL and C-VFL share it. The first layer of the server model is linear in all embeddings side by side, so what
the others bring into it is one matrix: a step of a party costs its own block of that layer, whatever M is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from colonnade.methods._given import kept_labels, learning
from colonnade.methods._server import apply_server, get_server, server_gradients, step_server
from colonnade.methods._steps import task_loss
from colonnade.models.cohort import Cohort
from colonnade.models.descend import Objective, descend
from colonnade.models.dropout import keyed_mask
from colonnade.models.heads import Head, apply_heads
from colonnade.models.optimise import Optimiser
from colonnade.models.schema import Schema
from colonnade.models.stack import Mode
from colonnade.privacy.labels import Labels
from colonnade.schedule import RoundPlan


def columns_of(schema: Schema, party: str) -> tuple[int, int]:
    """The first column of a party in all embeddings side by side, and how many it has."""
    g, place = schema.position(party)
    before = sum(len(group.parties) * group.width for group in schema.groups[:g])
    width = schema.groups[g].width
    return before + place * width, width


def snapshot(cohort: Cohort, plan: RoundPlan, server: Head, everyone: Tensor) -> dict[str, Tensor]:
    """What a local step reads; `everyone` (B, all widths) are the embeddings as received, `server` has (1, in, out)."""
    first = server["weight.0"][0]
    places = [columns_of(cohort.schema, party) for party in cohort.names]
    block = torch.stack([first[at : at + width] for at, width in places])  # (P, d, H)
    own = torch.stack([everyone[:, at : at + width] for at, width in places])  # (P, B, d)
    others = everyone @ first - torch.bmm(own, block)  # (P, B, H)
    if "bias.0" in server:
        others = others + server["bias.0"]
    deeper = {k: w.expand(len(cohort.names), -1, -1) for k, w in server.items() if not k.endswith(".0")}
    inputs = learning(cohort, plan) | kept_labels(cohort, plan.rows) | {"others": others, "block": block}
    return inputs | {f"server.{k}": w for k, w in deeper.items()}


def loss_beside_snapshot(cohort: Cohort, inputs: Mapping[str, Tensor]) -> Tensor:
    """The task's loss of the server model on the frozen others and the party's fresh embedding; summed over parties."""
    h = cohort.encode(inputs["x"], Mode.LEARN)
    out = inputs["others"] + torch.bmm(h, inputs["block"])  # the first layer
    deeper = {lower(k.removeprefix("server.")): w for k, w in inputs.items() if k.startswith("server.")}
    if deeper:
        drop, key, draw = cohort.schema.head.dropout, inputs["key"], inputs["draw"]
        out = out.relu()
        if drop:
            out = out * keyed_mask(out, drop, key, draw)
        out = apply_heads(deeper, out, drop, key + 1, draw)
    return task_loss(cohort.schema.task, out, inputs["targets"], inputs.get("weights"))


def lower(name: str) -> str:
    """weight.2 -> weight.1: the layers above the first are a head of their own."""
    kind, _, layer = name.partition(".")
    return f"{kind}.{int(layer) - 1}"


def paced(
    cohort: Cohort,
    objective: Objective,
    inputs: Mapping[str, Tensor],
    steps: Sequence[int],
    optimiser: Optimiser,
    reference: int,
    round_number: int,
) -> None:
    """Q_k steps of size eta_k, with eta_k Q_k the same for all: eta is for `reference` steps.

    Parties of one pace step together; the others stay as they are meanwhile.
    """
    for pace in sorted(set(steps) - {0}):
        own = optimiser.model_copy(update={"lr": optimiser.lr * reference / pace})
        counts = [pace if count == pace else 0 for count in steps]
        descend(cohort, objective, inputs, steps=counts, optimiser=own, round_number=round_number)


def paces(plan: RoundPlan, steps: int) -> dict[str, int]:
    """Q_k of learners that are not of speed 1: what fits into the time in which one of speed 1 takes `steps` steps."""
    return {party: max(1, int(steps * speed * (1 + 1e-9))) for party, speed in plan.speeds}  # 0.29 x 100 is 29


def train_beside(
    state: dict[str, Tensor], x: Tensor, plan: RoundPlan, labels: Labels, optimiser: Optimiser, steps: int
) -> dict[str, Tensor]:
    """The server model's own local steps, on the embeddings as received (B, all widths); notes for the history."""
    logits = apply_server(get_server(state), x)
    targets = labels.targets(plan, logits)
    weights = labels.weights(plan.rows, targets)
    for number in range(steps):
        mask = plan.number * steps + number  # one of its own
        slopes, _ = server_gradients(state, x, targets, labels.task, mask, weights)
        step_server(state, slopes, optimiser, plan.number)
    return labels.task.notes(logits, targets)
