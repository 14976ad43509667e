"""Training at home with noise: its event and its cost, against dp-accounting and Opacus."""

from __future__ import annotations

import math
import warnings

import pytest

from colonnade.errors import AccountingError
from colonnade.privacy.accounting import exact_epsilon
from colonnade.privacy.events import Unit
from colonnade.privacy.sampled import (
    SampledGaussianEvent,
    calibrate_steps,
    epsilon_of_steps,
    sampled_epsilon,
    sampled_rdp,
)

DELTA = 1e-5
EVENT = SampledGaussianEvent(rate=0.1, clip=1.0, sigma=2.0, steps=40, at_parties=3)


def test_a_row_takes_part_in_the_steps_of_all_parties() -> None:
    dp = pytest.importorskip("dp_accounting")
    wanted = dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(0.1, dp.GaussianDpEvent(2.0)), 120)
    assert EVENT.to_dp_event(1000) == wanted and EVENT.unit is Unit.ROW
    assert EVENT.to_dp_event(1000, 2.0) is None  # a row that is replaced is not what is counted
    assert EVENT.precision(1000) is None and EVENT.counted(1000) is None and EVENT.clipped is None


def test_dp_accounting_says_the_same() -> None:
    from dp_accounting import pld, rdp

    theirs = pld.PLDAccountant(value_discretization_interval=1e-4)
    theirs.compose(EVENT.to_dp_event(1000))
    assert sampled_epsilon([EVENT], DELTA) == pytest.approx(theirs.get_epsilon(DELTA), rel=2e-3)
    bound = rdp.RdpAccountant()
    bound.compose(EVENT.to_dp_event(1000))
    assert sampled_rdp([EVENT], DELTA) == pytest.approx(bound.get_epsilon(DELTA), rel=0.01)
    assert sampled_epsilon([EVENT], DELTA) < sampled_rdp([EVENT], DELTA)


def test_opacus_says_the_same() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the library's own imports
        from opacus.accountants import RDPAccountant
    accountant = RDPAccountant()
    accountant.history = [(EVENT.sigma, EVENT.rate, EVENT.releases)]
    assert sampled_rdp([EVENT], DELTA) == pytest.approx(accountant.get_epsilon(DELTA), rel=0.01)


def test_without_chance_it_is_the_gaussian_mechanism() -> None:
    found, _ = epsilon_of_steps(1.0, 5.0, 30, DELTA)
    assert found == pytest.approx(exact_epsilon(math.sqrt(30) / 5, DELTA), rel=2e-3)


def test_equal_events_of_several_parties_are_one() -> None:
    assert sampled_epsilon([EVENT] * 3, DELTA) == sampled_epsilon([EVENT], DELTA)
    other = SampledGaussianEvent(0.1, 1.0, 2.1, 40, 3)
    assert sampled_epsilon([EVENT, other], DELTA) > 1.3 * sampled_epsilon([EVENT], DELTA)


@pytest.mark.parametrize(("epsilon", "rate", "releases"), [(1.0, 0.3, 60), (8.0, 0.05, 1000), (0.2, 1.0, 4)])
def test_calibrated_noise_costs_what_was_asked_for(epsilon: float, rate: float, releases: int) -> None:
    sigma = calibrate_steps(epsilon, DELTA, rate, releases)
    assert epsilon_of_steps(rate, sigma, releases, DELTA)[0] <= epsilon
    assert epsilon_of_steps(rate, sigma / 1.01, releases, DELTA)[0] > epsilon


@pytest.mark.parametrize(
    ("epsilon", "rate", "releases", "reason"),
    [
        (0.0, 0.1, 10, "epsilon = 0"),
        (math.inf, 0.1, 10, "epsilon = inf"),
        (1.0, 0.0, 10, "rate = 0"),
        (1.0, 1.5, 10, "rate = 1.5"),
        (1.0, 0.1, 0, "0 steps"),
    ],
)
def test_impossible_questions_are_refused(epsilon: float, rate: float, releases: int, reason: str) -> None:
    with pytest.raises(AccountingError, match=reason):
        calibrate_steps(epsilon, DELTA, rate, releases)


@pytest.mark.parametrize("wrong", [{"rate": 1.1}, {"rate": 0.0}, {"sigma": 0.0}, {"steps": 0}, {"at_parties": 0}])
def test_impossible_events_are_refused(wrong: dict[str, float]) -> None:
    values = {"rate": 0.1, "clip": 1.0, "sigma": 2.0, "steps": 40, "at_parties": 3}
    with pytest.raises(ValueError, match=next(iter(wrong))):
        SampledGaussianEvent.read({**values, **wrong}, Unit.ROW)
