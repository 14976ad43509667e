"""What an audit plays against: a gate as a run has it, with the run's own shape, numbers and number of releases."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import torch

from colonnade.audit.bound import CONFIDENCE
from colonnade.audit.checks import BOUND, FALSE_ALARM, Check
from colonnade.audit.claims import Additive, Counts, claim_of, share_of
from colonnade.audit.counts import plan_counts, play_full_counts
from colonnade.audit.full_shape import SIZE, play_full
from colonnade.audit.game import Outcome, Pairs
from colonnade.audit.own_rounds import check_own_rounds
from colonnade.audit.shapes import Layout
from colonnade.audit.sums import HonestSum, check_masks, check_shares
from colonnade.audit.through_gate import ThroughGate
from colonnade.audit.trial import DRAWS, Trial, plan
from colonnade.privacy.accounting import Neighbours
from colonnade.privacy.mechanism import Hiding, Mechanism, Opener
from colonnade.wire.numbers import Numbers

MEMBERSHIP = "telling the party from none"
BELOW = "below the ledger's figure: nothing was found, which is no proof"
ABOVE = "ABOVE the ledger's figure: the noise, the clipping or the ledger is wrong"


def _unseen() -> None:
    """Nobody watches."""


@dataclass(frozen=True)
class Target:
    """A mechanism before training uploads, and how the run uses it."""

    mechanism: Mechanism = field(repr=False)
    layout: Layout  # of one upload, at its largest
    numbers: Numbers  # in which it travels
    releases: int  # of the party that uploads most
    delta: float = 1e-5
    neighbours: Neighbours = "absent"
    parties: tuple[str, ...] = ()  # that add, under a secure sum
    opener: Opener | None = field(default=None, repr=False)  # and what opens the sum
    senders: tuple[str, ...] = ()  # the run's parties, by the names under which they upload; empty: not known
    rounds: int = 0  # that were trained

    def at_full_shape(self, seed: int = 0) -> Iterator[Check]:
        """A few releases of the run's own shape."""
        claim = claim_of(self.mechanism.event)
        if isinstance(claim, Additive):
            yield from play_full(self._seen(claim), self.layout, claim, self._numbers, seed).checks()
        if isinstance(claim, Counts):
            yield from play_full_counts(self._seen(claim), self.layout, claim, seed).checks()
        if self.opener is not None and isinstance(self.mechanism, Hiding):
            if isinstance(claim, Additive):
                yield check_shares(self.mechanism, self.parties, self.layout, claim)
            yield check_masks(self.mechanism, self.opener, self.parties, self.layout)
        if claim is not None and self.senders and self.rounds:
            yield self._own_rounds(claim)

    def _own_rounds(self, claim: Additive | Counts) -> Check:
        """Of a sum every party's own share, as it is added; otherwise what leaves."""
        if self.opener is None:
            seen, numbers, layout = self._seen(claim), self.numbers, self.layout
        else:
            seen, numbers = self.mechanism, Numbers(dtype=torch.float64)
            layout = replace(self.layout, dtype=torch.float64)
            claim = share_of(claim) if isinstance(claim, Additive) else claim
        return check_own_rounds(seen, layout, claim, numbers, self.senders, self.rounds)

    def in_games(self, seed: int = 0, games: int | None = None, tick: Callable[[], None] = _unseen) -> Iterator[Check]:
        """Many games in small uploads, of both worlds; `games` in each, or as many as noise at 0.8 needs to show."""
        claim = claim_of(self.mechanism.event)
        if isinstance(claim, Additive):
            trial = self.trial(claim, games)
            yield from self._noise_game(trial, trial.play(seed, self._seen(claim, tick)))
        if isinstance(claim, Counts):
            yield from self._count_game(claim, seed, games, tick)

    def trial(self, claim: Additive, games: int | None = None) -> Trial:
        """The game of this target: small uploads, as many games as it takes."""
        base = Trial(self.mechanism, claim, self.layout, delta=self.delta, neighbours=self.neighbours)
        trial = plan(base, self.releases, DRAWS if self.opener is None else DRAWS // (2 * claim.parts))
        return trial if games is None else replace(trial, runs=games)

    @property
    def _numbers(self) -> Numbers:
        """Of what is seen: a sum opens as it was added, without rounding."""
        return self.numbers if self.opener is None else Numbers(dtype=self.layout.dtype)

    def _seen(self, claim: Additive | Counts, tick: Callable[[], None] = _unseen) -> Mechanism:
        """The mechanism as an attacker meets it: through a gate; or what honest parties add up to."""
        if self.opener is None:
            return ThroughGate(self.mechanism, tick=tick, numbers=self.numbers)
        honest = self.parties[: claim.parts] if isinstance(claim, Additive) else self.parties[:1]
        return HonestSum(self.mechanism, honest)

    def _noise_game(self, trial: Trial, outcome: Outcome) -> Iterator[Check]:
        bound, failed = outcome.bound, outcome.bound.above(trial.claimed)
        seen = f"{bound.runs:,} games in each world, {_count(bound.releases)} each"
        if failed:
            means = f"{ABOVE}; {seen}"
        elif math.isfinite(trial.shows):
            means = f"{BELOW}; {seen}: noise below {1 / trial.shows:.2f} of what is promised would have shown"
        else:
            means = f"{BELOW}; {seen}: too few to show anything; {SIZE!r} needs no games"
        facts = {**vars(bound), "claimed": trial.claimed, "mu_claimed": trial.mu, "shows": 1 / trial.shows}
        found, told = f"{bound.epsilon:.3f} epsilon", f"{trial.claimed:.3f} ledger"
        yield Check(BOUND, means, found, told, failed=failed, facts=facts)
        yield _membership(outcome.pairs)

    def _count_game(self, claim: Counts, seed: int, games: int | None, tick: Callable[[], None]) -> Iterator[Check]:
        trial = plan_counts(claim, self.layout, DRAWS, self.delta)
        trial = trial if games is None else replace(trial, runs=games)
        bound, pairs = trial.play(self._seen(claim, tick), seed)
        failed = bound.epsilon > bound.claimed
        seen = f"{bound.runs:,} games in each world, {trial.cells} counts each"
        facts = {**vars(bound), "cells": trial.cells, "part": trial.part, "delta": self.delta}
        found, told = f"{bound.epsilon:.3f} epsilon", f"{bound.claimed:.3f} ledger"
        yield Check(BOUND, f"{ABOVE if failed else BELOW}; {seen}", found, told, failed=failed, facts=facts)
        yield _membership(pairs)


def _membership(pairs: Pairs) -> Check:
    """The AUC against the ceiling of all players."""
    failed = pairs.p < FALSE_ALARM
    wrong = "told apart MORE OFTEN than the ledger's noise allows anybody"
    means = wrong if failed else "told apart no more often than the ledger allows a perfect player"
    told = f"{means}: {pairs.pairs:,} pairs of games, {100 * CONFIDENCE:.2f} % confidence"
    facts = {"auc": pairs.rate, "ceiling": pairs.ceiling, "pairs": pairs.pairs}
    return Check(
        MEMBERSHIP, told, f"{pairs.rate:.4f} AUC", f"{pairs.ceiling:.4f} ceiling", pairs.p, failed, facts=facts
    )


def _count(releases: int) -> str:
    return f"{releases} release{'' if releases == 1 else 's'}"
