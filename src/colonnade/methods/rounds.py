"""What a method may ask of its rounds: all training rows in each, a usual number of them, validation rows in each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

from torch import Tensor

from colonnade.admm.stopping import Stopping
from colonnade.methods.base import Method, State, Uploads
from colonnade.privacy.labels import Labels
from colonnade.schedule import Schedule, ScheduleSettings


@dataclass(frozen=True)
class Usual:
    """How a method is trained where the settings of a training say nothing."""

    rounds: int
    evaluate_every: int
    patience: int
    by_loss: bool  # where nobody names a metric, the loss keeps a round and stops, as far as labels are plain

    def where_unsaid(self, said: set[str], stopping: Stopping) -> dict[str, object]:
        """Settings of a training that nobody said; whoever says anything about stopping says all of it."""
        new: dict[str, object] = {} if said & {"rounds", "epochs"} else {"rounds": self.rounds}
        if "evaluate_every" not in said:
            new["evaluate_every"] = self.evaluate_every
        if "stopping" not in said:
            new["stopping"] = stopping.model_copy(update={"patience": self.patience})
        return new


@runtime_checkable
class HasUsual(Protocol):
    """A method that says how long its trainings usually are."""

    usual: ClassVar[Usual]


@dataclass(frozen=True)
class New:
    """Whose increments about which validation rows have come, in pieces one after the other."""

    rows: Tensor  # (V,) row numbers
    senders: tuple[str, ...]  # who told theirs about training rows, too


@runtime_checkable
class AddsIncrements(Protocol):
    """A method whose parties upload what is new while they train, and all that they have outside of training.

    It asks about the validation rows in every round, unless nothing is ever evaluated, and chooses by some of them what
    counts of the increments; the others judge.
    """

    def add_increments(self, state: State, uploads: Sequence[Uploads], labels: Labels, new: New) -> list[Uploads]:
        """What the parties' models say about validation rows, as they would upload it outside of training.

        That is without the increments of these uploads, which are weighed now and counted from the next time on.
        Only `labels.held_out` and `labels.compact` may be used.
        """

    def judging(self, rows: Tensor) -> Tensor:
        """Places (J,) among the validation rows of those that judge the rounds."""


def schedule_of(
    method: Method, settings: ScheduleSettings, train: Tensor, parties: tuple[str, ...], seed: int
) -> Schedule:
    """The plans of a method's rounds."""
    uploads, whole = method.needs_uploads != "nothing", bool(getattr(method, "whole", False))
    return Schedule(settings, train, parties, seed, uploads, whole)


def outside_training(method: Method, state: State, uploads: list[Uploads], labels: Labels, new: New) -> list[Uploads]:
    """Uploads about validation rows as parties would make them outside of training; what is new in them is counted."""
    return method.add_increments(state, uploads, labels, new) if isinstance(method, AddsIncrements) else uploads
