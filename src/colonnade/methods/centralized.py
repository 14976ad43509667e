"""centralized: the reference that no federation can run: all columns and labels in one place.

The same network and head as one party's, trained on the unsplit columns (the paper's "reference model
in the centralized setting"). `pools` tells the training loop to build that one pretended party.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor

from colonnade.config import Settings
from colonnade.methods.base import Received, Reply, State, Uploads
from colonnade.methods.local_only import LocalOnly
from colonnade.models.cohort import Cohort
from colonnade.models.optimise import AdamW, Optimiser
from colonnade.models.schema import Group, Schema
from colonnade.privacy.events import LabelExposure
from colonnade.privacy.labels import Labels
from colonnade.privacy.sealed import Array, Upload
from colonnade.schedule import RoundPlan


class Centralized(Settings):
    """One model over all columns in one place: a reference, not a federation."""

    name: ClassVar[str] = "centralized"
    needs_uploads: ClassVar[Literal["each", "total", "nothing"]] = "nothing"
    exposes: ClassVar[LabelExposure] = LabelExposure.FULL
    pools: ClassVar[bool] = True

    local_steps: int = Field(1, ge=1, description="gradient steps per batch of rows")
    optimiser: Optimiser = Field(AdamW(lr=2e-3, weight_decay=1e-2), description="optimiser")
    smoothing: float = Field(0.0, ge=0, lt=1, description="label smoothing: weight spread evenly over all classes")

    @property
    def alone(self) -> LocalOnly:
        """A single party that holds everything trains as any party alone does."""
        return LocalOnly(local_steps=self.local_steps, optimiser=self.optimiser, smoothing=self.smoothing)

    def open_party(self, cohort: Cohort) -> None:
        """See `local_only`."""
        self.alone.open_party(cohort)

    def open_coordinator(self, schema: Schema, labels: Labels) -> tuple[State, Reply | None]:
        """See `local_only`."""
        return self.alone.open_coordinator(schema, labels)

    def upload_arrays(self, schema: Schema, group: Group) -> Mapping[str, Array]:
        """What a party sends per row."""
        return self.alone.upload_arrays(schema, group)

    def upload(self, cohort: Cohort, x: Tensor, training: bool) -> Upload:
        """See `local_only`."""
        return self.alone.upload(cohort, x, training)

    def coordinate(self, state: State, plan: RoundPlan, uploads: Uploads, labels: Labels) -> Reply:
        """See `local_only`."""
        return self.alone.coordinate(state, plan, uploads, labels)

    def learn(self, cohort: Cohort, plan: RoundPlan, uploaded: Mapping[str, Tensor], reply: Received) -> None:
        """See `local_only`."""
        self.alone.learn(cohort, plan, uploaded, reply)

    def predict(self, state: State, uploads: Uploads) -> Tensor:
        """See `local_only`."""
        return self.alone.predict(state, uploads)
