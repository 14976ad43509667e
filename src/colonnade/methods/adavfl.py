"""AdaVFL (Zhang et al., 2022): logits as in `fdml`, several local steps, as many per party as pay in time.

    coordinator  before round 1: the labels of all training rows, once                down: one byte per row
    party        o_k = f(x_k) W_k                                                      up: b x d_c
    coordinator  s = sum_k o_k, the same for all; the step counts Q go with the order      down: b x d_c
    party        Q_k steps on (1/b) sum_j l(s - o_k + f(x_k) W_k, y_j), the others' part frozen       (local_step)

There is no public program; our reading of "the number of local updates that minimises the overall time":

    time of a round            T(Q) = overhead + max_k Q_k s_k                                        (round_time)
    rounds to an accuracy      R(Q) ~ mean_k (1 + drift (Q_k - 1)^2) / Q_k                            (rounds_needed)
    Q = argmin T(Q) R(Q),  1 <= Q_k <= local_steps                                                    (choose_steps)

over the parties k that learn in the round. s_k is what a step of party k takes; the unit is a step of a party of speed
1. R falls as 1/Q_k while steps on a frozen view still help, and rises when that view has gone stale: the two terms of
the usual bounds for local steps (FedBCD: 1/(eta Q R) + eta^2 Q^2). For a given T the best Q_k are as many steps as fit
into it, up to the minimum of R, so it is enough to try each T at which some party finishes a step.

Times are simulated, never read from a clock, so that a run can be repeated: a step of party k takes 1/speed_k, by the
speeds of the schedule, and every round's measurement of it errs by a draw of relative spread `jitter`. Every
`reestimate_every` rounds s_k becomes the mean of the measurements since the last time; before the first time all
parties take `local_steps`.

The coordinator needs only the total of the logits, so a secure sum can stand in the way. Labels: every party
holds them.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import exp, fsum
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from colonnade.config import Settings
from colonnade.methods._given import OPENING, keep_labels, kept_labels, learning, loss_beside_others, release_labels
from colonnade.methods._steps import local_steps
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
from colonnade.randomness import stream
from colonnade.schedule import RoundPlan


class AdaVFL(Settings):
    """Logits are summed; parties know the labels and take as many local steps as pay in time."""

    name: ClassVar[str] = "adavfl"
    needs_uploads: ClassVar[Literal["each", "total", "nothing"]] = "total"
    exposes: ClassVar[LabelExposure] = LabelExposure.FULL
    pools: ClassVar[bool] = False

    local_steps: int = Field(10, ge=1, description="most steps per round, and what all take before the first choice")
    optimiser: Optimiser = Field(AdamW(lr=1e-3, weight_decay=1e-2), description="local optimiser")
    jitter: float = Field(0.0, ge=0, description="relative error of one measurement of a party's time per step")
    overhead: float = Field(
        10.0, ge=0, description="time of a round beside its local steps, in steps of a party of speed 1"
    )
    drift: float = Field(0.01, ge=0, description="how fast steps on a frozen view of the others lose their worth")
    reestimate_every: int = Field(3, ge=1, description="rounds between two choices of the step counts")

    def open_party(self, cohort: Cohort) -> None:
        """Each party draws its own head."""
        cohort.own_heads()

    def open_coordinator(self, schema: Schema, labels: Labels) -> tuple[State, Reply | None]:
        """The labels go down once."""
        return {"seed": torch.tensor(schema.seed)}, release_labels(schema, labels)

    def upload_arrays(self, schema: Schema, group: Group) -> Mapping[str, Array]:
        """What a party sends per row."""
        return {"o": Array(schema.outputs)}

    def upload(self, cohort: Cohort, x: Tensor, training: bool) -> Upload:
        """The logits, dropout off."""
        return Upload(self.computed(cohort, x, Mode.UPLOAD if training else Mode.PREDICT))

    def computed(self, cohort: Cohort, x: Tensor, mode: Mode) -> dict[str, Tensor]:
        """f(x) W of every party."""
        return {"o": apply_heads(cohort.head, cohort.encode(x, mode))}

    def coordinate(self, state: State, plan: RoundPlan, uploads: Uploads, labels: Labels) -> Reply:
        """The sum goes back, and with it the step counts of who learns from it."""
        total = uploads.total("o")  # s (B, K)
        steps = dict.fromkeys(plan.learners, self.local_steps) | self.steps_of(plan, int(state["seed"]))
        notes = {
            **labels.task.notes(total, labels.targets(plan, total)),
            "mean_steps": total.new_tensor(sum(steps.values()) / max(1, len(steps))),
        }
        return Reply({"total": total}, notes=notes, steps={p: n for p, n in steps.items() if n != self.local_steps})

    def steps_of(self, plan: RoundPlan, seed: int) -> dict[str, int]:
        """Q of the round's learners, from what was measured until it last was due; nothing before the first time."""
        last = plan.number - plan.number % self.reestimate_every
        if not last or not plan.learners:
            return {}
        seen, speeds = range(last - self.reestimate_every + 1, last + 1), dict(plan.speeds)
        errs = {party: fsum(self.measured(seed, party, n) for n in seen) / len(seen) for party in plan.learners}
        per_step = torch.tensor([errs[party] / speeds.get(party, 1.0) for party in plan.learners], dtype=torch.float64)
        return dict(zip(plan.learners, self.choose_steps(per_step).tolist(), strict=True))

    def measured(self, seed: int, party: str, number: int) -> float:
        """By what factor the time per step that was measured in a round is off: of seed, party and round only."""
        if not self.jitter:
            return 1.0
        return exp(self.jitter * float(stream(seed, "time per step", party, number).standard_normal()))

    def choose_steps(self, per_step: Tensor) -> Tensor:
        """(choose_steps) for times per step s (P,): try every time at which a party finishes a step."""
        counts = torch.arange(1, self.local_steps + 1, dtype=torch.float64)
        enough = int(self.rounds_needed(counts).argmin()) + 1  # the minimum of R: no party gains from more
        times = (counts[:enough, None] * per_step).flatten().unique()  # (C,)
        tried = (times[:, None] / per_step * (1 + 1e-9)).floor().clamp(1, enough)  # Q (C, M)
        cost = (self.overhead + (tried * per_step).amax(dim=1)) * self.rounds_needed(tried).mean(dim=1)
        best: Tensor = tried[cost.argmin()]
        return best.long()

    def rounds_needed(self, steps: Tensor) -> Tensor:
        """(rounds_needed), up to a factor."""
        return (1 + self.drift * (steps - 1).square()) / steps

    def learn(self, cohort: Cohort, plan: RoundPlan, uploaded: Mapping[str, Tensor], reply: Received) -> None:
        """Keep the labels of round 0; afterwards Q_k steps with the others' part as it was received."""
        if plan.number == OPENING:
            return keep_labels(cohort, reply)
        inputs = learning(cohort, plan) | kept_labels(cohort, plan.rows)
        inputs |= {
            "others": reply.common["total"] - uploaded["o"],
            "share": uploaded["o"].new_ones(()),
        }  # others (P, B, K)
        steps = local_steps(cohort, plan, self.local_steps)
        both = (("head", "encoder"),)
        return descend(
            cohort,
            loss_beside_others,
            inputs,
            steps=steps,
            optimiser=self.optimiser,
            parts=both,
            round_number=plan.number,
        )  # (local_step)

    def predict(self, state: State, uploads: Uploads) -> Tensor:
        """sum_k o_k."""
        return uploads.total("o")
