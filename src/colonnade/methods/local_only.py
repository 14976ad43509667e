"""local_only: every party trains alone on the released labels; nobody uploads until prediction.

The honest baseline of any privacy claim: since labels reach the parties of ADMM methods anyway,
a party could as well train on them by itself, and no feature ever leaves it in training.

A prediction is a weighted sum of the parties' outputs and a bias. Each evaluation fits one weight per party and one
bias per output on the validation rows (`models/blend.py`); those of the best round are kept with its models. Where
nothing can be fitted, the prediction is the mean: without an evaluation, and under a secure sum, which opens only
totals. The validation score is of rows that the weights were fitted on, and so a little too good; test rows are
untouched.

With `privacy.unit = "row"` the local steps are those of DP-SGD (`models/row_steps.py`): a party draws the rows of each
step itself, whatever rows a round names, and the weights are fitted on rows that nothing is promised about.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from colonnade.config import Settings
from colonnade.errors import GateError
from colonnade.methods._given import OPENING, keep_labels, kept_labels, learning, own_loss, release_labels
from colonnade.methods._steps import local_steps
from colonnade.methods.base import Received, Reply, State, Uploads
from colonnade.models.blend import fit_blend
from colonnade.models.by_row import RowTraining
from colonnade.models.cohort import Cohort
from colonnade.models.descend import descend
from colonnade.models.heads import apply_heads
from colonnade.models.optimise import AdamW, Optimiser
from colonnade.models.row_steps import open_steps, steps_by_row
from colonnade.models.schema import Group, Schema
from colonnade.models.stack import Mode
from colonnade.privacy.events import LabelExposure
from colonnade.privacy.labels import Labels
from colonnade.privacy.sealed import Array, Upload
from colonnade.schedule import RoundPlan


class LocalOnly(Settings):
    """Every party trains alone on the released labels; predictions are weighed on validation rows."""

    name: ClassVar[str] = "local_only"
    needs_uploads: ClassVar[Literal["each", "total", "nothing"]] = "nothing"
    exposes: ClassVar[LabelExposure] = LabelExposure.FULL
    pools: ClassVar[bool] = False
    lacking: ClassVar[bool] = True
    by_row: ClassVar[bool] = True  # parties may train with noise for every row (privacy.unit = "row")

    local_steps: int = Field(1, ge=1, description="gradient steps per batch of rows")
    optimiser: Optimiser = Field(AdamW(lr=2e-3, weight_decay=1e-2), description="local optimiser")
    smoothing: float = Field(0.0, ge=0, lt=1, description="label smoothing: weight spread evenly over all classes")

    def open_party(self, cohort: Cohort) -> None:
        """Each party draws its own head."""
        cohort.own_heads()
        if cohort.by_row is not None:
            open_steps(cohort)

    def open_coordinator(self, schema: Schema, labels: Labels) -> tuple[State, Reply | None]:
        """The labels of all training rows go down once, before round 1."""
        state = {"share": torch.tensor(1 / len(schema.parties), dtype=schema.dtype, device=schema.device)}
        return state, release_labels(schema, labels)

    def upload_arrays(self, schema: Schema, group: Group) -> Mapping[str, Array]:
        """What a party sends per row."""
        return {"o": Array(schema.outputs)}

    def upload(self, cohort: Cohort, x: Tensor, training: bool) -> Upload:
        """Logits; only ever asked for evaluation and prediction."""
        return Upload(self.computed(cohort, x, Mode.PREDICT))

    def computed(self, cohort: Cohort, x: Tensor, mode: Mode) -> dict[str, Tensor]:
        """f(x) W of every party."""
        return {"o": cohort.silent_where_lacking(apply_heads(cohort.head, cohort.encode(x, mode)))}

    def coordinate(self, state: State, plan: RoundPlan, uploads: Uploads, labels: Labels) -> Reply:
        """Nothing was uploaded and nothing is answered."""
        return Reply()

    def learn(self, cohort: Cohort, plan: RoundPlan, uploaded: Mapping[str, Tensor], reply: Received) -> None:
        """Keep the labels of round 0; afterwards take local steps on the round's rows."""
        if plan.number == OPENING:
            return keep_labels(cohort, reply)
        if cohort.by_row is not None:
            return self._learn_by_row(cohort, cohort.by_row, plan)
        inputs = learning(cohort, plan) | kept_labels(cohort, plan.rows, self.smoothing)
        steps = local_steps(cohort, plan, self.local_steps)
        return descend(
            cohort,
            own_loss,
            inputs,
            steps=steps,
            optimiser=self.optimiser,
            parts=(("head", "encoder"),),
            round_number=plan.number,
        )

    def _learn_by_row(self, cohort: Cohort, how: RowTraining, plan: RoundPlan) -> None:
        """The same steps on rows that each party draws at home, with noise; the round's own rows are not used."""
        steps = local_steps(cohort, plan, self.local_steps)
        if not isinstance(steps, int):
            raise GateError("privacy.unit = 'row': a round asks for other local steps than those that were agreed on")
        steps_by_row(cohort, how, self.optimiser, plan.number, steps, self.smoothing)

    def fit_outputs(self, state: State, uploads: Sequence[Uploads], labels: Labels, rows: Tensor) -> None:
        """Weights and biases that suit the (possibly noisy) labels of the validation rows best."""
        parts = torch.cat([_each(one) for one in uploads], dim=1)  # (M, B, K)
        targets = labels.held_out(rows)
        blend = fit_blend(labels.task, parts, targets, labels.weights(rows, targets))
        state["weights"], state["bias"] = blend.weights.to(parts), blend.bias.to(parts)

    def predict(self, state: State, uploads: Uploads) -> Tensor:
        """The weighted sum of the outputs; their mean where no weights were fitted."""
        if "weights" not in state:  # older saved runs have share = 1 for classes: the sum
            return uploads.total("o") * state["share"]
        return torch.einsum("m,mbk->bk", state["weights"], _each(uploads)) + state["bias"]

    def knows_subsets(self, state: Mapping[str, Tensor]) -> bool:
        """Where nothing was fitted, the mean is the answer of any parties: each is a model by itself."""
        return "weights" not in state

    def predict_without(self, state: State, uploads: Uploads, present: Sequence[Tensor]) -> Tensor:
        """The mean of those present."""
        return _each(uploads)[torch.cat(tuple(present))].mean(dim=0)

    def scores(self, state: State, uploads: Uploads) -> Tensor:
        """An M-th of each party's outputs, as their mean has it."""
        return _each(uploads) * state["share"]


def _each(uploads: Uploads) -> Tensor:
    """Every party's upload, (M, B, K): group by group."""
    return torch.cat([group["o"] for group in uploads.groups])
