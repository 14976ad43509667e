"""Every planted bug is caught at the run's own shape; code without one is left alone in every kind of numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from colonnade.audit.bugs import MISTAKES, NoBound, WiderChance, clipped, first_failure, ledger_caught, plant
from colonnade.audit.checks import Check
from colonnade.audit.full_shape import CLIPPING, FRESH, LOW_BITS, SIZE
from colonnade.audit.shapes import Layout
from colonnade.audit.target import BOUND, MEMBERSHIP, Target
from colonnade.errors import ConfigError
from colonnade.privacy.bounded import BoundedGaussian
from colonnade.privacy.gaussian import Gaussian, SeededNoise, SystemNoise
from colonnade.privacy.ledger import Ledger
from colonnade.privacy.mechanism import Mechanism, Unchanged
from colonnade.privacy.pbm import PoissonBinomial
from colonnade.wire.numbers import Numbers

CLIP, ROWS, WIDTH = 0.5, 1000, 6
SEEN_BY = {
    "half_noise": SIZE,
    "weak_noise": SIZE,
    "no_clipping": CLIPPING,
    "row_clipping": CLIPPING,
    "large_unclipped": CLIPPING,
    "row_unclipped": CLIPPING,
    "reused_noise": FRESH,
    "shared_noise": FRESH,
    "repeated_row": FRESH,
    "noise_clipped": SIZE,
    "float_sum": LOW_BITS,
}


def target(mechanism: Mechanism, dtype: torch.dtype = torch.float32, rows: int = ROWS, **more: object) -> Target:
    found = Target(mechanism, Layout.of((rows, WIDTH), dtype), Numbers(dtype=dtype), 4)
    return replace(found, **more)  # type: ignore[arg-type]


def failed(target: Target, seed: int = 1) -> list[str]:
    return [check.name for check in target.at_full_shape(seed) if check.failed]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sigma", [1.0, 30.0])
@pytest.mark.parametrize("bug", [bug for bug in MISTAKES if bug != "none"])
def test_the_bug_is_caught_at_the_full_shape(bug: str, sigma: float, dtype: torch.dtype) -> None:
    planted = plant(bug, Gaussian(CLIP, sigma, SeededNoise(3)), CLIP)
    assert SEEN_BY[bug] in failed(target(planted, dtype))


@pytest.mark.parametrize("bug", ["large_unclipped", "row_unclipped"])
def test_a_bug_of_large_uploads_shows_in_no_small_one(bug: str) -> None:
    """Which is why the full shape is played."""
    planted = plant(bug, Gaussian(CLIP, 1.0, SeededNoise(3)), CLIP)
    assert failed(target(planted, rows=60)) == []
    assert first_failure(target(planted), 1) is not None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("numbers", ["full", "float32", "float16", "int8"])
@pytest.mark.parametrize("kind", ["clipped", "bounded", "none"])
def test_correct_code_is_left_alone_in_all_numbers(kind: str, numbers: str, dtype: torch.dtype) -> None:
    source = SystemNoise() if numbers == "full" else SeededNoise(4)
    mechanism: Mechanism = Gaussian(CLIP, 3.0, source)
    if kind == "bounded":
        mechanism = BoundedGaussian(1.0, 3.0, WIDTH, source)
    if kind == "none":  # the wrapper itself is no bug
        mechanism = plant("none", Gaussian(CLIP, 3.0, SeededNoise(4)), CLIP)
    checks = list(target(mechanism, dtype, numbers=Numbers(numbers, dtype)).at_full_shape(1))  # type: ignore[arg-type]
    assert [check.name for check in checks if check.failed] == []
    untried = [check.name for check in checks if not check.tried]
    assert untried == ([LOW_BITS] if numbers in ("float16", "int8") else [])


@pytest.mark.parametrize("bug", ["weak_noise", "row_unclipped", "shared_noise"])
def test_bugs_show_through_eight_bits_too(bug: str) -> None:
    planted = plant(bug, Gaussian(CLIP, 3.0, SeededNoise(3)), CLIP)
    assert SEEN_BY[bug] in failed(target(planted, numbers=Numbers("int8")))


def test_games_alone_see_noise_at_0_8_and_leave_correct_code_alone() -> None:
    for bug, wrong in (("none", []), ("weak_noise", [BOUND, MEMBERSHIP])):
        planted = plant(bug, Gaussian(CLIP, 0.5, SeededNoise(3)), CLIP)
        found = list(replace(target(planted), releases=1).in_games(1))
        assert [check.name for check in found if check.failed] == wrong
        assert all(isinstance(check, Check) and check.facts for check in found)


def test_numbers_that_nobody_bounded_and_chances_that_move_too_far() -> None:
    assert failed(target(NoBound(BoundedGaussian(1.0, 30.0, WIDTH, SeededNoise(2))))) == [CLIPPING]
    counts = PoissonBinomial(16, 0.05, WIDTH, SeededNoise(2))
    assert failed(target(counts)) == []
    assert failed(target(WiderChance(counts))) == [CLIPPING]
    with pytest.raises(ConfigError, match="Poisson binomial"):
        failed(target(WiderChance(Gaussian(CLIP, 1.0))))


def test_the_ledger_cannot_tell() -> None:
    """A planted mechanism says of itself what the correct one says: only the audit sees a difference."""
    inner = Gaussian(CLIP, 1.0)
    for bug in MISTAKES:
        assert plant(bug, inner, CLIP).event is inner.event


def test_a_complete_ledger_is_left_alone_and_a_forgetful_one_is_not() -> None:
    assert not ledger_caught(Gaussian(CLIP, 1.0), Ledger())
    assert ledger_caught(Gaussian(CLIP, 1.0))


def test_clipping_scales_all_arrays_of_a_party_together() -> None:
    upload = {"a": torch.tensor([[3.0], [0.3]]), "b": torch.tensor([[4.0], [0.0]])}
    out = clipped(upload, 1.0)
    torch.testing.assert_close(out["a"], torch.tensor([[0.6], [0.3]]))
    torch.testing.assert_close(out["b"], torch.tensor([[0.8], [0.0]]))


def test_an_unknown_bug_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"'typo'.*half_noise"):
        plant("typo", Gaussian(CLIP, 1.0), CLIP)


def test_no_noise_nothing_to_play() -> None:
    bare = target(Unchanged())
    assert [*bare.at_full_shape(0), *bare.in_games(0)] == []
