"""AdaVFL (Zhang et al., 2022): logits as in `fdml`, several local steps, as many per party as pay in time.

    coordinator  before round 1: the labels of all training rows, once                down: one byte per row
    party        o_k = f(x_k) W_k                                                      up: b x d_c
    coordinator  s = sum_k o_k and the step counts Q, the same for all                 down: b x d_c + M
    party        Q_k steps on (1/b) sum_j l(s - o_k + f(x_k) W_k, y_j), the others' part frozen       (local_step)

There is no public program; our reading of "the number of local updates that minimises the overall time":

    seconds of a round         T(Q) = latency + max_k Q_k s_k                                         (round_time)
    rounds to an accuracy      R(Q) ~ mean_k (1 + drift (Q_k - 1)^2) / Q_k                            (rounds_needed)
    Q = argmin T(Q) R(Q),  1 <= Q_k <= local_steps                                                    (choose_steps)

s_k are party k's seconds per step. R falls as 1/Q_k while steps on a frozen view still help, and rises when that view
has gone stale: the two terms of the usual bounds for local steps (FedBCD: 1/(eta Q R) + eta^2 Q^2). For a given T the
best Q_k are as many steps as fit into it, up to the minimum of R, so it is enough to try each T at which some
party finishes a step.

Seconds are simulated, never read from a clock, so that a run can be repeated: party k takes 1/speed_k per step, times
a draw of relative spread `jitter` in each round. Every `reestimate_every` rounds s_k becomes the mean of what was
seen since the last time, and Q is chosen again; before the first time all parties take `local_steps`.

The coordinator needs only the total of the logits, so a secure sum can stand in the way. Labels: every party
holds them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from colonnade.config import Settings
from colonnade.errors import ConfigError
from colonnade.methods._given import OPENING, keep_labels, kept_labels, learning, loss_beside_others, release_labels
from colonnade.methods._steps import agreement
from colonnade.methods.base import Heard, Received, Reply, State
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
from colonnade.schedule import Turn

Speed = Annotated[float, Field(gt=0)]


class AdaVFL(Settings):
    """Logits are summed; parties know the labels and take as many local steps as pay in time."""

    name: ClassVar[str] = "adavfl"
    hears: ClassVar[Literal["each", "total", "nothing"]] = "total"
    exposes: ClassVar[LabelExposure] = LabelExposure.FULL
    pools: ClassVar[bool] = False

    local_steps: int = Field(10, ge=1, description="most steps per round, and what all take before the first choice")
    optimiser: Optimiser = Field(AdamW(lr=1e-3, weight_decay=1e-2), description="local optimiser")
    speeds: Speed | tuple[Speed, ...] = Field(
        10.0, description="local steps per simulated second: one number for all parties, or one for each in order"
    )
    jitter: float = Field(0.0, ge=0, description="relative spread of a party's seconds per step from round to round")
    latency: float = Field(1.0, ge=0, description="simulated seconds of communication per round")
    drift: float = Field(0.01, ge=0, description="how fast steps on a frozen view of the others lose their worth")
    reestimate_every: int = Field(3, ge=1, description="rounds between two choices of the step counts")

    def open_party(self, cohort: Cohort) -> None:
        """Each party draws its own head."""
        cohort.own_heads()

    def open_coordinator(self, schema: Schema, labels: Labels) -> tuple[State, Reply | None]:
        """The labels go down once; nothing has been timed yet."""
        count = len(schema.parties)
        if isinstance(self.speeds, tuple) and len(self.speeds) != count:
            raise ConfigError(
                f"speeds has {len(self.speeds)} numbers for {count} parties; give one for each, or a single number"
            )
        given = torch.tensor(self.speeds, dtype=torch.float64, device=schema.device).expand(count)
        state = {
            "speeds": given.clone(),
            "seconds": torch.zeros_like(given),  # per step, summed over the rounds since the last choice
            "steps": torch.full((count,), self.local_steps, dtype=torch.int32, device=schema.device),
            "clock": given.new_zeros(()),  # simulated seconds since the start
            "seed": torch.tensor(schema.seed, device=schema.device),
        }
        return state, release_labels(schema, labels)

    def says(self, schema: Schema, group: Group) -> Mapping[str, Array]:
        """What a party sends per row."""
        return {"o": Array(schema.outputs)}

    def speak(self, cohort: Cohort, x: Tensor, training: bool) -> Upload:
        """The logits, dropout off."""
        return Upload({"o": apply_heads(cohort.head, cohort.encode(x, Mode.SPEAK if training else Mode.PREDICT))})

    def coordinate(self, state: State, turn: Turn, heard: Heard, labels: Labels) -> Reply:
        """Time the round, choose Q when it is due, and send the sum back."""
        total = heard.total("o")  # s (B, K)
        seconds = self.timed(state, turn.number)
        state["seconds"] = state["seconds"] + seconds
        if turn.number % self.reestimate_every == 0:
            state["steps"] = self.choose_steps(state["seconds"] / self.reestimate_every)
            state["seconds"] = torch.zeros_like(seconds)
        state["clock"] = state["clock"] + self.latency + (state["steps"] * seconds).max()  # (round_time)
        notes = {
            "batch_accuracy": agreement(total, labels.targets(turn, total)),
            "mean_steps": state["steps"].double().mean(),
            "simulated_seconds": state["clock"],
        }
        return Reply({"total": total, "steps": state["steps"]}, notes=notes)

    def timed(self, state: State, number: int) -> Tensor:
        """Seconds per step of every party in a round (M,): a function of seed and round only."""
        spread = stream(int(state["seed"]), "seconds per step", turn=number).standard_normal(len(state["speeds"]))
        noise = torch.from_numpy(spread).to(state["speeds"])
        return (self.jitter * noise).exp() / state["speeds"]

    def choose_steps(self, seconds: Tensor) -> Tensor:
        """(choose_steps) for seconds per step (M,): try every time at which a party finishes a step."""
        per_step = seconds.cpu()  # s (M,)
        counts = torch.arange(1, self.local_steps + 1, dtype=torch.float64)
        enough = int(self.rounds_needed(counts).argmin()) + 1  # the minimum of R: no party gains from more
        times = (counts[:enough, None] * per_step).flatten().unique()  # (C,)
        tried = (times[:, None] / per_step * (1 + 1e-9)).floor().clamp(1, enough)  # Q (C, M)
        cost = (self.latency + (tried * per_step).amax(dim=1)) * self.rounds_needed(tried).mean(dim=1)
        best: Tensor = tried[cost.argmin()]
        return best.to(seconds.device, torch.int32)

    def rounds_needed(self, steps: Tensor) -> Tensor:
        """(rounds_needed), up to a factor."""
        return (1 + self.drift * (steps - 1).square()) / steps

    def learn(self, cohort: Cohort, turn: Turn, said: Mapping[str, Tensor], reply: Received) -> None:
        """Keep the labels of turn 0; afterwards Q_k steps with the others' part as it was heard."""
        if turn.number == OPENING:
            return keep_labels(cohort, reply)
        inputs = learning(cohort, turn) | {
            "others": reply.common["total"] - said["o"],  # (P, B, K)
            "targets": kept_labels(cohort, turn.rows),
            "share": said["o"].new_ones(()),
        }
        chosen = dict(zip(cohort.schema.parties, reply.common["steps"].tolist(), strict=True)) | dict(turn.steps)
        steps = [chosen[name] for name in cohort.names]
        both = (("head", "encoder"),)
        return descend(
            cohort, loss_beside_others, inputs, steps=steps, optimiser=self.optimiser, parts=both, turn=turn.number
        )  # (local_step)

    def predict(self, state: State, heard: Heard) -> Tensor:
        """sum_k o_k."""
        return heard.total("o")
