"""local_only: every party trains alone on the released labels; nobody speaks until prediction.

The honest baseline of any privacy claim: since labels reach the parties of ADMM methods anyway,
a party could as well train on them by itself, and no feature ever leaves it in training.
Prediction is the sum of the parties' logits (for regression: the mean of their predictions).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from colonnade.config import Settings
from colonnade.federation import Task
from colonnade.methods._steps import local_steps, task_loss
from colonnade.methods.base import Heard, Received, Reply, State
from colonnade.models.cohort import Cohort
from colonnade.models.descend import descend
from colonnade.models.heads import apply_heads, dropout_keys
from colonnade.models.optimise import AdamW, Optimiser
from colonnade.models.schema import Group, Schema
from colonnade.models.stack import Mode
from colonnade.privacy.events import LabelExposure
from colonnade.privacy.labels import Labels
from colonnade.privacy.labels.plain import expand
from colonnade.privacy.sealed import Array, Upload
from colonnade.randomness import dropout_key
from colonnade.schedule import Turn


class LocalOnly(Settings):
    """Every party trains alone on the released labels; predictions are summed."""

    name: ClassVar[str] = "local_only"
    hears: ClassVar[Literal["each", "total", "nothing"]] = "nothing"
    exposes: ClassVar[LabelExposure] = LabelExposure.FULL
    pools: ClassVar[bool] = False

    local_steps: int = Field(1, ge=1, description="gradient steps per batch of rows")
    optimiser: Optimiser = Field(AdamW(lr=2e-3, weight_decay=1e-2), description="local optimiser")

    def open_party(self, cohort: Cohort) -> None:
        """Each party draws its own head."""
        cohort.own_heads()

    def open_coordinator(self, schema: Schema, labels: Labels) -> tuple[State, Reply | None]:
        """The labels of all training rows go down once, before round 1."""
        share = 1 / len(schema.parties) if schema.task is Task.REGRESSION else 1.0
        state = {"share": torch.tensor(share, dtype=schema.dtype, device=schema.device)}
        return state, Reply({"targets": labels.compact(schema.train)})

    def says(self, schema: Schema, group: Group) -> Mapping[str, Array]:
        """What a party sends per row."""
        return {"o": Array(schema.outputs)}

    def speak(self, cohort: Cohort, x: Tensor, training: bool) -> Upload:
        """Logits; only ever asked for evaluation and prediction."""
        return Upload({"o": apply_heads(cohort.head, cohort.encode(x, Mode.PREDICT))})

    def coordinate(self, state: State, turn: Turn, heard: Heard, labels: Labels) -> Reply:
        """Nothing was heard and nothing is answered."""
        return Reply()

    def learn(self, cohort: Cohort, turn: Turn, said: Mapping[str, Tensor], reply: Received) -> None:
        """Keep the labels of turn 0; afterwards take local steps on the turn's rows."""
        if turn.number == 0:
            compact = reply.common["targets"]
            by_row = compact.new_zeros((len(cohort.names), cohort.schema.rows, *compact.shape[1:]))
            by_row[:, cohort.schema.train] = compact
            cohort.memory["targets"] = by_row
            return
        s = cohort.schema
        targets = expand(cohort.memory["targets"][0, turn.rows], s.task, s.outputs, s.dtype)
        keys = dropout_keys([dropout_key(s.seed, party, turn.number) for party in cohort.names], cohort.device)
        inputs = {"x": cohort.x(turn.rows), "targets": targets, "key": keys}
        steps = local_steps(cohort, turn, self.local_steps)
        descend(
            cohort,
            self.objective,
            inputs,
            steps=steps,
            optimiser=self.optimiser,
            parts=(("head", "encoder"),),
            turn=turn.number,
        )

    def objective(self, cohort: Cohort, inputs: Mapping[str, Tensor]) -> Tensor:
        """The task's own loss, each party on its own logits."""
        h = cohort.encode(inputs["x"], Mode.LEARN)
        logits = apply_heads(cohort.head, h, cohort.schema.head.dropout, inputs["key"], inputs["draw"])
        return task_loss(cohort.schema.task, logits, inputs["targets"])

    def predict(self, state: State, heard: Heard) -> Tensor:
        """Sum of the logits."""
        return heard.total("o") * state["share"]
