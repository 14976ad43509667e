"""The bound's mathematics, against sums and integrals that anybody can check."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colonnade.audit.bound import (
    WEAK,
    Bound,
    ceiling,
    delta_of_mu,
    epsilon_of_mu,
    mu_of_errors,
    runs_for,
    shown_by,
    upper_limit,
)
from colonnade.errors import ConfigError
from colonnade.privacy.accounting import exact_epsilon

# sigma, releases, exact epsilon at delta 1e-5: the check values of the specification
SPECIFIED = [(30, 53, 0.897), (10, 53, 3.042), (5, 53, 6.805), (70, 265, 0.856), (70, 530, 1.252), (10, 265, 7.779)]


@pytest.mark.parametrize(("sigma", "releases", "epsilon"), SPECIFIED)
def test_the_exact_curve_gives_the_specified_values(sigma: int, releases: int, epsilon: float) -> None:
    mu = math.sqrt(releases) / sigma
    assert epsilon_of_mu(mu, 1e-5) == pytest.approx(epsilon, abs=1e-3)
    assert epsilon_of_mu(mu, 1e-5) == pytest.approx(exact_epsilon(mu, 1e-5), abs=1e-6)  # the ledger's accountant


@settings(max_examples=25)
@given(mu=st.floats(0.1, 4.0), epsilon=st.floats(0.0, 6.0))
def test_delta_is_the_integral_of_what_one_density_has_above_the_other(mu: float, epsilon: float) -> None:
    x = np.linspace(-12, 16, 200_001)
    p, q = (np.exp(-((x - m) ** 2) / 2) / math.sqrt(2 * math.pi) for m in (mu, 0.0))
    slow = np.maximum(p - math.exp(epsilon) * q, 0).sum() * (x[1] - x[0])
    assert delta_of_mu(epsilon, mu) == pytest.approx(float(slow), abs=1e-6)


@settings(max_examples=40)
@given(mu=st.floats(0.01, 12.0), delta=st.floats(1e-9, 0.2))
def test_epsilon_is_the_inverse_of_delta(mu: float, delta: float) -> None:
    epsilon = epsilon_of_mu(mu, delta)
    if epsilon == 0.0:
        assert delta_of_mu(0.0, mu) <= delta
    else:
        assert delta_of_mu(epsilon, mu) == pytest.approx(delta, rel=1e-6)


def test_no_shift_costs_nothing() -> None:
    assert delta_of_mu(0.0, 0.0) == 0.0
    assert epsilon_of_mu(0.0, 1e-5) == 0.0


@settings(max_examples=30)
@given(runs=st.integers(1, 60), share=st.floats(0, 1), alpha=st.sampled_from([0.1, 0.01, 0.00025]))
def test_the_limit_is_where_so_few_errors_become_improbable(runs: int, share: float, alpha: float) -> None:
    errors = round(share * runs)
    limit = upper_limit(errors, runs, alpha)
    if errors == runs:
        assert limit == 1.0
        return
    at_most = sum(math.comb(runs, k) * limit**k * (1 - limit) ** (runs - k) for k in range(errors + 1))
    assert at_most == pytest.approx(alpha, rel=1e-6)


def test_a_perfect_player_is_believed_only_as_far_as_its_runs_go() -> None:
    few, many = mu_of_errors(0, 0, 100, 0.00025), mu_of_errors(0, 0, 10_000, 0.00025)
    assert 2.5 < few < many < 7
    assert mu_of_errors(50, 50, 100, 0.00025) == 0.0  # a coin
    assert mu_of_errors(100, 0, 100, 0.00025) == 0.0  # always says "present"


def test_a_bound_contradicts_only_a_smaller_claim() -> None:
    bound = Bound(2.0, 0.5, 0.1, 0.1, "likelihood", 100, 1, 1e-5)
    assert bound.above(1.9)
    assert not bound.above(2.0)


@pytest.mark.parametrize("mu", [0.5, 1.0, 2.0, 3.0])
def test_the_recommended_runs_show_noise_at_0_8_and_are_not_absurd(mu: float) -> None:
    runs = runs_for(mu)
    rate = 0.5 * math.erfc(WEAK * mu / 2 / math.sqrt(2))  # of a player who sees 0.8 of the noise
    likely = round(runs * rate)
    assert mu_of_errors(likely, likely, runs, 0.000025) > mu
    assert runs <= 25_000
    assert 1 < shown_by(mu, runs) <= WEAK * 1.001
    assert shown_by(mu, runs // 16) > WEAK


def test_nothing_is_shown_by_a_handful_of_games() -> None:
    assert shown_by(0.1, 10) == math.inf


@pytest.mark.parametrize("mu", [0.0, 0.3, 1.0, 2.5])
def test_the_ceiling_is_the_auc_of_the_best_player(mu: float) -> None:
    x = np.linspace(-10, 14, 48_001)
    present = np.exp(-((x - mu) ** 2) / 2) / math.sqrt(2 * math.pi)
    below = np.array([0.5 * math.erfc(-v / math.sqrt(2)) for v in x])
    assert ceiling(mu) == pytest.approx(float((present * below).sum() * (x[1] - x[0])), abs=1e-6)


def test_nonsense_is_refused() -> None:
    with pytest.raises(ConfigError, match="delta must lie"):
        epsilon_of_mu(1.0, 0.0)
    with pytest.raises(ConfigError, match="error rate"):
        upper_limit(3, 2, 0.01)
    with pytest.raises(ConfigError, match="mu > 0"):
        runs_for(0.0)
