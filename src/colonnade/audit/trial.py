"""A claim and the game that tests it: how many releases, how many runs, and what the ledger says of them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch

from colonnade.audit.bound import epsilon_of_mu, runs_for, shown_by
from colonnade.audit.claims import Additive
from colonnade.audit.game import OVERSHOOT, Outcome, directions, judge, play
from colonnade.audit.scores import Worlds
from colonnade.audit.shapes import Layout
from colonnade.errors import ConfigError
from colonnade.privacy.accounting import Neighbours
from colonnade.privacy.mechanism import Mechanism

CLEAREST = 2.0  # mu of a game; beyond it even a perfect player needs ever more runs to be believed
FEWEST = 250  # runs
DRAWS = 60_000  # messages of one game: about ten seconds
SMALL_ROWS, SMALL_WIDTH = 8, 4  # of the uploads of games; noise is per cell, the full shape is played apart


@dataclass(frozen=True)
class Trial:
    """A mechanism, what is claimed of it, and how the game is played against it."""

    mechanism: Mechanism
    claim: Additive
    layout: Layout
    releases: int = 1
    runs: int = 1000  # games in each of the two worlds
    delta: float = 1e-5
    neighbours: Neighbours = "absent"
    part: float = 1.0  # norm of the canary, in units of the longest upload; below 1 where noise is weak

    def __post_init__(self) -> None:
        if self.releases < 1 or self.runs < 1 or not 0 < self.part <= 1:
            raise ConfigError(
                f"needed releases and runs above 0 and a part of at most 1; got {self.releases}, {self.runs}, "
                f"{self.part:g}"
            )

    @property
    def mu(self) -> float:
        """What is claimed, in the measure of the game."""
        return self.part * self.claim.shift(self.layout.cells, self.releases, self.neighbours)

    @property
    def claimed(self) -> float:
        """The epsilon that the exact accountant gives a ledger of these releases."""
        return epsilon_of_mu(self.mu, self.delta)

    @property
    def shows(self) -> float:
        """By which factor noise must be too small, or uploads too long, to be seen in so many runs."""
        return shown_by(self.mu, self.runs, self.rates)

    @property
    def rates(self) -> int:
        """Among how many error rates the confidence is shared."""
        return 4 if self.releases > 1 else 2

    def play(self, seed: int, mechanism: Mechanism | None = None) -> Outcome:
        """Play, against the mechanism itself or against another one that claims the same."""
        against = self.mechanism if mechanism is None else mechanism
        cells = self.layout.cells
        longest = self.part * self.claim.reach(cells)
        canaries = longest * directions(self.releases, cells, seed, signs=self.claim.clip is None)  # (T, D)
        opposite = -canaries if self.neighbours == "replaced" else torch.zeros_like(canaries)
        over = OVERSHOOT if self.part == 1 else 1.0
        first = 2 * seed * self.runs * self.releases  # more than all earlier seeds can have used
        present = play(against, self.layout, over * canaries, self.runs, first)
        absent = play(against, self.layout, over * opposite, self.runs, first + self.runs * self.releases)
        return judge(present, absent, Worlds(canaries, opposite), self.delta, self.mu)


def plan(base: Trial, releases: int, draws: int = DRAWS) -> Trial:
    """The trial of a run's mechanism in small uploads, where a party of the run releases so often.

    The game plays as many of the run's releases as it can tell apart, and as many runs as noise at 0.8 needs to
    show, up to `draws` messages: those grow with sigma squared, whatever the number of releases. Where one release
    alone is clear, the canary is shorter, so that a player is wrong now and then.
    """
    wide = base.claim.clip is None  # a mechanism that bounds numbers was declared with their width
    layout = base.layout.smaller(1 if wide else SMALL_ROWS, None if wide else SMALL_WIDTH)
    one = replace(base, layout=layout, releases=1, runs=1)
    if one.mu > CLEAREST:
        played = min(releases, 2)
        trial = replace(one, releases=played, part=CLEAREST / (one.mu * math.sqrt(played)))
    else:
        clear = int((CLEAREST / one.mu) ** 2)
        trial = replace(one, releases=max(1, min(releases, clear, draws // (2 * FEWEST))))
    needed = runs_for(trial.mu, rates=trial.rates)
    return replace(trial, runs=max(FEWEST, min(needed, draws // (2 * trial.releases))))
