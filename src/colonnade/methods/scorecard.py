"""scorecard: a logistic regression over weights of evidence, whose parties end up with points for their own bins.

Columns are numbers of bins (`columns.bins`), cut at home without labels. Before round 1 the labels of all training rows
go down once, as the label mechanism gives them, and each party counts them in its own bins (`models/evidence.py`). With
e_k(x) a party's weights of evidence of a row, one per column, and f = pdo / ln 2 points for a unit of log odds, the
problem is that of `linear_admm` with one constant c, which the coordinator keeps:

    minimise (1/N) sum_j l(c + sum_k e_k(x_j) w_k, y_j) + beta sum_k |w_k|^2

    party        o_k = -f e_k(x) w_k, in points                                        up: b numbers
    coordinator  yhat   = c - sum_k o_k / f
                 z      = argmin l(z, y) - lambda.z + rho/2 |yhat - z|^2                               (z_step)
                 lambda = lambda + rho (yhat - z)                                                      (dual_step)
                 v      = z - yhat - lambda/rho, the same for all                      down: b numbers
                 c      = argmin rho/(2 d b) |c' - (c + d v)|^2 + kappa/2 (c' - c)^2                   (constant)
    party        w_k    = argmin rho/(2 d b) |e_k w - (d v - o_k/f)|^2 + beta |w|^2 + kappa/2 |w - w_k|^2    (x_step)

The constant takes part like one more party, so d = 1/(M + 1). With all rows in a round the solves are exact and kappa
is 0; it grows with the share of the rows that a round leaves out, which moves no fixed point.

Outside training a party sends whole points, the sum over its columns of what its card says: the model that is evaluated
and predicts is the card, and base points and parties' points add up to the score of a row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from colonnade.admm.step import residuals, update_dual, update_z
from colonnade.config import Settings
from colonnade.errors import ConfigError
from colonnade.methods._bins import MOST_BINS, count_labels, looked_up
from colonnade.methods._given import OPENING, release_labels
from colonnade.methods._steps import local_steps
from colonnade.methods.base import Received, Reply, State, Uploads
from colonnade.models.cohort import Cohort
from colonnade.models.evidence import COUNTS
from colonnade.models.points import Scale
from colonnade.models.ridge import ridge_solve
from colonnade.models.schema import Group, Schema
from colonnade.privacy.events import LabelExposure
from colonnade.privacy.labels import Labels
from colonnade.privacy.labels.randomised import RandomisedResponseEvent
from colonnade.privacy.labels.settings import LabelSettings
from colonnade.privacy.sealed import Array, Upload
from colonnade.schedule import RoundPlan
from colonnade.tasks import Task


class ScorecardADMM(Settings):
    """Weights of evidence at each party, one linear model over all of them, and points that add up."""

    name: ClassVar[str] = "scorecard"
    needs_uploads: ClassVar[Literal["each", "total", "nothing"]] = "total"
    exposes: ClassVar[LabelExposure] = LabelExposure.FULL
    pools: ClassVar[bool] = False
    needs_gradients: ClassVar[bool] = False
    reads_bins: ClassVar[bool] = True

    base_score: float = Field(600.0, allow_inf_nan=False, description="points at which the odds are the setting odds")
    odds: float = Field(50.0, gt=0, allow_inf_nan=False, description="non-events to one event, at base_score points")
    pdo: float = Field(20.0, gt=0, allow_inf_nan=False, description="points that double the odds")
    monotone: bool = Field(
        False, description="merge neighbouring bins of numbers and dates until their evidence rises or falls throughout"
    )
    rho: float = Field(0.1, gt=0, description="weight of the agreement penalty")
    beta: float = Field(1e-4, gt=0, description="weight of |w|^2")
    kappa: float = Field(0.1, ge=0, description="pull towards the last weights, where a round leaves out rows")

    @property
    def scale(self) -> Scale:
        """What points mean."""
        return Scale(self.base_score, self.odds, self.pdo)

    def check_labels(self, task: Task, settings: LabelSettings, weighted: bool) -> None:
        """Yes or no, counted one by one, plain or replaced at random."""
        check_task(task)
        if weighted:
            raise ConfigError("a scorecard counts rows, and these have weights; leave weights and class_weights out")
        if not settings.countable:
            raise ConfigError(
                f"a scorecard counts labels, and those of {settings.mechanism!r} are no yes or no any more; use "
                "mechanism = 'randomised_response'"
            )

    def open_party(self, cohort: Cohort) -> None:
        """Zero weights (P, C, 1) and empty bins."""
        s, columns = cohort.schema, cohort.columns.shape[2:]
        check_task(s.task)
        if not cohort.encoder.gradients:
            raise ConfigError(f"a scorecard would not use the local model of party {cohort.names[0]!r}; leave it out")
        if cohort.scaling or len(columns) != 1:
            raise ConfigError(f"party {cohort.names[0]!r}: a scorecard reads the numbers of bins as they are, unscaled")
        cohort.head = {"weight.0": s.zeros(len(cohort.names), *columns, 1)}
        cohort.head |= {name: s.zeros(len(cohort.names), *columns, MOST_BINS) for name in COUNTS}

    def open_coordinator(self, schema: Schema, labels: Labels) -> tuple[State, Reply | None]:
        """A zero dual for every row, a zero constant; the labels and how likely each was kept go down."""
        reply, event = release_labels(schema, labels), labels.event
        kept = event.keep if isinstance(event, RandomisedResponseEvent) else 1.0
        keep = torch.tensor([kept], dtype=torch.float64)
        state = {"dual": schema.zeros(schema.rows, 1), "constant": schema.zeros(1)}
        state |= {"cache.parties": torch.tensor(len(schema.parties)), "cache.train": torch.tensor(len(schema.train))}
        return state, Reply({**reply.common, "keep": keep})

    def upload_arrays(self, schema: Schema, group: Group) -> Mapping[str, Array]:
        """What a party sends per row."""
        return {"o": Array(1)}

    def upload(self, cohort: Cohort, x: Tensor, training: bool) -> Upload:
        """Points (P, B, 1): in training those of the weights, otherwise the whole ones of the card."""
        weight, woe = cohort.head["weight.0"].detach(), cohort.head["woe"].detach()
        if training:
            return Upload({"o": -self.scale.factor * torch.bmm(looked_up(woe, x), weight)})
        points = looked_up(self.scale.bin_points(weight, woe), x)  # (P, B, C)
        return Upload({"o": points.sum(dim=2, keepdim=True).to(woe.dtype)})

    def coordinate(self, state: State, plan: RoundPlan, uploads: Uploads, labels: Labels) -> Reply:
        """z and lambda of the round's rows, and the constant; one number per row for all goes back."""
        total = state["constant"] - uploads.total("o") / self.scale.factor  # yhat (B, 1)
        last, y = state["dual"][plan.rows], labels.targets(plan, total)
        z = update_z(total, last, y, self.rho, labels.task)  # (z_step)
        dual = update_dual(last, total, z, self.rho)  # (dual_step)
        state["dual"][plan.rows] = dual
        v = z - total - dual / self.rho
        penalty = self.rho * (int(state["cache.parties"]) + 1)  # rho / d
        pull = self.pull(len(plan.rows), int(state["cache.train"]))
        state["constant"] += self.rho / (penalty + pull) * v.mean(dim=0)  # (constant)
        gaps = residuals(total, z, dual)
        return Reply({"v": v}, notes={"primal": gaps.primal, "dual": gaps.dual, **labels.task.notes(total, y)})

    def learn(self, cohort: Cohort, plan: RoundPlan, uploaded: Mapping[str, Tensor], reply: Received) -> None:
        """Count the labels of round 0; afterwards one exact solve, whatever number of local steps above 0 is asked."""
        if plan.number == OPENING:
            return count_labels(cohort, reply, self.monotone)
        s, weight = cohort.schema, cohort.head["weight.0"].detach()
        d, x = 1 / (len(s.parties) + 1), looked_up(cohort.head["woe"].detach(), cohort.x(plan.rows))
        target = d * reply.common["v"] - uploaded["o"] / self.scale.factor
        pull = self.pull(len(plan.rows), len(s.train))
        new = ridge_solve(x, target, weight, self.rho / d, self.beta, pull)  # (x_step)
        steps = local_steps(cohort, plan, 1)
        active = torch.tensor([steps] * len(weight) if isinstance(steps, int) else steps, device=cohort.device) > 0
        weight[active] = new[active].to(weight.dtype)  # in place: the cohort's tensors are never replaced
        return None

    def pull(self, rows: int, train: int) -> float:
        """kappa of a round: none where all training rows are in it."""
        return self.kappa * (1 - rows / train)

    def predict(self, state: State, uploads: Uploads) -> Tensor:
        """The log odds of the event that the score, base points and everybody's points, stands for."""
        scale, total = self.scale, uploads.total("o")
        base = scale.base_points(float(state["constant"]))
        return (scale.offset - base - total) / scale.factor

    def points(self, logits: Tensor) -> Tensor:
        """(B,) the scores that log odds (B, 1) stand for."""
        return (self.scale.offset - self.scale.factor * logits[:, 0].double()).round().long()


def check_task(task: Task) -> None:
    """Refuse labels that are not yes or no."""
    if not (task.one_class and task.outputs == 1):
        raise ConfigError(
            f"a scorecard needs yes/no labels; this is a {task.words} task: cut its labels into two classes"
        )
