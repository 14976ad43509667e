"""Fitting one increment: a new local model, to targets whose cells count differently.

    minimise  sum_i sum_c weight_ic (f(x_i)_c - target_ic)^2

Networks take gradient steps on it, on batches in an order of the run's seed. All other local models fit as they can
(`models/increments.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from colonnade.methods._given import own_logits
from colonnade.methods._teach import Batches
from colonnade.models.cohort import Cohort
from colonnade.models.descend import descend
from colonnade.models.heads import dropout_keys
from colonnade.models.increments import fit_regressor
from colonnade.models.local import Regressors
from colonnade.models.optimise import Optimiser
from colonnade.randomness import dropout_key


@dataclass(frozen=True)
class Wanted:
    """What an increment should be on its rows."""

    x: Tensor = field(repr=False)  # (1, B, ...) of one party
    target: Tensor = field(repr=False)  # (B, K)
    weights: Tensor = field(repr=False)  # (B, K)
    effort: int | None  # local steps, where the schedule names a number for this party
    number: int  # of the increment


def fit_increment(model: Cohort, wanted: Wanted, local_steps: int, optimiser: Optimiser) -> None:
    """Fit the local model of a cohort of one, which has learned nothing yet."""
    if isinstance(model.encoder, Regressors):
        fit_regressor(model, wanted.x, wanted.target, wanted.weights, wanted.effort)
        return
    s, device = model.schema, model.device
    weights = (wanted.weights / wanted.weights.mean().clamp(min=1e-30)).to(device, s.dtype)
    target, steps = wanted.target.to(device, s.dtype), wanted.effort or local_steps
    batches = Batches(len(target), s.seed, f"increment {wanted.number}", device)
    for step in range(steps):
        some = batches.next()
        key = dropout_key(s.seed, model.names[0], wanted.number * steps + step)
        inputs = {"x": wanted.x.index_select(1, some), "target": target[some], "weights": weights[some]}
        inputs["key"] = dropout_keys([key], device)
        parts = (("head", "encoder"),)
        descend(model, weighted_gap, inputs, steps=1, optimiser=optimiser, parts=parts, round_number=step + 1)
    model.optimiser.clear()  # nothing goes on from here
    model.graphs.clear()
    model.make_canonical()


def weighted_gap(cohort: Cohort, inputs: Mapping[str, Tensor]) -> Tensor:
    """sum weights (f(x) W - target)^2 / 2b."""
    gap = own_logits(cohort, inputs) - inputs["target"]
    return (inputs["weights"] * gap.square()).sum() / (2 * gap.shape[1])
