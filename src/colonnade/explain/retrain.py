"""Train again as a run was trained, on other columns, with another method or for fewer rounds.

Retraining evaluates the test rows only if that is asked for: otherwise they are taken out of the data first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from colonnade.engines.base import Encoders
from colonnade.errors import ConfigError
from colonnade.evaluate.metrics import choose_metric, find_metric
from colonnade.federation import Federation
from colonnade.fit import fit
from colonnade.methods.base import Method
from colonnade.progress import Watcher
from colonnade.run import Run

Watch = Callable[[str, int], Watcher | None]  # name and rounds of a training -> what watches it


def unwatched(name: str, rounds: int) -> None:
    """Nobody watches."""


@dataclass(frozen=True)
class Again:
    """How a run is trained again, and on which rows the result is judged."""

    run: Run
    rows: Literal["validation", "test"] = "validation"
    watch: Watch = unwatched
    uncovered: bool = False

    def __post_init__(self) -> None:
        if self.run.privacy.noised and not self.uncovered:
            raise ConfigError(
                "training again releases as much again, which the run's epsilon does not cover; "
                "set uncovered = true (--uncovered) to do it all the same"
            )
        now = choose_metric(self.run.task, self.run.training.metric)
        judged = {find_metric(name) for name in (self.run.metric, self.run.result.get("validation_metric")) if name}
        if judged != {now}:
            names = " and ".join(sorted(metric.title for metric in judged))
            raise ConfigError(
                f"this run was judged by {names}, a training now is judged by {now.title}, and the "
                "two cannot be compared: train it again, with both classes among the validation rows"
            )

    def train(
        self, federation: Federation, name: str, *, method: Method | None = None, rounds: int | None = None
    ) -> Run:
        """One training; it differs from the run's only in what is given here."""
        run = self.run
        if self.rows == "validation":
            federation = replace(federation, split=replace(federation.split, test=federation.split.test[:0]))
        length = run.training.rounds if rounds is None else rounds
        training = run.training.model_copy(update={"rounds": length})
        return fit(
            federation,
            run.method if method is None else method,
            training=training,
            model=run.model_settings.only(federation.names),
            encoders=_of(run.encoders, federation.names),
            privacy=run.privacy,
            watch=self.watch(name, length),
        )

    def score(self, run: Run) -> float | None:
        """The score of a training on the chosen rows: of the round that the validation rows chose."""
        value: float | None = run.result["validation_score" if self.rows == "validation" else "test_score"]
        return value


def _of(encoders: Encoders, names: Sequence[str]) -> Encoders:
    """The user's own local models of the parties that are left."""
    if not isinstance(encoders, Mapping):
        return encoders
    return {name: model for name, model in encoders.items() if name in names}
