"""The client-level game: is the party there? Played against the mechanism that stands in the gate.

In one world the mechanism gets a canary, an upload far above the clipping norm; in the other the zero matrix, since an
absent party is one whose upload is zero *before* noise (its columns zeroed would be another relation: correct code
would beat its own ledger). The player knows both uploads and sees only what the mechanism lets out. How often it is
wrong bounds epsilon from below; how often it tells the two worlds of a pair of games apart is held against the
ceiling of any player.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from colonnade.audit.bound import CONFIDENCE, Bound, ceiling, epsilon_of_mu, mu_of_errors
from colonnade.audit.checks import scipy
from colonnade.audit.scores import SCORES, Worlds
from colonnade.audit.shapes import Layout
from colonnade.privacy.mechanism import Mechanism
from colonnade.randomness import stream

TABLES = 100  # games that are played side by side, as parties of one cohort
WHAT = "TRAIN.0"  # as the gate names the first ask of a round
OVERSHOOT = 10.0  # how much longer than allowed a canary is: clipping that is skipped must show


@dataclass(frozen=True)
class Pairs:
    """Games of both worlds in pairs: how often the one with the party scored higher. The rate is the AUC."""

    wins: float  # ties count half
    pairs: int
    ceiling: float  # Phi(mu / sqrt 2): the rate that no player can pass

    @property
    def rate(self) -> float:
        """An unbiased estimate of the AUC."""
        return self.wins / self.pairs

    @property
    def p(self) -> float:
        """At most how likely a player at the ceiling is to win as often: pairs are independent, so it is binomial."""
        return float(scipy("stats").binom.sf(int(self.wins) - 1, self.pairs, self.ceiling))


@dataclass(frozen=True)
class Outcome:
    """What a game showed: a lower bound on epsilon, and pairs."""

    bound: Bound
    pairs: Pairs


def directions(count: int, cells: int, seed: int, signs: bool = False) -> Tensor:
    """Unit vectors (count, cells); one per release, since equal canaries would hide noise that is used twice.

    With `signs` all their numbers are equally large.
    """
    drawn = torch.from_numpy(stream(seed, "audit canary").normal(size=(count, cells)))
    if signs:
        drawn = torch.where(drawn >= 0, 1.0, -1.0).double()
    return drawn / drawn.square().sum(dim=1, keepdim=True).sqrt()


def play(mechanism: Mechanism, layout: Layout, uploads: Tensor, runs: int, first: int) -> Tensor:
    """Everything the party lets out in each of the games: (runs, T, D), from uploads (T, D).

    Rounds are numbered from `first`, a number for each release of each batch of games: a seeded mechanism draws
    afresh as long as no two calls overlap.
    """
    count, seen = len(uploads), []
    for batch, start in enumerate(range(0, runs, TABLES)):
        parties = [f"audited {table}" for table in range(min(TABLES, runs - start))]
        received = [
            layout.join(
                mechanism(layout.split(upload.expand(len(parties), -1)), parties, first + batch * count + place, WHAT)
            )
            for place, upload in enumerate(uploads)
        ]
        seen.append(torch.stack(received, dim=1))
    return torch.cat(seen)


def judge(present: Tensor, absent: Tensor, worlds: Worlds, delta: float, mu: float) -> Outcome:
    """The best bound that any score gives, its confidence shared among all rates of all scores; and pairs.

    Args:
        present: (runs, T, D), what was seen in games with the party.
        absent: the same of games without.
        worlds: what both would be without noise.
        delta: of epsilon.
        mu: what is claimed, for the ceiling of the pairs.
    """
    runs, releases = present.shape[:2]
    scores = {n: s for n, s in SCORES.items() if n != "differences" or releases > 1}
    alpha, bounds = (1 - CONFIDENCE) / (2 * len(scores)), []
    for name, score in scores.items():
        there, gone = score(present, worlds), score(absent, worlds)
        # Told wrong is what is not told right: a score that is no number counts against the player.
        positives, negatives = runs - int((gone <= 0).sum()), runs - int((there > 0).sum())
        found = mu_of_errors(positives, negatives, runs, alpha)
        rates = (positives / runs, negatives / runs)
        bounds.append(Bound(epsilon_of_mu(found, delta), found, *rates, name, runs, releases, delta))
        if name == "likelihood":
            wins = float((there > gone).sum() + 0.5 * (there == gone).sum())
    return Outcome(max(bounds, key=lambda bound: bound.mu), Pairs(wins, runs, ceiling(mu)))
