"""Labels at the parties: released once before round 1 and kept at home; and local steps on logits of one's own head.

Three functions follow the labels: `release_labels` makes the opening reply, `keep_labels` stores it by row at the
party, `kept_labels` reads the rows of a round. The coordinator's gate records the opening reply like any other, and
under label DP it carries noisy labels, so whoever uses these functions exposes exactly what `labels.compact` gives;
where rows have weights also these, which the ledger notes.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from colonnade.methods._steps import task_loss
from colonnade.methods.base import Received, Reply
from colonnade.models.cohort import Cohort
from colonnade.models.heads import apply_heads, dropout_keys
from colonnade.models.schema import Schema
from colonnade.models.stack import Mode
from colonnade.privacy.labels import Labels
from colonnade.randomness import dropout_key
from colonnade.schedule import RoundPlan

OPENING = 0  # the round number under which `learn` gets the opening reply


def release_labels(schema: Schema, labels: Labels) -> Reply:
    """The opening reply: labels of all training rows, one byte per row where the classes fit; and their weights."""
    told = {"targets": labels.compact(schema.train)}
    weights = labels.weights(schema.train, labels.held_out(schema.train))
    return Reply(told if weights is None else told | {"weights": weights.to(schema.dtype)})


def release_in_bits(schema: Schema, labels: Labels) -> Reply:
    """The same, with a bit for each yes or no."""
    told = dict(release_labels(schema, labels).common)
    if labels.task.family == "bernoulli" and not told["targets"].is_floating_point():
        told["targets"] = told["targets"].bool()  # travels as bits
    return Reply(told)


def keep_labels(cohort: Cohort, reply: Received) -> None:
    """Store the opening reply by row number; call it from `learn` when `plan.number == OPENING`."""
    _keep(cohort, reply, ("targets", "weights"))


def keep_weights(cohort: Cohort, reply: Received) -> None:
    """Store the weights of an opening reply by row number, if it has any, and forget the labels."""
    _keep(cohort, reply, ("weights",))


def _keep(cohort: Cohort, reply: Received, names: tuple[str, ...]) -> None:
    for name in names:
        if name in reply.common:
            told = reply.common[name]
            by_row = told.new_zeros((len(cohort.names), cohort.schema.rows, *told.shape[1:]))
            by_row[:, cohort.schema.train] = told
            cohort.memory[name] = by_row


def kept_labels(cohort: Cohort, rows: Tensor, smoothing: float = 0.0) -> dict[str, Tensor]:
    """`targets` (B, K) of a round's rows, and their `weights` (B,) if they have any; all parties hold the same ones."""
    s, at = cohort.schema, rows.to(cohort.device)
    kept = {"targets": s.task.smoothed(s.task.expand(cohort.memory["targets"][0, at], s.dtype), smoothing)}
    return kept | ({"weights": cohort.memory["weights"][0, at]} if "weights" in cohort.memory else {})


def own_logits(cohort: Cohort, inputs: Mapping[str, Tensor]) -> Tensor:
    """Logits (P, B, K) of encoder and own head while learning, with keyed dropout."""
    h = cohort.encode(inputs["x"], Mode.LEARN)
    return apply_heads(cohort.head, h, cohort.schema.head.dropout, inputs["key"], inputs["draw"])


def learning(cohort: Cohort, plan: RoundPlan) -> dict[str, Tensor]:
    """What every local step reads: the round's columns and the parties' dropout keys."""
    keys = [dropout_key(cohort.schema.seed, party, plan.number) for party in cohort.names]
    return {"x": cohort.x(plan.rows), "key": dropout_keys(keys, cohort.device)} | who_holds(cohort, plan.rows)


def who_holds(cohort: Cohort, rows: Tensor) -> dict[str, Tensor]:
    """`held` (P, B), where parties lack some of the rows: what a party does not hold, it does not learn from."""
    held = cohort.holding(rows)
    return {} if held is None else {"held": held}


def along_gradient(cohort: Cohort, inputs: Mapping[str, Tensor]) -> Tensor:
    """(1/b) sum_j gradient_j . o_j, summed over parties: linear in the logits, so its gradient is the chain rule."""
    slopes = inputs["gradient"]
    if "held" in inputs:
        slopes = slopes.masked_fill(~inputs["held"].unsqueeze(2), 0)
    return (own_logits(cohort, inputs) * slopes).sum() / slopes.shape[-2]


def loss_beside_others(cohort: Cohort, inputs: Mapping[str, Tensor]) -> Tensor:
    """The task's loss of share * (others + own), the others' logits (P, B, K) frozen; summed over parties."""
    total = inputs["others"] + own_logits(cohort, inputs)
    given = inputs.get("weights"), inputs.get("held")
    return task_loss(cohort.schema.task, inputs["share"] * total, inputs["targets"], *given)


def own_loss(cohort: Cohort, inputs: Mapping[str, Tensor]) -> Tensor:
    """The task's loss, each party on its own logits; summed over parties."""
    given = inputs.get("weights"), inputs.get("held")
    return task_loss(cohort.schema.task, own_logits(cohort, inputs), inputs["targets"], *given)
