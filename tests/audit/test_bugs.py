"""Every planted bug is caught, in every seed tried; code without one never is."""

from __future__ import annotations

import pytest
import torch

from colonnade.audit.bugs import BUGS, MISTAKES, caught, clipped, ledger_caught, plant
from colonnade.audit.trial import Trial, plan
from colonnade.errors import ConfigError
from colonnade.privacy.accounting import exact_epsilon
from colonnade.privacy.gaussian import Gaussian, SeededNoise, SystemNoise
from colonnade.privacy.ledger import Ledger
from colonnade.privacy.mechanism import Unchanged
from tests.audit.quick import Quick

CLIP = 0.5


def trials() -> list[Trial]:
    return [
        Trial(Gaussian(CLIP, 1.0, SeededNoise(3)), CLIP, 1.0),
        Trial(Gaussian(CLIP, 2.0, SystemNoise()), CLIP, 2.0, releases=4),
    ]


@pytest.mark.parametrize("trial", trials(), ids=["seeded", "system"])
@pytest.mark.parametrize("bug", BUGS)
def test_the_bug_is_caught(bug: str, trial: Trial) -> None:
    assert caught(bug, trial, seed=1)


@pytest.mark.parametrize("bug", BUGS)
def test_the_bug_is_caught_in_twenty_seeds(bug: str) -> None:
    trial = Trial(Quick(CLIP, 2.0), CLIP, 2.0, releases=4, runs=500)
    assert [caught(bug, trial, seed) for seed in range(20)] == [True] * 20


@pytest.mark.parametrize("trial", trials(), ids=["seeded", "system"])
def test_correct_code_is_left_alone(trial: Trial) -> None:
    assert not trial.bound(seed=1).above(trial.claimed)
    assert not caught("none", trial, seed=1)  # the wrapper itself is no bug


def test_the_ledger_cannot_tell() -> None:
    """A planted mechanism says of itself what the correct one says: only the audit sees a difference."""
    inner = Gaussian(CLIP, 1.0)
    for bug in MISTAKES:
        planted = plant(bug, inner, CLIP)
        assert planted.event is inner.event


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


@pytest.mark.parametrize(("sigma", "releases", "played"), [(1.0, 53, 9), (5.0, 53, 53), (0.1, 53, 2), (5.0, 1, 1)])
def test_a_plan_plays_what_can_be_told_apart(sigma: float, releases: int, played: int) -> None:
    trial = plan(Gaussian(CLIP, sigma), releases)
    assert trial is not None
    assert trial.releases == played
    assert trial.claimed == pytest.approx(exact_epsilon(played**0.5 / sigma, 1e-5), rel=1e-6)


def test_a_plan_says_when_it_is_too_short() -> None:
    long, short = (plan(Gaussian(CLIP, 30.0), 53, draws=draws) for draws in (10**8, 10**5))
    assert long is not None
    assert short is not None
    assert long.shows_half_noise
    assert not short.shows_half_noise


def test_replaced_neighbours_are_claimed_at_twice_the_distance() -> None:
    one, two = plan(Gaussian(CLIP, 8.0), 4), plan(Gaussian(CLIP, 4.0), 4)
    other = plan(Gaussian(CLIP, 8.0), 4, neighbours="replaced")
    assert one is not None
    assert two is not None
    assert other is not None
    assert other.claimed == pytest.approx(two.claimed)
    assert other.claimed > one.claimed


def test_no_noise_no_claim() -> None:
    assert plan(Unchanged(), 10) is None
