"""Local steps by DP-SGD: each on rows drawn at home, from clipped gradients of single rows with noise.

    rows        every training row with probability q, at each party by itself; never those of the round's plan
    sum         of the rows' gradients, each cut to norm C                      (`row_gradients.py`)
    gradient    (sum + N(0, sigma^2 C^2)) / (q N): divided by what is public, not by how many were drawn
    step        of any optimiser: it sees nothing but that

A party's steps are counted before they are computed, with its model: whatever becomes of a step, the count is no
smaller than what the model has seen, after a restart too, and steps beyond what was promised are refused.
"""

from __future__ import annotations

import torch
from torch import Tensor

from colonnade.errors import GateError
from colonnade.models.by_row import RowTraining
from colonnade.models.cohort import Cohort
from colonnade.models.optimise import Optimiser, rate_of
from colonnade.models.row_gradients import Batch, clipped_sums
from colonnade.tasks import Task

TAKEN = "row_steps"  # in a cohort's memory: steps that each party has taken (P,)
PARTS = ("head", "encoder")


def open_steps(cohort: Cohort) -> None:
    """No step was taken yet."""
    cohort.memory[TAKEN] = torch.zeros(len(cohort.names), dtype=torch.int64, device=cohort.device)


def steps_by_row(
    cohort: Cohort, how: RowTraining, optimiser: Optimiser, number: int, steps: int, smoothing: float = 0.0
) -> None:
    """Take `steps` private steps in round `number`, on the labels that the cohort keeps (`targets` in its memory)."""
    parameters = cohort.trained(PARTS)
    if not parameters:
        return
    key = "+".join(PARTS)
    if key not in cohort.optimiser:
        cohort.optimiser[key] = optimiser.open([p.detach() for p in parameters])
    rate = torch.full((), rate_of(optimiser, number), dtype=torch.float64, device=cohort.device)
    cells = sum(p[0].numel() for p in parameters)
    for step in range(steps):
        _count(cohort, how)
        batch = drawn(cohort, how, number, step, smoothing)
        sums = [value.flatten(1) for value in clipped_sums(cohort, batch, how.norm(cells))]
        noisy = how.protect(torch.cat(sums, dim=1).cpu(), cohort.names, number, step) / how.batch
        widths = [p[0].numel() for p in parameters]
        gradients = [
            part.reshape(p.shape).to(p.device, p.dtype)
            for part, p in zip(noisy.split(widths, dim=1), parameters, strict=True)
        ]
        with torch.no_grad():
            optimiser.step(parameters, gradients, cohort.optimiser[key], None, rate)


def _count(cohort: Cohort, how: RowTraining) -> None:
    """One step more of every party, before anything of it is computed."""
    taken = cohort.memory[TAKEN]
    if int(taken.max()) >= how.steps:
        party = cohort.names[int(taken.argmax())]
        raise GateError(
            f"party {party!r} has taken the {how.steps:,} local steps that its privacy (unit ROW) was counted for; "
            "another one is refused"
        )
    taken += 1


def drawn(cohort: Cohort, how: RowTraining, number: int, step: int, smoothing: float = 0.0) -> Batch:
    """The rows that each party drew, as many places for all; places without a row count nothing."""
    schema = cohort.schema
    chosen = how.draw(cohort.names, number, step)  # (P, R)
    most = max(1, int(chosen.sum(dim=1).max()))
    places = torch.zeros(len(chosen), most, dtype=torch.int64)
    here = torch.zeros(len(chosen), most, dtype=torch.bool)
    for k, mine in enumerate(chosen):
        found = mine.nonzero()[:, 0]
        places[k, : len(found)], here[k, : len(found)] = found, True
    rows = schema.train.cpu()[places].to(cohort.device)
    here = here.to(cohort.device)
    if cohort.held is not None:
        here &= cohort.held.gather(1, rows)
    return Batch(cohort.x_of_each(rows), _targets(cohort, schema.task, rows, smoothing), here)


def _targets(cohort: Cohort, task: Task, rows: Tensor, smoothing: float) -> Tensor:
    """(P, B, K) of rows (P, B); all parties hold the same labels."""
    kept = cohort.memory["targets"][0, rows.flatten()]
    flat = task.smoothed(task.expand(kept, cohort.schema.dtype), smoothing)
    return flat.reshape(*rows.shape, flat.shape[-1])
