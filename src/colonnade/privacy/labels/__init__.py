"""What training may see of the labels: the protocol, and what every label mechanism has in common.

A mechanism looks at the plain labels once, when it is made, and keeps only *evidence*: for every row and output
the logarithm of how likely the noisy label is if that output were the true one. Bayes' rule turns evidence and a
prior into a target, as often as training likes: that is post-processing, and costs nothing. No object of a
mechanism holds a plain label.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from colonnade.errors import ConfigError, GateError
from colonnade.privacy.events import Event
from colonnade.randomness import stream
from colonnade.tasks import Task


class Visit(Protocol):
    """The part of a round that labels need to know; a `colonnade.schedule.RoundPlan` is one."""

    @property
    def number(self) -> int:
        """The round, counted from 1."""
        ...

    @property
    def rows(self) -> Tensor:
        """(B,) row numbers."""
        ...


class Labels(Protocol):
    """The label holder's labels, as the methods may use them."""

    @property
    def task(self) -> Task:
        """What kind of labels."""
        ...

    @property
    def event(self) -> Event:
        """What the ledger says of messages that are made from them."""
        ...

    @property
    def epsilon(self) -> float | None:
        """Pure label privacy of one row's whole label; None: unprotected, exposure FULL."""
        ...

    def targets(self, plan: Visit, logits: Tensor) -> Tensor:
        """Targets (B, K) for the round's rows; a mechanism may use the current logits (B, K) as a prior."""
        ...

    def held_out(self, rows: Tensor) -> Tensor:
        """Targets (B, K) in float64 of rows to validate on, from the labels alone."""
        ...

    def state(self) -> dict[str, Tensor]:
        """What prediction needs of the labels' scale; empty for classes."""
        ...

    def compact(self, rows: Tensor) -> Tensor:
        """Targets of some rows in a small form that can travel; `Task.expand` reads it."""
        ...

    def weights(self, rows: Tensor, targets: Tensor) -> Tensor | None:
        """How much the loss of each row (B,) counts, its targets (B, K) being these; None: all alike."""
        ...


@dataclass(frozen=True)
class NoisyLabels(ABC):
    """Labels behind a mechanism: evidence about some rows, and Bayes' rule. A mechanism says how evidence is made."""

    task: Task
    epsilon: float
    uniform_rounds: int  # rounds 1 to this one do not listen to the model
    evidence: Tensor = field(repr=False)  # (R, K) float64, of the protected rows
    place: Tensor = field(repr=False)  # (N,) where a row's evidence stands; -1: its label was never looked at

    @property
    @abstractmethod
    def event(self) -> Event:
        """What the ledger says of messages that are made from them."""

    @abstractmethod
    def compact(self, rows: Tensor) -> Tensor:
        """Noisy targets of some rows in a small form that can travel."""

    def targets(self, plan: Visit, logits: Tensor) -> Tensor:
        """The posterior (B, K); its prior is uniform at first, and later what the model believes."""
        prior = logits if plan.number > self.uniform_rounds else torch.zeros_like(logits)
        return posterior(self.about(plan.rows).to(logits.dtype), prior, self.task)

    def held_out(self, rows: Tensor) -> Tensor:
        """The posterior under a uniform prior: it knows nothing of the model, so the model may be judged by it.

        The mean of the predicted classes' entries rises linearly with the true accuracy (expected over the noise,
        for a mechanism that treats all classes alike), so the best round by one is the best by the other.
        """
        evidence = self.about(rows)
        return posterior(evidence, torch.zeros_like(evidence), self.task)

    def state(self) -> dict[str, Tensor]:
        """Nothing: classes have no scale."""
        return {}

    def weights(self, rows: Tensor, targets: Tensor) -> Tensor | None:
        """All alike; `WeightedLabels` knows others."""
        return None

    def about(self, rows: Tensor) -> Tensor:
        """Evidence (B, K) on some rows; refused for a row whose label did not pass the mechanism."""
        places = self.place[rows.to(self.place.device)]
        if bool((places < 0).any()):
            missing = int(rows.to(places.device)[places < 0][0])
            raise GateError(
                f"the label of row {missing} did not pass the mechanism, so it cannot be used; "
                "ask for training rows, or for the validation rows the mechanism was opened with"
            )
        return self.evidence[places]


def posterior(evidence: Tensor, prior_logits: Tensor, task: Task) -> Tensor:
    """Bayes' rule (B, K): classes exclude each other, the outputs of other tasks stand each on its own."""
    if task.exclusive:
        return (evidence + prior_logits.log_softmax(dim=1)).softmax(dim=1)
    return (evidence + prior_logits).sigmoid()


def places(count: int, rows: Tensor) -> tuple[Tensor, Tensor]:
    """The protected rows, each once and in order, and where each of all `count` rows stands among them, or -1."""
    chosen = rows.to("cpu", torch.int64).unique()
    place = torch.full((count,), -1, dtype=torch.int64)
    place[chosen] = torch.arange(len(chosen))
    return chosen, place


def check(mechanism: str, task: Task, epsilon: float) -> None:
    """Refuse what no label mechanism can do."""
    if task.label_noise is None:
        raise ConfigError(
            f"label mechanism {mechanism!r} protects classes and yes/no labels; the labels of a {task.words} task are "
            "numbers without a bound; use mechanism = 'none', or cut the numbers into classes"
        )
    if not (0 < epsilon < math.inf):
        raise ConfigError(f"label mechanism {mechanism!r} needs a finite epsilon above 0; got {epsilon}")
    if task.exclusive and task.outputs < 2:
        raise ConfigError(f"label mechanism {mechanism!r} needs at least two classes; got {task.outputs}")


def noise_stream(key: int, mechanism: str, epsilon: float, shape: tuple[int, ...]) -> np.random.Generator:
    """Philox keyed from 128 bits and from what it is for.

    Never the same numbers for two settings: noise of two known scales around the same label would be solved for it.
    """
    if not 0 < key < 2**128:
        raise ConfigError("the key of the label noise is a number of up to 128 bits, above 0; draw one for this run")
    return stream(key, f"labels {mechanism} {epsilon!r} {'x'.join(map(str, shape))}")
