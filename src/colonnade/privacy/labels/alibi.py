"""ALIBI: Laplace noise on the one-hot label, once, and Bayes' rule for the rest of the training.

    o = onehot(y) + Laplace(b) in every cell                    b = D/epsilon, standard deviation lam = sqrt(2) b
    log p(o | class c) = (|o_c| - |o_c - 1|)/b + const          since all other cells are the same for every c
    target = softmax((|o| - |o - 1|)/b + log softmax(a))        a: the summed logits, or 0 (uniform prior)

D is the L1 distance of two labels: 2 for classes (one cell falls, one rises), so lam = 2 sqrt(2)/epsilon; 1 for a
yes/no label, one cell; K for K yes/no labels, because a row's *whole* label is hidden, and all of it may change.
For such labels every output has its own Bayes' rule: target = sigmoid((|o| - |o - 1|)/b + a).

|o| - |o - 1| = 2 clip(o, 0, 1) - 1, so o is cut to [0, 1] and rounded to a grid of 2^-16 before it is kept. Both are
post-processing. The rounding also removes the last bits of floating-point Laplace noise, from which a label can be
read: every grid point stands for so many draws that its probability is right to 1e-7 while 1/b <= 10, which is
epsilon <= 20 for classes.

Derived from the idea of Malek et al. (2021), not from their program.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, final

import torch
import torch.nn.functional as F
from torch import Tensor

from colonnade.privacy.events import Event, Hides, Kind, Unit
from colonnade.privacy.labels import NoisyLabels, check, noise_stream, places
from colonnade.tasks import Task

NAME = "alibi"
GRID = 2.0**16  # points between 0 and 1


@dataclass(frozen=True)
class AlibiEvent(Event):
    """A message made from labels behind Laplace noise, which was drawn once: a second message costs nothing more."""

    kind: ClassVar[Kind] = Kind(NAME, "made from labels behind Laplace noise, drawn once", Hides.LABELS)

    epsilon: float  # of one row's whole label
    noise_std: float
    outputs: float
    uniform_rounds: float
    unit: Unit = field(default=Unit.LABEL, kw_only=True)

    @property
    def pure(self) -> float:
        """Of one row's whole label."""
        return self.epsilon


@final
@dataclass(frozen=True)
class Alibi(NoisyLabels):
    """Labels behind Laplace noise that was drawn once."""

    @classmethod
    def of(cls, values: Tensor, task: Task, rows: Tensor, epsilon: float, uniform_rounds: int, key: int) -> Alibi:
        """Noise the labels of `rows`, each once; of `values` nothing else is read.

        Args:
            values: all labels, (N,) classes or (N, K) zeros and ones.
            task: what kind of labels.
            outputs: classes, or yes/no labels.
            rows: row numbers to protect: those that train, and those that validate.
            epsilon: of one row's whole label.
            uniform_rounds: rounds before the model's own logits become the prior.
            key: of the noise, secret; up to 128 bits.
        """
        check(NAME, task, epsilon)
        chosen, place = places(len(values), rows)
        clean = cells(values[chosen.to(values.device)].cpu(), task)  # (R, K)
        b = noise_scale(task, epsilon)
        shape = (
            len(values),
            task.outputs,
        )  # by row number: a row's noise does not depend on which others train
        noise = torch.from_numpy(noise_stream(key, NAME, epsilon, shape).laplace(0.0, b, shape))[chosen]
        evidence = log_odds(clean + noise, b)
        return cls(task, epsilon, uniform_rounds, evidence.to(values.device), place.to(values.device))

    @property
    def noise_std(self) -> float:
        """The standard deviation of the noise in a cell, lam."""
        return math.sqrt(2) * noise_scale(self.task, self.epsilon)

    @cached_property
    def event(self) -> AlibiEvent:
        """What the ledger says of messages that are made from them."""
        return AlibiEvent(self.epsilon, self.noise_std, float(self.task.outputs), float(self.uniform_rounds))

    def compact(self, rows: Tensor) -> Tensor:
        """The posterior under a uniform prior: a byte per class, the likeliest is 255; yes/no labels in float16."""
        target = self.held_out(rows)
        if self.task.exclusive:
            return (255 * target / target.amax(dim=1, keepdim=True)).round().to(torch.uint8)
        return target.to(torch.float16)


def cells(values: Tensor, task: Task) -> Tensor:
    """Labels as (R, K) zeros and ones in float64."""
    if task.exclusive:
        return F.one_hot(values.to(torch.int64), task.outputs).to(torch.float64)
    return values.to(torch.float64).reshape(-1, task.outputs)


def noise_scale(task: Task, epsilon: float) -> float:
    """b = D/epsilon, D the L1 distance of the two most different labels of a row."""
    return task.label_distance / epsilon


def log_odds(noisy: Tensor, b: float) -> Tensor:
    """(|o| - |o - 1|)/b, o kept on a grid."""
    kept = (noisy.clamp(0, 1) * GRID).round() / GRID
    return (2 * kept - 1) / b
