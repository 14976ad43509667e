"""Unit ROW: parties that train by DP-SGD at home. Where draws and noise come from, and what the ledger says of it.

    y = g (trunc(S / g) + round(n / g)),    S the sum of clipped gradients, n ~ N(0, s^2), g the grid of `grid.py`

What a sum's sensitivity is. One row more adds a vector c with |c| <= C' to S. The numbers that meet the noise are
trunc(S/g) and trunc((S + c)/g): they differ by at most |c|/g, and less than 1 in each of the n cells for the rounding.
S itself is computed in float64 (u = 2^-53) from at most N rows, in an order that may change with the rows: two such
sums are off by less than (N + 8) u N C' each, and a norm by less than (n + 8) u of it. So gradients are cut to

    C' = C (1 - (n + 8) u - 2 (N + 8) N u) - g sqrt(n)

and what noise of deviation sigma C hides is at most C, as the accountant has it. The rest is post-processing: the
optimiser, float32, every later step, every model and whatever such a model says. So the epsilon covers the models
themselves, not only what they predict.

What remains approximate. In float32 (the default) a row's activations may differ in their last bits with the number of
rows beside it, because libraries choose their loops by it: about 1e-7 of a row's gradient each. `dtype = "float64"`
makes that 1e-16. Nothing here bounds it, nor does any other library for DP-SGD.

Rows are drawn with 52-bit uniform numbers from a cipher under a key of the operating system for each step, in
simulations from an addressed stream; a row is drawn with probability floor(q 2^52) / 2^52, never above q.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from colonnade.errors import ConfigError
from colonnade.privacy.events import Event
from colonnade.privacy.gaussian import NoiseSource, SystemNoise
from colonnade.privacy.grid import add_on_grid, check_noise, check_scale, step_of
from colonnade.privacy.sampled import SampledGaussianEvent

_UNIT = 2.0**-53  # relative rounding error of float64


@dataclass(frozen=True)
class LocalSteps:
    """What of a run decides, beside the noise, how much training at home costs a row. All of it is agreed on."""

    rows: int  # that train, of all parties
    batch: int  # rows that a step draws on average
    steps: int  # of each party in the whole run
    parties: int

    @property
    def rate(self) -> float:
        """The probability with which a step draws a row."""
        return min(1.0, self.batch / max(1, self.rows))

    @property
    def releases(self) -> int:
        """Steps of all parties."""
        return self.steps * self.parties


@dataclass(frozen=True)
class RowNoise:
    """The draws and the noise of parties that train at home; a `models.by_row.RowTraining`."""

    clip: float
    sigma: float  # in units of the clipping norm
    plan: LocalSteps
    source: NoiseSource = field(default_factory=SystemNoise)

    def __post_init__(self) -> None:
        check_scale("clip", self.clip)
        check_scale("sigma x clip", self.deviation)
        check_noise(self.deviation, self.clip * self.plan.rows)  # of the sum of all rows

    @property
    def deviation(self) -> float:
        """Of the noise in a cell of a sum."""
        return self.sigma * self.clip

    @property
    def batch(self) -> float:
        """Rows that a step draws on average."""
        return self.plan.rate * self.plan.rows

    @property
    def steps(self) -> int:
        """Of each party in the whole run."""
        return self.plan.steps

    @cached_property
    def event(self) -> Event:
        """What the ledger says of the training of one party."""
        plan, grid = self.plan, step_of(self.deviation)
        return SampledGaussianEvent(
            plan.rate, self.clip, self.sigma, plan.steps, plan.parties, self.source.simulated, grid
        )

    def norm(self, cells: int) -> float:
        """C' of the file's beginning."""
        rows = self.plan.rows
        relative = 1 - ((cells + 8) + 2 * (rows + 8) * rows) * _UNIT
        cut = self.clip * relative - step_of(self.deviation) * math.sqrt(cells)
        if cut <= self.clip / 2:
            raise ConfigError(
                f"privacy.unit = 'row': rounding of a sum over {rows:,} rows and {cells:,} numbers would take half of "
                f"the clipping norm {self.clip:g} at noise sigma {self.sigma:g}; needed fewer rows, or a smaller model"
            )
        return cut

    def draw(self, parties: Sequence[str], number: int, step: int) -> Tensor:
        """(P, R) bool: uniform numbers u = k / 2^52 with k from 1 to 2^52 are at most q as often as q allows."""
        drawn = uniforms(self.source, parties, number, f"rows.{step}", self.plan.rows)
        return drawn <= self.plan.rate

    def protect(self, sums: Tensor, parties: Sequence[str], number: int, step: int) -> Tensor:
        """On the grid, with noise; every party with a draw of its own."""
        grid = step_of(self.deviation)
        noise = self.source.normals(parties, number, f"gradient.{step}", sums.shape[1], self.deviation / grid)
        return add_on_grid(sums.clone(), torch.ones(len(parties), 1, dtype=torch.float64), noise, grid)


def uniforms(source: NoiseSource, parties: Sequence[str], number: int, what: str, count: int) -> Tensor:
    """(P, count) uniform numbers above 0 and up to 1, every party with a draw of its own.

    Of the operating system: from a cipher where the library is installed, as the noise is.
    """
    if not source.simulated:
        try:
            from colonnade.privacy.normal import cipher_uniforms
        except ImportError:
            pass
        else:
            return cipher_uniforms(len(parties), count)
    each = [torch.from_numpy(source.generator(party, number, what).random(count)) for party in parties]
    return 1 - torch.stack(each)
