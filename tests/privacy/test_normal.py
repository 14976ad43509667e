"""Normal numbers from a cipher: the right law, independent, never twice."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from colonnade.config import build
from colonnade.errors import ConfigError
from colonnade.privacy.gaussian import Gaussian, NoiseSource, SeededNoise, SystemNoise
from colonnade.privacy.normal import cipher_normals
from colonnade.privacy.settings import PrivacySettings

MANY = 200_000


def test_they_have_the_law_of_normal_numbers() -> None:
    """Kolmogorov and Smirnov at 1 in 10,000; and the tails by their counts."""
    drawn = cipher_normals(1, MANY)[0].numpy()
    assert stats.kstest(drawn, "norm").pvalue > 1e-4
    for far in (2.0, 3.0, 4.0):
        expected = 2 * stats.norm.sf(far) * MANY
        assert abs((np.abs(drawn) > far).sum() - expected) < 5 * np.sqrt(expected) + 1
    assert abs(stats.kurtosis(drawn)) < 0.1 and abs(stats.skew(drawn)) < 0.05


def test_the_two_halves_of_a_pair_and_neighbours_are_independent() -> None:
    drawn = cipher_normals(1, MANY)[0].numpy().reshape(2, -1)
    for one, other in ((drawn[0], drawn[1]), (drawn[0][:-1], drawn[0][1:])):
        assert abs(np.corrcoef(one, other)[0, 1]) < 5 / np.sqrt(len(one))
        assert abs(np.corrcoef(one**2, other**2)[0, 1]) < 5 / np.sqrt(len(one))  # a shared radius would show here


@pytest.mark.parametrize(("streams", "count"), [(1, 1), (1, 3), (2, 5), (7, 4), (3, 0)])
def test_any_number(streams: int, count: int) -> None:
    drawn = cipher_normals(streams, count)
    assert drawn.shape == (streams, count) and bool(torch.isfinite(drawn).all())


@pytest.mark.parametrize("source", [SystemNoise(), SeededNoise(1)])
def test_they_have_the_deviation_that_was_asked_for(source: NoiseSource) -> None:
    drawn = source.normals(["bank", "telco"], 1, "TRAIN.0", MANY, 30.0).numpy() / 30
    for party in drawn:
        assert stats.kstest(party, "norm").pvalue > 1e-4


@pytest.mark.parametrize("deviation", [1e-200, 1e-30, 1e30, 1e200])
@pytest.mark.parametrize("source", [SystemNoise(), SeededNoise(1)])
def test_noise_does_not_vanish_at_any_scale(source: NoiseSource, deviation: float) -> None:
    drawn = source.normals(["bank"], 1, "TRAIN.0", 4000, deviation)[0].numpy() / deviation
    assert stats.kstest(drawn, "norm").pvalue > 1e-4


@pytest.mark.parametrize(("clip", "sigma"), [(1e-165, 60.0), (1.0, 1e-40), (1e20, 1e20)])
def test_scales_whose_squares_are_no_numbers_are_refused(clip: float, sigma: float) -> None:
    with pytest.raises(ConfigError, match="needed a number from 1e-30 to 1e"):
        Gaussian(clip, sigma)
    with pytest.raises(ConfigError, match=r"clip|sigma x clip"):
        build(PrivacySettings, {"mechanism": "gaussian", "clip": clip, "sigma": sigma}, "privacy").protection(
            1, SystemNoise()
        )


def test_streams_that_are_drawn_in_threads_are_independent() -> None:
    """Long enough for threads: every cell is written, and no two streams have a key in common."""
    drawn = cipher_normals(9, MANY // 10).numpy()
    assert stats.kstest(drawn.ravel(), "norm").pvalue > 1e-4
    near = np.corrcoef(drawn) - np.eye(9)
    assert np.abs(near).max() < 6 / np.sqrt(MANY // 10)


def test_no_two_streams_and_no_two_calls_are_alike() -> None:
    draws = [*cipher_normals(2, 50), *cipher_normals(2, 50)]
    assert len({value for draw in draws for value in draw.tolist()}) == 200


def test_the_gate_uses_it_outside_simulation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "colonnade.privacy.normal.cipher_normals",
        lambda streams, count, deviation: torch.full((streams, count), deviation),
    )
    assert float(SystemNoise().normals(["bank"], 1, "TRAIN.0", 3, 7.0)[0, 0]) == 7.0
    assert not Gaussian(1.0, 1.0).event.simulated
