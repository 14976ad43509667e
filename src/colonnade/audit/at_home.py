"""Unit ROW: nothing about a training row is sent, so what is played is the training itself, step by step.

    y = sum of the drawn rows' gradients, each cut to norm C, plus N(0, sigma^2 C^2); rows drawn with rate q

Noise and draws are asked for under the run's own parties, rounds and steps, as `models/row_steps.py` asks for them.
What correct code obeys: noise as in `own_rounds.py` and `noise.py`; a step draws Binomial(N, q) rows, a row is drawn by
Binomial(K, q) of K steps, and two steps have Binomial(N, q^2) rows in common. Where the networks are here, single rows
far longer than any are put through them: none adds more than C, and two add what each adds alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from colonnade.audit import noise
from colonnade.audit.checks import Check, judged, scipy
from colonnade.audit.claims import Additive
from colonnade.audit.full_shape import MOST_CELLS
from colonnade.audit.noise import Seen
from colonnade.audit.own_rounds import MOST_DRAWS, alike, rounds_of
from colonnade.audit.shapes import Layout
from colonnade.models.cohort import Cohort
from colonnade.models.row_gradients import Batch, clipped_sums
from colonnade.privacy.by_row import RowNoise
from colonnade.privacy.grid import step_of
from colonnade.wire.numbers import Numbers

NOISE, DRAWS, GRADIENTS = "noise at home", "draws of rows", "gradients of single rows"
CELLS = 4096  # of a sum of gradients; its noise is per number
ROWS = 16  # whose gradients are looked at
FAR = (1.0, 8.0, 2.0**20)  # what their columns are multiplied with, one after the other
MIXED = 1e-9  # of a norm: how far sums of two rows may be from the rows' own; far above rounding in float64


def check_at_home(how: RowNoise, parties: Sequence[str], local_steps: int) -> Iterator[Check]:
    """Noise and draws of some parties in the steps of a run."""
    yield _check_noise(how, parties, local_steps)
    yield _check_draws(how, parties, local_steps)


def _steps(how: RowNoise, parties: Sequence[str], local_steps: int, cells: int) -> list[tuple[int, int]]:
    """Rounds and steps in them that are played: the first ones, and others up to the last."""
    most = max(2, min(MOST_DRAWS, MOST_CELLS // max(1, cells)) // len(parties))
    return [((at - 1) // local_steps + 1, (at - 1) % local_steps) for at in rounds_of(how.steps, most)]


def _check_noise(how: RowNoise, parties: Sequence[str], local_steps: int) -> Check:
    zeros = torch.zeros(len(parties), CELLS, dtype=torch.float64)
    steps = _steps(how, parties, local_steps, CELLS)
    drawn = torch.cat([how.protect(zeros, parties, number, step) for number, step in steps])
    claim = Additive(how.deviation, how.clip, how.clip, step_of(how.deviation))
    seen = Seen(drawn, claim, Layout.of((1, CELLS), torch.float64), Numbers(dtype=torch.float64))
    tests = [*noise.too_small_each(seen), alike(drawn), *noise.uneven_bits(seen), float(noise.off_grid(seen) == 0)]
    return judged(
        NOISE,
        tests,
        "sums of gradients have LESS noise than the ledger says in some step, noise that was used before, or none of "
        "the grid",
        f"every step has its noise, and a draw of its own ({len(steps):,} of {how.steps:,} steps, {_of(parties)})",
        steps=len(steps),
    )


def _check_draws(how: RowNoise, parties: Sequence[str], local_steps: int) -> Check:
    rows, rate = how.plan.rows, how.plan.rate
    steps = _steps(how, parties, local_steps, rows)
    drawn = torch.cat([how.draw(parties, number, step) for number, step in steps])
    return judged(
        DRAWS,
        _of_draws(drawn, rate),
        "rows are NOT drawn by chance and apart, with the rate that the ledger says: what it counts on",
        f"every step draws {rows:,} rows with probability {rate:.3g}, whatever others draw ({_of(parties)})",
        steps=len(steps),
    )


def _of_draws(drawn: Tensor, rate: float) -> Iterator[float]:
    """Draws (K, N): how many in all, of each row, in each step, and by every two steps."""
    binomial, (count, rows) = scipy("stats").binom, drawn.shape
    found = drawn.float()
    yield float(binomial.sf(int(drawn.sum()) - 1, drawn.numel(), rate))
    yield min(1.0, rows * float(binomial.sf(int(drawn.sum(dim=0).max()) - 1, count, rate)))
    usual = round(rows * rate)  # batches of one size would always have it
    same = int((drawn.sum(dim=1) == usual).sum())
    yield float(binomial.sf(same - 1, count, binomial.pmf(usual, rows, rate)))
    if count > 1:
        common = (found @ found.T)[~torch.eye(count, dtype=torch.bool)]
        pairs = count * (count - 1) / 2
        yield min(1.0, pairs * float(binomial.sf(int(common.max()) - 1, rows, rate**2)))
        yield min(1.0, pairs * float(binomial.cdf(int(common.min()), rows, rate**2)))


def check_gradients(cohorts: Sequence[Cohort], how: RowNoise) -> Check:
    """Of each cohort some training rows, with columns as they are and far larger: each alone, and two together."""
    longest, mixed = 0.0, 0.0
    for cohort in cohorts:
        one, two = _batches(cohort)
        cells = sum(p[0].numel() for p in cohort.trained(("head", "encoder")))
        alone = [_sums(cohort, batch, how.norm(cells)) for batch in one]
        longest = max([longest, *(float(sums.norm(dim=1).max()) / how.clip for sums in alone)])
        off = _sums(cohort, two, how.norm(cells)) - alone[0] - alone[1]
        mixed = max(mixed, float(off.norm(dim=1).max()) / how.clip)
    exact = all(cohort.schema.dtype is torch.float64 for cohort in cohorts)
    wrong = longest > 1 or mixed > (MIXED if exact else 1e-4)
    means = "no row adds more than the ledger says, and what one adds does not depend on another"
    if wrong:
        means = "a row adds MORE than the ledger says, or changes what others add: clipping does not hold row by row"
    return Check(GRADIENTS, means, f"{longest:.4f} of the norm", "1 of the norm", failed=wrong, facts={"mixed": mixed})


def _batches(cohort: Cohort) -> tuple[list[Batch], Batch]:
    """Single rows, as they are and far longer; and the first two of them together."""
    schema = cohort.schema
    rows = schema.train.cpu()[:ROWS].to(cohort.device).expand(len(cohort.names), -1)
    x = cohort.x_of_each(rows)
    if x.is_floating_point():
        x = x.clone()
        for place, far in enumerate(FAR):
            x[:, place :: len(FAR)] *= far
    kept = schema.task.expand(cohort.memory["targets"][0, rows.flatten()], schema.dtype)
    targets = kept.reshape(*rows.shape, kept.shape[-1])
    here = torch.ones(rows.shape, dtype=torch.bool, device=cohort.device)
    each = [Batch(x[:, at : at + 1], targets[:, at : at + 1], here[:, at : at + 1]) for at in range(rows.shape[1])]
    return each, Batch(x[:, :2], targets[:, :2], here[:, :2])


def _sums(cohort: Cohort, batch: Batch, norm: float) -> Tensor:
    return torch.cat([value.flatten(1) for value in clipped_sums(cohort, batch, norm)], dim=1)


def _of(parties: Sequence[str]) -> str:
    return f"{len(parties)} part{'y' if len(parties) == 1 else 'ies'}"
