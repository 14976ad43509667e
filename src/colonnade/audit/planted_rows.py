"""Planted bugs of a training at home (unit ROW), each wrapped around draws and noise that are correct otherwise.

`row_failure` plays against one of them as an audit does, and says which check saw it. A row that is listed more than
once is no matter of draws and noise: it is planted in the game itself (`RowGame.listed`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from colonnade.audit.at_home import check_at_home
from colonnade.audit.checks import Check
from colonnade.audit.row_game import RowGame, public_rows
from colonnade.errors import ConfigError
from colonnade.privacy.by_row import RowNoise
from colonnade.privacy.grid import step_of

LISTED = "rows_listed_twice"
MISTAKES = {
    "rows_unclipped": "gradients of rows are not cut",
    "rows_mean_clipped": "the mean of a batch is cut to the norm, and not each row's gradient",
    "rows_half_noise": "half of the noise",
    "rows_noise_of_mean": "noise that would do for the norm of a batch's mean, on the sum",
    "rows_public_draws": "a step takes the rows of the round's plan, which everybody knows",
    "rows_one_batch": "always the same rows, as a batch that was drawn once",
    "rows_fixed_size": "as many rows in every step, drawn without replacement",
    LISTED: "a training row is listed twice, and drawn and cut as two",
}


@dataclass(frozen=True)
class PlantedRows(RowNoise):
    """A training at home with a bug; `no_bug` has none."""

    bug: str = "no_bug"

    def norm(self, cells: int) -> float:
        """To which a row's gradient is cut."""
        return math.inf if self.bug in ("rows_unclipped", "rows_mean_clipped") else super().norm(cells)

    def draw(self, parties: Sequence[str], number: int, step: int) -> Tensor:
        """Which rows a step takes."""
        rows, batch = self.plan.rows, self.plan.batch
        if self.bug == "rows_public_draws":
            return _of(public_rows(rows, batch, number), rows).expand(len(parties), -1)
        if self.bug == "rows_one_batch":
            return super().draw(parties, 1, 0)
        drawn = super().draw(parties, number, step)
        if self.bug != "rows_fixed_size":
            return drawn
        return torch.stack(
            [_of(torch.cat([one.nonzero()[:, 0], (~one).nonzero()[:, 0]])[:batch], rows) for one in drawn]
        )

    def protect(self, sums: Tensor, parties: Sequence[str], number: int, step: int) -> Tensor:
        """The sums with noise."""
        if self.bug == "rows_mean_clipped":
            longest = self.clip * self.batch / sums.norm(dim=1, keepdim=True).clamp(min=1e-30)
            return super().protect(sums * longest.clamp(max=1.0), parties, number, step)
        weaker = {"rows_half_noise": 0.5, "rows_noise_of_mean": 1 / self.batch}.get(self.bug)
        if weaker is None:
            return super().protect(sums, parties, number, step)
        grid = step_of(self.deviation)
        noise = super().protect(torch.zeros_like(sums), parties, number, step)
        return ((sums / grid).trunc() + (weaker * noise / grid).round()) * grid


def _of(places: Tensor, rows: int) -> Tensor:
    """(R,) bool."""
    found = torch.zeros(rows, dtype=torch.bool)
    found[places] = True
    return found


def plant_rows(game: RowGame, bug: str) -> RowGame:
    """The same training with the bug of this name."""
    if bug not in ("no_bug", *MISTAKES):
        raise ConfigError(f"no planted bug of a training at home is called {bug!r}; known: {', '.join(MISTAKES)}")
    how = game.how
    planted = PlantedRows(how.clip, how.sigma, how.plan, how.source, "no_bug" if bug == LISTED else bug)
    return replace(game, how=planted, listed=2 if bug == LISTED else 1)


def row_failure(game: RowGame, seed: int, games: int | None = None) -> Check | None:
    """The first check of an audit that sees something wrong: noise and draws by themselves, then the game."""
    return next((check for check in _all(game, seed, games) if check.failed), None)


def _all(game: RowGame, seed: int, games: int | None) -> Iterator[Check]:
    yield from check_at_home(game.how, game.parties, game.local_steps)
    yield game.check(seed, games)
