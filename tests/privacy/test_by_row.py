"""Draws of rows and noise on sums of gradients: their laws, the grid, and what rounding may add."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from colonnade.errors import ConfigError
from colonnade.privacy.by_row import LocalSteps, RowNoise, uniforms
from colonnade.privacy.gaussian import NoiseSource, SeededNoise, SystemNoise
from colonnade.privacy.grid import step_of
from colonnade.privacy.normal import cipher_uniforms

PLAN = LocalSteps(rows=20_000, batch=3000, steps=50, parties=3)
SOURCES = [SeededNoise(5), SystemNoise()]
NAMES = ("a", "b")


@pytest.mark.parametrize("source", SOURCES, ids=["seeded", "of the system"])
class TestDraws:
    def test_every_row_has_the_same_chance_at_every_party(self, source: NoiseSource) -> None:
        drawn = torch.stack([RowNoise(1.0, 2.0, PLAN, source).draw(NAMES, 1, step) for step in range(20)])  # (20, P, R)
        share, spread = PLAN.rate, math.sqrt(PLAN.rate * (1 - PLAN.rate) / drawn.numel())
        assert abs(float(drawn.double().mean()) - share) < 5 * spread
        by_row = drawn.double().mean(dim=(0, 1))  # of 40 draws each
        assert float(by_row.var()) == pytest.approx(share * (1 - share) / 40, rel=0.1)
        both = (drawn[:, 0] & drawn[:, 1]).double().mean()  # a row is drawn by one party whatever another draws
        assert float(both) == pytest.approx(share**2, rel=0.05)

    def test_noise_has_its_deviation_and_is_on_the_grid(self, source: NoiseSource) -> None:
        how, sums = RowNoise(0.5, 4.0, PLAN, source), torch.full((2, 30_000), 3.3, dtype=torch.float64)
        noisy = how.protect(sums, NAMES, 2, 0)
        step = step_of(2.0)
        assert bool((noisy / step == (noisy / step).round()).all())
        assert float((noisy - sums).std()) == pytest.approx(2.0, rel=0.03)
        assert abs(float((noisy - sums).mean())) < 5 * 2.0 / math.sqrt(sums.numel())
        assert float(np.corrcoef((noisy - sums).numpy())[0, 1]) == pytest.approx(0, abs=0.03)


def test_seeded_draws_are_addressed_and_those_of_the_system_are_not() -> None:
    def first(source: NoiseSource, number: int = 1, step: int = 0) -> torch.Tensor:
        return RowNoise(1.0, 2.0, PLAN, source).draw(NAMES, number, step)

    assert torch.equal(first(SeededNoise(5)), first(SeededNoise(5)))
    others = [first(SeededNoise(6)), first(SeededNoise(5), number=2), first(SeededNoise(5), step=1)]
    assert not any(torch.equal(first(SeededNoise(5)), other) for other in others)
    assert not torch.equal(first(SystemNoise()), first(SystemNoise()))


def test_a_party_draws_the_same_alone_and_with_others() -> None:
    together = uniforms(SeededNoise(1), NAMES, 3, "rows.0", 50)
    assert torch.equal(together[1], uniforms(SeededNoise(1), ("b",), 3, "rows.0", 50)[0])


def test_uniform_numbers_are_never_zero() -> None:
    """So that u <= q has at most the probability q, and none where q is 0."""
    drawn = cipher_uniforms(1, 10_000)
    assert float(drawn.min()) > 0 and float(drawn.max()) <= 1
    assert bool((drawn * 2**52 == (drawn * 2**52).round()).all())


def test_what_meets_the_noise_differs_by_at_most_the_norm() -> None:
    """Sums cut towards zero differ by more than the row that they differ by; its gradient is cut shorter for that."""
    how, cells = RowNoise(1.0, 50.0, PLAN, SeededNoise(0)), 2000
    step, cut = step_of(50.0), how.norm(cells)
    assert cut == pytest.approx(1 - step * math.sqrt(cells), abs=1e-6) and cut < 1
    rng = np.random.default_rng(0)
    worst = 0.0
    for _ in range(200):
        row = rng.normal(size=cells)
        row *= cut / np.linalg.norm(row)
        before = rng.normal(size=cells) * 100
        worst = max(worst, float(np.linalg.norm(step * (np.trunc((before + row) / step) - np.trunc(before / step)))))
    assert cut * 0.99 < worst <= 1.0


def test_sums_that_rounding_would_spoil_are_refused() -> None:
    with pytest.raises(ConfigError, match="would take half of the clipping norm"):
        RowNoise(1.0, 2.0, LocalSteps(100_000_000, 10, 1, 1), SystemNoise()).norm(10)
    with pytest.raises(ConfigError, match="hides nothing"):
        RowNoise(1.0, 1e-9, PLAN, SystemNoise())
