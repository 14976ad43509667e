"""Epsilons against the published check values, dp-accounting's own composition, Opacus, and the definition."""

from __future__ import annotations

import math
import warnings
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from colonnade.errors import AccountingError
from colonnade.privacy.accounting import (
    Neighbours,
    affordable,
    calibrate,
    exact_epsilon,
    mean_shift,
    rdp_epsilon,
    shift_of,
)
from colonnade.privacy.ledger import Entry
from tests.releases import released

DELTA = 1e-5
# sigma, releases -> RDP (the paper's bound), exact; delta 1e-5
KNOWN = {
    (30, 53): (0.980, 0.897),
    (10, 53): (3.295, 3.042),
    (5, 53): (7.325, 6.805),
    (70, 265): (0.936, 0.856),
    (70, 530): (1.366, 1.252),
    (10, 265): (8.364, 7.779),
}
GRID = list(product((0.7, 2.0, 10.0, 70.0), (1, 53, 530), (1e-3, 1e-5, 1e-8)))


@pytest.mark.parametrize(("sigma", "releases"), KNOWN)
def test_the_values_of_the_specification(sigma: float, releases: int) -> None:
    mu = shift_of(sigma, releases)
    rdp, exact = KNOWN[sigma, releases]
    assert rdp_epsilon(mu, DELTA) == pytest.approx(rdp, abs=1e-3)
    assert exact_epsilon(mu, DELTA) == pytest.approx(exact, abs=1e-3)


def test_a_replaced_party_costs_as_much_as_half_the_noise() -> None:
    assert exact_epsilon(shift_of(30, 53, "replaced"), DELTA) == pytest.approx(1.928, abs=1e-3)
    assert shift_of(30, 53, "replaced") == shift_of(15, 53)


@pytest.mark.parametrize(("sigma", "releases"), sorted({(sigma, releases) for sigma, releases, _ in GRID}))
def test_dp_accounting_composes_to_the_same(sigma: float, releases: int) -> None:
    """Its RDP accountant release by release, and its privacy loss distributions, which round up a little."""
    import dp_accounting
    from dp_accounting.pld import PLDAccountant
    from dp_accounting.rdp import RdpAccountant

    mu, event = shift_of(sigma, releases), dp_accounting.GaussianDpEvent(sigma)
    rdp = RdpAccountant(orders=1 + np.exp(np.linspace(-6, 12, 3000)))
    rdp.compose(event, releases)
    deltas = sorted({delta for *_, delta in GRID})
    ours = {delta: exact_epsilon(mu, delta) for delta in deltas}
    for delta in deltas:
        assert rdp_epsilon(mu, delta) == pytest.approx(rdp.get_epsilon(delta), abs=1e-3, rel=1e-6)
        assert ours[delta] <= rdp_epsilon(mu, delta) + 1e-9
    moderate = [delta for delta in deltas if ours[delta] < 30]
    if moderate:
        pld = PLDAccountant(value_discretization_interval=1e-4)
        pld.compose(event, releases)
        for delta in moderate:
            assert ours[delta] == pytest.approx(pld.get_epsilon(delta), abs=1e-3)


@pytest.mark.parametrize(("sigma", "releases"), KNOWN)
def test_opacus_agrees_with_the_papers_bound(sigma: float, releases: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the library's own imports
        from opacus.accountants import RDPAccountant
    accountant = RDPAccountant()
    for _ in range(releases):
        accountant.step(noise_multiplier=sigma, sample_rate=1.0)
    alphas = list(1 + np.exp(np.linspace(-4, 8, 2000)))
    theirs = accountant.get_epsilon(DELTA, alphas=alphas)
    assert rdp_epsilon(shift_of(sigma, releases), DELTA) == pytest.approx(theirs, abs=1e-3)


@given(mu=st.floats(0.01, 5), delta=st.floats(1e-9, 0.1))
@settings(max_examples=40, deadline=None)
def test_the_exact_figure_is_where_the_definition_holds_with_equality(mu: float, delta: float) -> None:
    epsilon = exact_epsilon(mu, delta)
    if epsilon == 0:
        assert 2 * norm.cdf(mu / 2) - 1 <= delta
        return
    reached = norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
    assert reached == pytest.approx(delta, rel=1e-4)


@given(
    epsilon=st.floats(0.05, 20),
    releases=st.integers(1, 2000),
    neighbours=st.sampled_from(["absent", "replaced"]),
)
@settings(max_examples=15, deadline=None)
def test_calibrated_noise_keeps_the_budget_and_is_the_smallest(
    epsilon: float, releases: int, neighbours: Neighbours
) -> None:
    sigma = calibrate(epsilon, DELTA, releases, neighbours)
    assert exact_epsilon(shift_of(sigma, releases, neighbours), DELTA) <= epsilon + 1e-6
    assert exact_epsilon(shift_of(0.999 * sigma, releases, neighbours), DELTA) > epsilon
    assert affordable(sigma, epsilon, DELTA, neighbours) == releases


def test_what_is_affordable_ends_just_before_the_budget() -> None:
    count = affordable(10, 3.0, DELTA)
    assert exact_epsilon(shift_of(10, count), DELTA) <= 3.0 < exact_epsilon(shift_of(10, count + 1), DELTA)
    assert affordable(0.1, 0.5, DELTA) == 0


def release(mechanism: str, sigma: float = 10.0) -> Entry:
    return released("p", mechanism, clip=1.0, sigma=sigma)


def test_unlike_releases_add_up() -> None:
    mixed = [release("gaussian", 10)] * 3 + [release("gaussian", 5)] * 2
    assert mean_shift(mixed) == pytest.approx(math.sqrt(3 / 100 + 2 / 25))
    assert mean_shift([]) == 0 and exact_epsilon(0, DELTA) == 0 == rdp_epsilon(0, DELTA)


def test_what_left_unchanged_has_no_bound_and_what_is_unknown_is_refused() -> None:
    assert exact_epsilon(mean_shift([release("gaussian"), release("none")]), DELTA) == math.inf
    with pytest.raises(AccountingError, match="'shuffling', which no accountant here knows"):
        mean_shift([release("shuffling")])


@pytest.mark.parametrize("delta", [0, 1, -0.1, math.nan])
def test_a_delta_that_is_no_probability(delta: float) -> None:
    with pytest.raises(AccountingError, match="needed a probability between 0 and 1"):
        exact_epsilon(1.0, delta)
