"""One prediction for every set of parties, from scores that were trained to be added up.

    prediction of a set S = sum_{k in S} w_k s_k + b
    w, b                  = argmin  sum_i c_i loss(prediction_i, y_i) + RIDGE/2 (|w - 1|^2 + |b|^2)

with a weight for every party of the set and a bias for every output. Parties that were trained together correct each
other, so a sum that lacks a term is a model that nobody trained: terms that the missing party held in check are too
large, and the level is wrong. Fitting the rest anew puts both right, with so few numbers that a few hundred rows are
enough. The ridge is that of a tenth of a row: it only keeps very few rows from saying anything.

The problem is convex, and solved by Newton steps in float64 on the CPU, for all sets at once: their curvatures are one
product of matrices.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from colonnade.tasks import Task

RIDGE = 0.1
STEPS = 60  # Newton needs about ten
HALVINGS = 30  # of a step that does not lower the loss
TOLERANCE = 1e-11  # of the gradient, per row
ENOUGH = 1e-6  # the same, with which a combination is an answer; with more it is none, and says so
ROUNDING = 1e-14  # of a loss: the last steps, which are the best, change less
CELLS = 2**22  # numbers of a table in between that are in memory at once


@dataclass(frozen=True)
class Combinations:
    """Of S sets of parties: weights (S, M), zero for who is not in the set, and biases (S, K); float64.

    `fitted` (S,) says which of them are an answer; none is where scores are far too large, say.
    """

    weights: Tensor
    bias: Tensor
    fitted: Tensor


def all_subsets(parties: int) -> Tensor:
    """(2^M - 1, M) every set but the empty one; party k is bit k of a set's number, and the first number is 1."""
    numbers = torch.arange(1, 2**parties)
    return (numbers[:, None] >> torch.arange(parties)) % 2 == 1


def fit_subsets(
    task: Task, scores: Tensor, targets: Tensor, sets: Tensor, counts: Tensor | None = None
) -> Combinations:
    """The best combination for each of the sets (S, M) of parties.

    Args:
        task: whose loss it is.
        scores: (M, B, K) of every party.
        targets: (B, K).
        sets: (S, M) who is in each set.
        counts: (B,) how much each row counts; None: all alike.
    """
    parties, rows = scores.shape[:2]
    heavy = torch.ones(rows, dtype=torch.float64) if counts is None else counts.double().cpu()
    problem = _Problem(task, scores.detach().double().cpu(), targets.double().cpu(), heavy, sets.cpu())
    place = problem.lowest()
    value = problem.value(place)
    going = torch.ones(len(sets), dtype=torch.bool)  # sets that are not done
    for _ in range(STEPS):
        slope, curve = problem.expand(place)
        going = going & (slope.abs().amax(dim=1) > TOLERANCE * max(1, rows))
        if not bool(going.any()):
            break
        step = torch.linalg.solve_ex(curve, -slope)[0]  # scores come from outside: what cannot be solved is not fitted
        step = step.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
        place, value, moved = _line_search(problem, place, step * going[:, None], value, slope)
        going = going & moved
    fitted = problem.expand(place)[0].abs().amax(dim=1) <= ENOUGH * max(1, rows)
    place = torch.where(fitted[:, None], place, 0.0)
    return Combinations(place[:, :parties].contiguous(), place[:, parties:].contiguous(), fitted)


def combine(weights: Tensor, bias: Tensor, scores: Tensor, present: Tensor) -> Tensor:
    """(B, K) the prediction of those present (M,), given the combination of their set; others' scores are not read."""
    chosen = present.to(scores.device).nonzero()[:, 0]
    w, b = weights.to(scores.device)[chosen], bias.to(scores.device)
    return (torch.einsum("m,mbk->bk", w, scores[chosen].double()) + b).to(scores.dtype)


