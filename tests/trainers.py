"""Training one round at a time: what `colonnade.testing` has for it, under the name that tests here use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor

from colonnade.run import Run
from colonnade.testing.trainings import (
    ENGINES,
    TINY,
    Recorded,
    TrainedRound,
    assert_same_tensors,
    events,
    open_trainer,
    party_tensors,
    record,
    rounds_of,
    unsigned,
    untimed,
)

__all__ = [
    "ENGINES",
    "TINY",
    "Recorded",
    "TrainedRound",
    "assert_same_tensors",
    "changed",
    "events",
    "open_trainer",
    "party_tensors",
    "record",
    "rounds_of",
    "unsigned",
    "untimed",
]


def changed(run: Run, *, models: Mapping[str, Mapping[str, Tensor]] | None = None, **model: Any) -> Run:
    """The run with other numbers at its parties, or other facts about its model."""
    parts = run.model.parts
    if models is not None:
        parts = {party: replace(parts[party], tensors=tensors) for party, tensors in models.items()}
    return replace(run, model=replace(run.model, **{"parts": parts, **model}))
