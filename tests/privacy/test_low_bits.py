"""The attack on the low bits of noise: it reads presence off float64 noise, and nothing off noise on a grid."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import Tensor

from colonnade.errors import ConfigError
from colonnade.privacy.bounded import BoundedGaussian
from colonnade.privacy.gate import Gate
from colonnade.privacy.gaussian import Gaussian, SeededNoise, SystemNoise
from colonnade.privacy.grid import clip_factors
from colonnade.privacy.ledger import Ledger
from colonnade.privacy.mechanism import Mechanism, Protection
from colonnade.privacy.sealed import Array, Upload
from colonnade.wire.codec import decode
from colonnade.wire.messages import Purpose

CLIP, SIGMA, RELEASES, GAMES = 1.0, 5.0, 4, 20
SHAPE = (1, 500, 8)
Entry = Callable[[Tensor], np.ndarray]  # an upload -> what the other side reads, in float64


def in_floating_point(upload: Tensor) -> np.ndarray:
    """What earlier versions released: the clipped upload plus noise, a float64 sum."""
    noise = torch.from_numpy(np.random.default_rng().normal(0, SIGMA * CLIP, SHAPE))
    out: np.ndarray = (upload * clip_factors(upload.flatten(1), CLIP).view(-1, 1, 1) + noise).numpy().ravel()
    return out


def through(mechanism: Mechanism, dtype: torch.dtype) -> Entry:
    """What the gate of this version releases, read back from the bytes that travel."""

    def release(upload: Tensor) -> np.ndarray:
        gate = Gate("run", Ledger(), {"h": Array(SHAPE[2])}, Protection.everywhere(mechanism))
        passed = gate.release(Upload({"h": upload.to(dtype)}), ["bank"], 1, Purpose.TRAIN, SHAPE[1])
        return decode(passed.releases[0].payload)[1]["h"].double().numpy().ravel()

    return release


def uploads() -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(SHAPE, dtype=torch.float64, generator=generator) for _ in range(RELEASES)]


def says_present(known: Sequence[np.ndarray], heard: Sequence[np.ndarray]) -> bool:
    """Whether what was heard can be this upload plus a floating-point number, to the last bit.

    Where a sum is smaller than its noise, it has room for finer bits than the noise had: there y - x is on the coarse
    grid of the noise, if x was in it, and hardly ever otherwise.
    """
    for x, y in zip(known, heard, strict=True):
        noise = y - x
        for i in np.nonzero(np.spacing(np.abs(y)) < np.spacing(np.abs(noise)))[0]:
            exact, coarse = Fraction(float(y[i])) - Fraction(float(x[i])), Fraction(float(np.spacing(abs(noise[i]))))
            if abs(exact - round(exact / coarse) * coarse) > Fraction(float(np.spacing(abs(y[i])))) / 2:
                return False
    return True


def answers(release: Entry) -> tuple[int, int]:
    """How often the attack says "present": of a party that is, and of one whose uploads are zero."""
    xs = uploads()
    known = [(x * clip_factors(x.flatten(1), CLIP).view(-1, 1, 1)).numpy().ravel() for x in xs]
    there = sum(says_present(known, [release(x) for x in xs]) for _ in range(GAMES))
    away = sum(says_present(known, [release(torch.zeros_like(x)) for x in xs]) for _ in range(GAMES))
    return there, away


def test_noise_in_floating_point_tells_who_is_there() -> None:
    assert answers(in_floating_point) == (GAMES, 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("source", [SystemNoise(), SeededNoise(3)], ids=["system", "seeded"])
@pytest.mark.parametrize("bounded", [False, True], ids=["gaussian", "bounded"])
def test_noise_on_a_grid_tells_the_attack_nothing(
    bounded: bool, source: SystemNoise | SeededNoise, dtype: torch.dtype
) -> None:
    mechanism: Mechanism = Gaussian(CLIP, SIGMA, source)
    if bounded:
        mechanism = BoundedGaussian(CLIP, SIGMA, SHAPE[2], source)
    there, away = answers(through(mechanism, dtype))
    assert there == away  # the same answer whoever is there


@pytest.mark.parametrize("sigma", [1e-9, 0.3, 5.0, 77.7, 1e6])
def test_what_leaves_is_a_whole_number_of_steps_in_both_worlds(sigma: float) -> None:
    """The support is the same, whatever was clipped: an attack that knows the grid has nothing to test either."""
    mechanism = Gaussian(CLIP, sigma)
    step = dict(mechanism.event.parameters)["grid"]
    assert 2**20 <= mechanism.deviation / step < 2**21
    for upload in (uploads()[0], torch.zeros(SHAPE, dtype=torch.float64)):
        steps = through(mechanism, torch.float64)(upload) / step
        assert np.array_equal(steps, np.trunc(steps)) and np.abs(steps).max() < 2**53
        assert len(np.unique(np.abs(steps) % 2)) == 2  # odd ones, too: the grid is not finer than it says


@dataclass(frozen=True)
class Silence:
    """No noise, so that what was clipped can be seen."""

    simulated: bool = True

    def generator(self, party: str, number: int, what: str) -> np.random.Generator:
        raise NotImplementedError

    def normals(self, parties: Sequence[str], number: int, what: str, count: int, deviation: float) -> Tensor:
        return torch.zeros(len(parties), count, dtype=torch.float64)


def squared(values: np.ndarray) -> Fraction:
    return sum((Fraction(float(v)) ** 2 for v in values.ravel()), Fraction(0))


@pytest.mark.parametrize("clip", [1e-3, 0.1, 1.0, 3.7])
@pytest.mark.parametrize("scale", [1e-170, 1.0, 1e6, 1e160])
def test_the_clipped_upload_is_never_longer_than_promised_not_by_a_bit(clip: float, scale: float) -> None:
    limit, over = Fraction(clip) ** 2, 0
    for seed in range(8):
        x = scale * np.random.default_rng(seed).standard_normal((1, 300))
        factor = float(clip_factors(torch.from_numpy(x), clip)[0, 0])
        assert squared(x * factor) <= limit
        kept = Gaussian(clip, 1e-6, Silence())({"h": torch.from_numpy(x[None])}, ["bank"], 1, "TRAIN.0")["h"].numpy()
        assert squared(kept) <= limit and np.allclose(kept, x * factor, rtol=0, atol=1e-12 * clip)
        over += scale == 1.0 and squared(x * (clip / np.sqrt((x**2).sum()))) > limit
    assert scale != 1.0 or over > 0  # the plain formula does pass it


def test_noise_that_does_not_fit_one_number_with_the_upload_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"noise of deviation 1e-10 beside numbers of up to 1 hides nothing"):
        Gaussian(1.0, 1e-10)
    with pytest.raises(ConfigError, match="hides nothing"):
        BoundedGaussian(1e6, 1e-5, 4)