def _line_search(
    problem: _Problem, place: Tensor, step: Tensor, value: Tensor, slope: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Of every set the first of ever shorter steps that lowers its loss enough (Armijo).

    Where it leads, the loss there, and whether there was one.
    """
    fall, rounding = 1e-4 * (slope * step).sum(dim=1), ROUNDING * (1 + value.abs())
    length, moved = torch.ones(len(place), dtype=torch.float64), torch.zeros(len(place), dtype=torch.bool)
    there, there_value = place, value
    for _ in range(HALVINGS):
        tried = place + step * length[:, None]
        tried_value = problem.value(tried)
        low = tried_value <= value + length * fall + rounding
        fits = ~moved & low & (tried != place).any(dim=1)
        there, there_value = torch.where(fits[:, None], tried, there), torch.where(fits, tried_value, there_value)
        moved = moved | fits
        if bool((moved | (step == 0).all(dim=1)).all()):
            break
        length = torch.where(moved, length, length / 2)
    return there, there_value, moved


@dataclass(frozen=True)
class _Problem:
    """The penalised losses of places (S, M + K): weights and biases."""

    task: Task
    scores: Tensor = field(repr=False)  # (M, B, K)
    targets: Tensor = field(repr=False)  # (B, K)
    counts: Tensor = field(repr=False)  # (B,)
    sets: Tensor = field(repr=False)  # (S, M)

    @cached_property
    def start(self) -> Tensor:
        """Every term as it was trained, which is also where the ridge pulls to."""
        biases = torch.zeros(len(self.sets), self.scores.shape[2], dtype=torch.float64)
        return torch.cat([self.sets.double(), biases], dim=1)

    def lowest(self) -> Tensor:
        """Where to begin: the sum, or the constant guess that knows no score, whichever has the lower loss."""
        share = (self.targets * self.counts[:, None]).sum(dim=0) / self.counts.sum()
        guess = torch.zeros_like(self.start)
        guess[:, len(self.scores) :] = self.task.constant(share).double()
        return torch.where((self.value(self.start) <= self.value(guess))[:, None], self.start, guess)

    @cached_property
    def free(self) -> Tensor:
        """(S, M + K) which numbers a set has: the weights of others stay zero."""
        everything = torch.ones(len(self.sets), self.scores.shape[2], dtype=torch.float64)
        return torch.cat([self.sets.double(), everything], dim=1)

    def value(self, place: Tensor) -> Tensor:
        """(S,) the losses."""
        found = RIDGE / 2 * (place - self.start).square().sum(dim=1)
        for design, targets, counts in self._pieces:
            cells = self.task.losses(self._outputs(design, place), targets)
            found = found + (cells * counts[:, None]).sum(dim=(1, 2))
        return found.nan_to_num(nan=torch.inf)

    def expand(self, place: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients (S, P) of the losses and their second derivatives (S, P, P), P = M + K."""
        width, free = place.shape[1], self.free
        slope, curve = RIDGE * (place - self.start), torch.zeros(len(place), width, width, dtype=torch.float64)
        for design, targets, counts in self._pieces:
            outputs = self._outputs(design, place)  # (S, b, K)
            guess, heavy = self.task.mean(outputs), counts[:, None]
            slope = slope + torch.einsum("sbk,bkp->sp", heavy * (guess - targets), design)
            squares = (design[..., :, None] * design[..., None, :]).flatten(0, 1).flatten(1)  # (b K, P P)
            spread = (heavy * self.task.spread(outputs)).flatten(1)
            curve = curve + (spread @ squares).view(-1, width, width)
            if self.task.exclusive:  # classes pull on each other
                mean = torch.einsum("sbk,bkp->sbp", guess, design)
                curve = curve - torch.einsum("sbp,sbq->spq", heavy * mean, mean)
        own = free > 0  # others' scores may be infinite: nothing is multiplied by zero here
        curve = torch.where(own[:, :, None] & own[:, None, :], curve, 0.0)
        return torch.where(own, slope, 0.0), curve + RIDGE * torch.eye(width, dtype=torch.float64)

    @staticmethod
    def _outputs(design: Tensor, place: Tensor) -> Tensor:
        """(S, b, K)."""
        return torch.einsum("bkp,sp->sbk", design, place)

    @cached_property
    def _pieces(self) -> list[tuple[Tensor, Tensor, Tensor]]:
        """Rows in pieces: their design (b, K, P), whose product with a place is their outputs; targets; counts."""
        parties, _, outputs = self.scores.shape
        width = parties + outputs
        size = max(1, CELLS // (max(len(self.sets), outputs * width) * width))
        rows = zip(self.scores.split(size, dim=1), self.targets.split(size), self.counts.split(size), strict=True)
        ones = torch.eye(outputs, dtype=torch.float64)
        return [(torch.cat([s.permute(1, 2, 0), ones.expand(s.shape[1], -1, -1)], dim=2), y, c) for s, y, c in rows]
