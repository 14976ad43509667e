"""Every party follows the slope of the loss at the sum of all logits.

    parties     : o_k = f(x_k) W_k                        (upload, K numbers per row)
    coordinator : g = dl/ds (sum_k o_k, y)                (common reply, K numbers per row)
    parties     : a step of <g, f(x_k) W_k> / B           (local)

The slope tells the labels, so the exposure is FULL.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor

from colonnade.config import Settings
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
from colonnade.schedule import RoundPlan


class SharedSlope(Settings):
    """Logits are summed; everybody steps along the slope of the loss at the sum."""

    name: ClassVar[str] = "shared_slope"
    needs_uploads: ClassVar[Literal["each", "total", "nothing"]] = "total"
    exposes: ClassVar[LabelExposure] = LabelExposure.FULL
    pools: ClassVar[bool] = False

    optimiser: Optimiser = Field(AdamW(lr=1e-2), description="local optimiser")

    def open_party(self, cohort: Cohort) -> None:
        """Each party draws its own head."""
        cohort.own_heads()

    def open_coordinator(self, schema: Schema, labels: Labels) -> tuple[State, Reply | None]:
        """Nothing is kept between rounds."""
        return {}, None

    def upload_arrays(self, schema: Schema, group: Group) -> Mapping[str, Array]:
        """Logits."""
        return {"o": Array(schema.outputs)}

    def upload(self, cohort: Cohort, x: Tensor, training: bool) -> Upload:
        """The logits, dropout off."""
        return Upload({"o": apply_heads(cohort.head, cohort.encode(x, Mode.UPLOAD if training else Mode.PREDICT))})

    def coordinate(self, state: State, plan: RoundPlan, uploads: Uploads, labels: Labels) -> Reply:
        """The slope at the sum."""
        total = uploads.total("o")  # (B, K)
        y = labels.targets(plan, total)
        return Reply({"slope": labels.task.slope(total, y)}, notes=labels.task.notes(total, y))

    def learn(self, cohort: Cohort, plan: RoundPlan, uploaded: Mapping[str, Tensor], reply: Received) -> None:
        """One step of head and encoder."""
        inputs = {"x": cohort.x(plan.rows), "slope": reply.common["slope"]}
        parts = (("head", "encoder"),)
        descend(cohort, along, inputs, steps=1, optimiser=self.optimiser, parts=parts, round_number=plan.number)

    def predict(self, state: State, uploads: Uploads) -> Tensor:
        """The sum."""
        return uploads.total("o")


def along(cohort: Cohort, inputs: Mapping[str, Tensor]) -> Tensor:
    """<g, o_k> / B, summed over the parties of the cohort: its gradient is that of the loss."""
    logits = apply_heads(cohort.head, cohort.encode(inputs["x"], Mode.LEARN))
    return (logits * inputs["slope"]).sum() / logits.shape[1]
