"""What of a coordinator survives a restart beside its tensors."""

from __future__ import annotations

from typing import TypedDict

from colonnade.admm.stopping import WatchFacts


class CoordinatorFacts(TypedDict):
    """What of a coordinator survives a restart as plain values."""

    number: int
    keep: bool
    stop: str | None
    learners: list[str]
    away: list[str]
    steps: list[list[str | int]]
    watch: WatchFacts
    metric: str
    best_scores: dict[str, float | None]
    decision: dict[str, object] | None
