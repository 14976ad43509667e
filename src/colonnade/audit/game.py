"""The client-level game: is the party there? Played against the mechanism that stands in the gate.

In one world the mechanism gets a canary, an upload far above the clipping norm; in the other the zero matrix, since an
absent party is one whose upload is zero *before* noise (its columns zeroed would be another relation: correct code
would beat its own ledger). A bystander uploads beside it, as parties of a cohort do. The player knows both uploads and
sees only what the mechanism lets out; how often it is wrong bounds epsilon from below.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from colonnade.audit.bound import CONFIDENCE, Bound, epsilon_of_mu, mu_of_errors
from colonnade.audit.scores import SCORES, Worlds
from colonnade.errors import ConfigError
from colonnade.privacy.accounting import Neighbours
from colonnade.privacy.mechanism import Mechanism
from colonnade.randomness import stream

TABLES = 100  # games that are played side by side, as parties of one cohort
WHAT = "TRAIN.0"  # as the gate names the first ask of a round
OVERSHOOT = 10.0  # norm of the canary in units of C: clipping that is skipped must show

Shape = Mapping[str, Sequence[int]] | Sequence[int]


@dataclass(frozen=True)
class Layout:
    """Named arrays of one party's upload, and the same cells as one vector of length D."""

    shapes: tuple[tuple[str, tuple[int, ...]], ...]

    @classmethod
    def of(cls, shape: Shape) -> Layout:
        """From shapes by name, or from one shape (the array is then called h)."""
        named = shape if isinstance(shape, Mapping) else {"h": shape}
        layout = cls(tuple((name, tuple(int(n) for n in sizes)) for name, sizes in named.items()))
        if layout.cells < 2:
            raise ConfigError(f"the game needs an upload of at least 2 cells; got {dict(layout.shapes)}")
        return layout

    @property
    def cells(self) -> int:
        """How many numbers one party uploads."""
        return sum(math.prod(sizes) for _, sizes in self.shapes)

    def split(self, flat: Tensor) -> dict[str, Tensor]:
        """(P, D) -> named arrays (P, ...)."""
        parts = flat.split([math.prod(sizes) for _, sizes in self.shapes], dim=1)
        return {name: part.reshape(len(flat), *sizes) for (name, sizes), part in zip(self.shapes, parts, strict=True)}

    def join(self, named: Mapping[str, Tensor]) -> Tensor:
        """The inverse, in float64."""
        return torch.cat([named[name].flatten(1).double() for name, _ in self.shapes], dim=1)


def lower_bound(
    mechanism: Mechanism,
    shape: Shape,
    releases: int,
    runs: int,
    delta: float,
    clip: float,
    seed: int = 0,
    neighbours: Neighbours = "absent",
) -> Bound:
    """Play the game and bound epsilon from below.

    Args:
        mechanism: what stands in the gate. It is asked under round numbers that differ between all games of
            all seeds, so that a seeded one draws afresh.
        shape: of one party's upload, (rows, width), or several by name. Small is fine: noise is per cell.
        releases: T; all of them are seen by the player.
        runs: games in each of the two worlds. `runs_for` says how many a claim needs.
        delta: of the epsilon.
        clip: the norm C that the mechanism claims to clip to.
        seed: of the canaries, and of the round numbers.
        neighbours: the other world has no party, or one with the opposite upload.
    """
    if releases < 1 or runs < 1 or clip <= 0:
        raise ConfigError(f"needed releases, runs and clip above 0; got {releases}, {runs} and {clip}")
    layout = Layout.of(shape)
    canaries = clip * directions(releases, layout.cells, seed)  # (T, D)
    opposite = -canaries if neighbours == "replaced" else torch.zeros_like(canaries)
    silent = torch.zeros_like(canaries)  # the bystander's releases follow the party's
    worlds = Worlds(torch.cat([canaries, silent]), torch.cat([opposite, silent]))
    first = 2 * seed * runs * releases  # more than all earlier seeds can have used
    present = play(mechanism, layout, OVERSHOOT * canaries, runs, first)
    absent = play(mechanism, layout, OVERSHOOT * opposite, runs, first + runs * releases)
    return judge(present, absent, worlds, releases, delta)


def directions(count: int, cells: int, seed: int) -> Tensor:
    """Unit vectors (count, cells); one per release, since equal canaries would hide noise that is used twice."""
    drawn = torch.from_numpy(stream(seed, "audit canary").normal(size=(count, cells)))
    return drawn / drawn.square().sum(dim=1, keepdim=True).sqrt()


def play(mechanism: Mechanism, layout: Layout, uploads: Tensor, runs: int, first: int) -> Tensor:
    """Everything two parties let out in each of the games: (runs, 2 T, D), the audited party's releases first."""
    count, seen = len(uploads), []
    for batch, start in enumerate(range(0, runs, TABLES)):
        tables = min(TABLES, runs - start)
        parties = [f"{role} {table}" for table in range(tables) for role in ("audited", "bystander")]
        received = []
        for place, upload in enumerate(uploads):
            both = torch.stack([upload, torch.zeros_like(upload)]).repeat(tables, 1).float()  # (2 tables, D)
            out = layout.join(mechanism(layout.split(both), parties, first + batch * count + place, WHAT))
            received.append(out.view(tables, 2, layout.cells))
        together = torch.stack(received, dim=1)  # (tables, T, 2, D)
        seen.append(together.transpose(1, 2).reshape(tables, 2 * count, layout.cells))
    return torch.cat(seen)


def judge(present: Tensor, absent: Tensor, worlds: Worlds, releases: int, delta: float) -> Bound:
    """The best bound that any score gives; the confidence is shared among all rates of all scores."""
    runs, alpha = len(present), (1 - CONFIDENCE) / (2 * len(SCORES))
    bounds = []
    for name, score in SCORES.items():
        # Told wrong is what is not told right: a score that is no number counts against the player.
        positives = runs - int((score(absent, worlds) <= 0).sum())
        negatives = runs - int((score(present, worlds) > 0).sum())
        mu = mu_of_errors(positives, negatives, runs, alpha)
        bounds.append(
            Bound(epsilon_of_mu(mu, delta), mu, positives / runs, negatives / runs, name, runs, releases, delta)
        )
    return max(bounds, key=lambda bound: bound.mu)
