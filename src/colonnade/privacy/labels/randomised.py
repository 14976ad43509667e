"""Randomised response: each label is kept with a known probability, else replaced, once before training.

    classes     keep with probability p = e^epsilon/(e^epsilon + K - 1), else one of the K - 1 others, all alike
                log p(r | class c) = epsilon [r = c] + const
                target = softmax(epsilon onehot(r) + log softmax(a))          a: the summed logits, or 0
    yes/no      each of K labels is kept with p = e^(epsilon/K)/(e^(epsilon/K) + 1), else turned round
                target = sigmoid(epsilon/K (2 r - 1) + a)

Two labels of a row give any answer with probabilities that differ by a factor of e^epsilon at most: p against
(1 - p)/(K - 1) for classes; for K yes/no labels K factors of e^(epsilon/K), since all of them may change.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, final

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from colonnade.privacy.events import Event, Hides, Kind, Unit
from colonnade.privacy.labels import NoisyLabels, check, noise_stream, places
from colonnade.tasks import Task

NAME = "randomised response"


@dataclass(frozen=True)
class RandomisedResponseEvent(Event):
    """A message made from labels of which some were replaced, once: a second message costs nothing more."""

    kind: ClassVar[Kind] = Kind(NAME, "made from labels of which some were replaced, drawn once", Hides.LABELS)

    epsilon: float  # of one row's whole label
    keep: float  # how likely a label is kept
    outputs: float
    uniform_rounds: float
    unit: Unit = field(default=Unit.LABEL, kw_only=True)

    @property
    def pure(self) -> float:
        """Of one row's whole label."""
        return self.epsilon


@final
@dataclass(frozen=True)
class RandomisedResponse(NoisyLabels):
    """Labels of which some were replaced, once."""

    @classmethod
    def of(
        cls, values: Tensor, task: Task, rows: Tensor, epsilon: float, uniform_rounds: int, key: int
    ) -> RandomisedResponse:
        """Draw the answers for `rows`, each once; of `values` nothing else is read. Arguments as for `Alibi.of`."""
        check(NAME, task, epsilon)
        chosen, place = places(len(values), rows)
        clean = values[chosen.to(values.device)].cpu().to(torch.int64).numpy()
        answered = torch.from_numpy(_answers(clean, chosen.numpy(), len(values), task, epsilon, key))
        weight = epsilon if task.exclusive else epsilon / task.outputs
        one = F.one_hot(answered, task.outputs) if task.exclusive else 2 * answered.reshape(-1, task.outputs) - 1
        evidence = weight * one.to(torch.float64)  # (R, K)
        return cls(task, epsilon, uniform_rounds, evidence.to(values.device), place.to(values.device))

    @cached_property
    def event(self) -> RandomisedResponseEvent:
        """What the ledger says of messages that are made from them."""
        keep = keep_probability(self.task, self.epsilon)
        return RandomisedResponseEvent(self.epsilon, keep, float(self.task.outputs), float(self.uniform_rounds))

    def compact(self, rows: Tensor) -> Tensor:
        """The answers themselves, a byte each where it fits: the form of plain labels."""
        evidence = self.about(rows)
        return self.task.compact(evidence.argmax(dim=1) if self.task.exclusive else evidence > 0)


def keep_probability(task: Task, epsilon: float) -> float:
    """How likely one label is kept: of K classes, or each of K yes/no labels."""
    if task.exclusive:
        return 1 / (1 + (task.outputs - 1) * math.exp(-epsilon))
    return 1 / (1 + math.exp(-epsilon / task.outputs))


def _answers(
    clean: np.ndarray, rows: np.ndarray, count: int, task: Task, epsilon: float, key: int
) -> np.ndarray:  # (R,) or (R, K)
    """Keep or replace; drawn by row number, so that a row's answer does not depend on which others train."""
    outputs, keep = task.outputs, keep_probability(task, epsilon)
    generator = noise_stream(key, NAME, epsilon, (count, outputs))
    if not task.exclusive:
        kept = generator.random((count, outputs))[rows] < keep
        return np.where(kept, clean.reshape(-1, outputs), 1 - clean.reshape(-1, outputs))
    kept = generator.random(count)[rows] < keep
    other = (clean + generator.integers(1, outputs, count)[rows]) % outputs
    return np.where(kept, clean, other)
