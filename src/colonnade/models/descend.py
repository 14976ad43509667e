"""Local steps: several gradient steps of a cohort on one objective.

The objective is the *sum* of the parties' objectives: no party's gradient depends on
another's, so one backward pass serves all of them. On a GPU the step is captured once as a
CUDA graph and replayed; the eager loop here stays the reference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from colonnade.errors import ModelError
from colonnade.models.cohort import Cohort
from colonnade.models.graphs import replay, worth_capturing
from colonnade.models.optimise import Optimiser, rate_of


class Slope(NamedTuple):
    """An objective by its derivative in some outputs: steps never need its value."""

    outputs: Tensor
    derivative: Tensor  # of the shape of the outputs


Objective = Callable[[Cohort, Mapping[str, Tensor]], Tensor | Slope]
Parts = tuple[tuple[str, ...], ...]  # what each sub-step trains: (("head",), ("encoder",)) alternates
Plan = tuple[tuple[tuple[str, ...], Optimiser], ...]  # the same, each with its optimiser


def descend(  # one signature for every method's local work
    cohort: Cohort,
    objective: Objective,
    inputs: Mapping[str, Tensor],
    *,
    steps: int | Sequence[int],
    optimiser: Optimiser | Mapping[str, Optimiser],
    parts: Parts = (("encoder",),),
    round_number: int = 0,
) -> None:
    """Take `steps` gradient steps (one number, or one per party) on `objective(cohort, inputs)`.

    `inputs` must hold every tensor that changes from round to round, because a captured step
    sees nothing else. `inputs["draw"]` counts the steps, for keyed dropout; `inputs["rate"]` follows the
    round number where the optimiser's step size decays. One optimiser serves all
    parts, or each part has its own, by name.
    """
    if not cohort.encoder.gradients:
        raise ModelError(f"the local model of party {cohort.names[0]!r} has no gradients: it can only be approached")
    counts = [steps] * len(cohort.names) if isinstance(steps, int) else list(steps)
    parts = tuple(names for names in parts if cohort.trained(names))
    if not parts:
        return  # an encoder without parameters, or with frozen ones only, has nothing to learn
    plan = tuple(
        (names, optimiser["+".join(names)] if isinstance(optimiser, Mapping) else optimiser) for names in parts
    )
    for names, rule in plan:
        if "+".join(names) not in cohort.optimiser:
            cohort.optimiser["+".join(names)] = rule.open([p.detach() for p in cohort.trained(names)])
    everyone = min(counts) == max(counts)
    rate = torch.full((), rate_of(plan[0][1], round_number), dtype=torch.float64, device=cohort.device)
    inputs = {**inputs, "draw": torch.zeros((), dtype=torch.int64, device=cohort.device), "rate": rate}

    def step(values: Mapping[str, Tensor], active: Tensor | None) -> None:
        with cohort.encoder.computing.switches(cohort.device):
            one_step(cohort, objective, values, plan, active)

    if everyone and worth_capturing(cohort):
        key = (objective, plan, tuple((k, v.shape, v.dtype) for k, v in inputs.items()))
        replay(cohort, key, lambda values: step(values, None), inputs, counts[0])
        return
    limits = torch.tensor(counts, device=cohort.device)
    for number in range(max(counts)):
        step(inputs, None if everyone else limits > number)


def one_step(
    cohort: Cohort,
    objective: Objective,
    inputs: Mapping[str, Tensor],
    plan: Plan,
    active: Tensor | None,
) -> None:
    """One gradient step on each part of the plan in turn; parties that are not `active` stay as they are."""
    buffers = cohort.encoder.buffers
    for names, optimiser in plan:
        before = None if active is None else {k: v.clone() for k, v in buffers.items()}
        parameters = cohort.trained(names)
        goal = objective(cohort, inputs)
        outputs, derivative = goal if isinstance(goal, Slope) else (goal, None)
        gradients = list(torch.autograd.grad(outputs, parameters, derivative, materialize_grads=True))
        with torch.no_grad():
            optimiser.step(parameters, gradients, cohort.optimiser["+".join(names)], active, inputs["rate"])
            if before is not None and active is not None:
                for name, old in before.items():
                    buffers[name][~active] = old[~active]
    inputs["draw"].add_(1)
