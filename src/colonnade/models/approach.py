"""Move a cohort's outputs towards a target in least squares: all that ADMM asks of a local model.

    minimise  weight/(2b) |f(x) W - target|^2      over the local model f, and over the party's own head W if it has one

Networks take gradient steps on it, one backward pass for all parties. A regressor outputs logits itself where heads
live at the parties. Where a linear head W of the coordinator's stands behind it, it is moved towards

    f(x) - (f(x) W - target) W' / L    with weight L weight,    L = |W|_2^2

which is the minimum of an upper bound that touches the objective at f(x), so the objective never grows (with one output
and W = 1 it is the target itself). For heads of several layers there is no such bound, and none is taken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from colonnade.errors import ModelError
from colonnade.models.cohort import Cohort
from colonnade.models.descend import Parts, Slope, descend
from colonnade.models.heads import Head, apply_heads
from colonnade.models.local import Regressors
from colonnade.models.optimise import Optimiser
from colonnade.models.stack import Mode

HEAD = "head."  # before the names of the coordinator's heads, among the inputs of a step


@dataclass(frozen=True)
class Effort:
    """How hard to try: `steps` for all, or one number per party; the rest is for networks."""

    steps: int | Sequence[int]
    optimiser: Optimiser | Mapping[str, Optimiser]
    key: Tensor  # (P, 1, 1) of the dropout in heads
    round_number: int
    parts: Parts = (("encoder",),)


@dataclass(frozen=True)
class SquaredGap:
    """weight/(2b) |f(x) W - target|^2, summed over parties; W is the heads among the inputs, else the parties' own.

    A value: two of equal weight are one captured step.
    """

    weight: float

    def __call__(self, cohort: Cohort, inputs: Mapping[str, Tensor]) -> Slope:
        """The objective of a gradient step."""
        head = {k.removeprefix(HEAD): w for k, w in inputs.items() if k.startswith(HEAD)} or cohort.head
        h = cohort.encode(inputs["x"], Mode.LEARN)
        logits = apply_heads(head, h, cohort.schema.head.dropout, inputs["key"], inputs["draw"])
        gap = logits.detach() - inputs["target"]
        if "held" in inputs:  # what a party does not hold, it does not learn
            gap = gap.masked_fill(~inputs["held"].unsqueeze(2), 0.0)
        # The weight is a product of the backward pass: one that began with cuBLAS would be warned about by torch.
        return Slope(logits * (self.weight / logits.shape[1]), gap)


def approach(
    cohort: Cohort,
    x: Tensor,
    target: Tensor,
    weight: float,
    effort: Effort,
    head: Head | None = None,
    held: Tensor | None = None,
) -> None:
    """Move outputs for columns x (P, B, ...) towards `target` (P, B, K), through the coordinator's heads if given.

    `held` (P, B): of rows that a party does not hold it learns nothing; None: all hold all.
    """
    models = cohort.encoder
    if not isinstance(models, Regressors):
        inputs = {"x": x, "target": target, "key": effort.key} | ({} if held is None else {"held": held})
        inputs |= {f"{HEAD}{k}": w for k, w in (head or {}).items()}
        descend(
            cohort,
            SquaredGap(weight),
            inputs,
            steps=effort.steps,
            optimiser=effort.optimiser,
            parts=effort.parts,
            round_number=effort.round_number,
        )
        return
    count = len(cohort.names)
    steps = [effort.steps] * count if isinstance(effort.steps, int) else list(effort.steps)
    weights = [weight] * count
    if head is not None:
        target, bounds = behind_head(cohort.encode(x, Mode.UPLOAD), target, head)
        steps = [step if bound > 0 else 0 for step, bound in zip(steps, bounds, strict=True)]  # W = 0 says nothing
        weights = [weight * bound for bound in bounds]
    models.approach(x, target, weights, steps, held)


def behind_head(h: Tensor, target: Tensor, head: Head) -> tuple[Tensor, list[float]]:
    """Targets (P, B, d) for the outputs h (P, B, d) of models behind a linear head, and the L of each party."""
    if set(head) != {"weight.0"}:
        raise ModelError(
            "a local model without gradients can stand behind a linear head only; use model.head.layers = 1"
        )
    w = head["weight.0"]
    bounds = torch.linalg.matrix_norm(w.double(), ord=2).square()  # (P,)
    step = torch.bmm(torch.bmm(h, w) - target, w.mT) / bounds.clamp(min=1e-30).to(h).view(-1, 1, 1)
    return h - step, bounds.tolist()
