"""The Poisson binomial mechanism: its cost against slow sums, its counts against their law, and the gate around it."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from colonnade.errors import AccountingError, ConfigError, GateError
from colonnade.privacy.gate import Gate
from colonnade.privacy.gaussian import SeededNoise, SystemNoise
from colonnade.privacy.ledger import Entry, Ledger
from colonnade.privacy.mechanism import Protection
from colonnade.privacy.pbm import (
    Counted,
    PoissonBinomial,
    cell_rdp,
    counted_epsilon,
    divergence,
    estimate,
    expected,
    local_rdp,
    pbm_epsilon,
    sum_rdp,
)
from colonnade.privacy.sealed import Array, Upload
from colonnade.wire.codec import decode
from colonnade.wire.messages import Purpose
from tests.releases import released


class TestCost:
    @pytest.mark.parametrize(("theta", "wanted"), [(0.05, 0.634), (0.15, 5.33)])
    def test_the_local_figures_of_the_specification(self, theta: float, wanted: float) -> None:
        assert local_rdp(2, 16, theta) == pytest.approx(wanted, abs=0.005)

    @pytest.mark.parametrize(("theta", "wanted"), [(0.05, 0.1627), (0.15, 1.69), (0.25, 6.4)])
    def test_the_sum_s_figures_of_the_specification(self, theta: float, wanted: float) -> None:
        assert sum_rdp(2, 16, theta, 4) == pytest.approx(wanted, rel=0.006)

    def test_the_often_quoted_figure_is_no_bound(self) -> None:
        assert sum_rdp(2, 16, 0.25, 4) > 8 * 2 * 16 * 0.25**2 / 4

    @given(st.floats(1.05, 40), st.integers(1, 4), st.floats(0.01, 0.45), st.integers(1, 3), st.data())
    @settings(max_examples=40, deadline=None)
    def test_the_divergence_is_the_sum_over_all_outcomes(
        self, alpha: float, trials: int, theta: float, parties: int, data: st.DataObject
    ) -> None:
        """By writing every trial of everybody out: 2^(n M) outcomes."""
        others = trials * (parties - 1)
        high = data.draw(st.integers(0, others))
        rest = [0.5 + theta] * high + [0.5 - theta] * (others - high)
        here, there = (outcomes([own] * trials + rest) for own in (0.5 + theta, 0.5 - theta))
        slow = math.log(sum(p**alpha * q ** (1 - alpha) for p, q in zip(here, there, strict=True))) / (alpha - 1)
        assert divergence(alpha, trials, theta, others, high) == pytest.approx(slow, rel=1e-8, abs=1e-10)

    @pytest.mark.parametrize("theta", [0.02, 0.1, 0.25, 0.45])
    @pytest.mark.parametrize("alpha", [1.01, 2, 16, 128])
    @pytest.mark.parametrize(("trials", "parties"), [(1, 2), (2, 8), (16, 3)])
    def test_no_company_is_worse_than_one_of_the_ends(
        self, trials: int, parties: int, alpha: float, theta: float
    ) -> None:
        others = trials * (parties - 1)
        every = [divergence(alpha, trials, theta, others, j) for j in range(others + 1)]
        assert max(every) <= sum_rdp(alpha, trials, theta, parties) * (1 + 1e-12)

    @pytest.mark.parametrize("x", [-0.6, 0.0, 0.3, 1.0])
    def test_no_value_between_is_worse_than_the_ends(self, x: float) -> None:
        """Own values and company that are not extreme, by plain convolution."""
        n, theta, alpha = 6, 0.2, 3.0
        rest = binomial(n, 0.5 + theta * x)
        worst = 0.0
        for one, other in product(np.linspace(-1, 1, 9), repeat=2):
            here, there = (np.convolve(binomial(n, 0.5 + theta * v), rest) for v in (one, other))
            worst = max(worst, math.log(float((here**alpha * there ** (1 - alpha)).sum())) / (alpha - 1))
        assert worst <= sum_rdp(alpha, n, theta, 2) * (1 + 1e-12)

    def test_alone_in_the_sum_is_local(self) -> None:
        for alpha in (1.5, 2, 30):
            assert sum_rdp(alpha, 16, 0.2, 1) == pytest.approx(local_rdp(alpha, 16, 0.2), rel=1e-10)

    def test_company_helps_and_a_row_of_everybody_s_is_helped_by_nobody(self) -> None:
        costs = [sum_rdp(4, 16, 0.2, m) for m in (1, 2, 4, 8, 14)]
        assert costs == sorted(costs, reverse=True)
        assert cell_rdp(4, 16, 0.2, 14, "row") == 14 * local_rdp(4, 16, 0.2)
        assert cell_rdp(4, 16, 0.2, 14, "sum") == costs[-1]

    def test_a_hundred_parties_stay_finite(self) -> None:
        assert 0 < sum_rdp(64, 64, 0.45, 100) < local_rdp(64, 64, 0.45) < math.inf

    @pytest.mark.parametrize(("alpha", "trials", "theta"), [(1, 16, 0.1), (2, 0, 0.1), (2, 16, 0), (2, 16, 0.5)])
    def test_nonsense_is_refused(self, alpha: float, trials: int, theta: float) -> None:
        with pytest.raises(ConfigError):
            local_rdp(alpha, trials, theta)

    def test_a_sum_of_nobody_is_refused(self) -> None:
        with pytest.raises(ConfigError, match="at least 1 party"):
            sum_rdp(2, 16, 0.1, 0)


class TestEpsilon:
    def test_it_is_above_the_truth_for_one_coin(self) -> None:
        """One trial, one cell: the true delta at the reported epsilon is known in closed form, and below."""
        p, delta = 0.75, 1e-3
        epsilon = pbm_epsilon(delta, 1, 0.25, parties=1, cells=1, releases=1, view="local")
        assert max(0.0, p - math.exp(epsilon) * (1 - p)) <= delta
        assert epsilon < 1.2 * math.log(p / (1 - p)) + 0.1  # pure epsilon is log 3, and the bound is not far off

    def test_it_grows_with_cells_and_releases_alike(self) -> None:
        facts = {"parties": 4, "view": "sum"}
        one = pbm_epsilon(1e-5, 16, 0.05, cells=60, releases=2, **facts)
        assert one == pbm_epsilon(1e-5, 16, 0.05, cells=2, releases=60, **facts)
        assert one < pbm_epsilon(1e-5, 16, 0.05, cells=60, releases=3, **facts)
        assert pbm_epsilon(1e-5, 16, 0.05, cells=60, releases=0, **facts) == 0

    def test_the_figures_of_the_method_s_page(self) -> None:
        facts = {"parties": 14, "cells": 60, "releases": 3}
        assert pbm_epsilon(1e-5, 16, 0.05, **facts, view="sum") == pytest.approx(17, abs=0.5)
        assert pbm_epsilon(1e-5, 16, 0.05, **facts, view="local") == pytest.approx(107, abs=0.5)
        assert local_rdp(2, 16, 0.25) == pytest.approx(13.6, abs=0.05)

    def test_delta_is_a_probability(self) -> None:
        with pytest.raises(AccountingError):
            pbm_epsilon(1.0, 16, 0.05, parties=1, cells=1, releases=1, view="local")


def counts(number: int, rows: int, **facts: float) -> Entry:
    told = {"trials": 16.0, "theta": 0.05, "width": 3.0, "simulated": 0.0, **facts}
    name = "poisson binomial sum" if "parties" in facts else "poisson binomial"
    return released("a", name, number, rows=rows, **told)


class TestLedger:
    """What the ledger says is what the accountant counts."""

    def test_cells_of_all_releases_count(self) -> None:
        found = Counted.of([counts(1, 5), counts(2, 7)])
        assert found == (Counted(16, 0.05, 1, 3 * 12),)
        alone = pbm_epsilon(1e-5, 16, 0.05, parties=9, cells=36, releases=1, view="local")
        assert counted_epsilon(found, 1e-5) == pytest.approx(alone, rel=1e-12)
        row = pbm_epsilon(1e-5, 16, 0.05, parties=9, cells=36, releases=1, view="row")
        assert counted_epsilon([one.everywhere(9) for one in found], 1e-5) == pytest.approx(row, rel=1e-12)

    def test_colluders_hide_nobody(self) -> None:
        found = Counted.of([counts(1, 5, parties=6, colluders=2)])
        assert found == (Counted(16, 0.05, 4, 15),)
        four = pbm_epsilon(1e-5, 16, 0.05, parties=4, cells=15, releases=1, view="sum")
        assert counted_epsilon(found, 1e-5) == pytest.approx(four, rel=1e-12)
        assert counted_epsilon(found, 1e-5) < counted_epsilon(Counted.of([counts(1, 5)]), 1e-5)

    def test_kinds_add_up_and_nothing_costs_nothing(self) -> None:
        one, other = counts(1, 5), counts(2, 5, theta=0.1)
        both = counted_epsilon(Counted.of([one, other]), 1e-5)
        assert both > max(counted_epsilon(Counted.of([each]), 1e-5) for each in (one, other))
        assert counted_epsilon((), 1e-5) == 0.0


class TestMechanism:
    def test_the_estimate_is_unbiased_and_its_variance_is_known(self) -> None:
        values = torch.linspace(-1, 1, 5).repeat(3, 20_000, 1)  # three alike parties
        n, theta = 16, 0.2
        mechanism = PoissonBinomial(n, theta, 5, SeededNoise(1))
        counts = mechanism({"q": expected(values, n, theta)}, ("a", "b", "c"), 1, "TRAIN.0")["q"]
        assert torch.equal(counts, counts.round())
        assert int(counts.min()) >= 0 and int(counts.max()) <= n
        guess = estimate(counts.sum(dim=0), 3, n, theta).double()
        p = 0.5 + theta * values[0, 0].double()
        deviation = (3 * n * p * (1 - p)).sqrt() / (theta * n)
        torch.testing.assert_close(guess.std(dim=0), deviation, rtol=0.03, atol=0)
        assert ((guess.mean(dim=0) - 3 * values[0, 0]).abs() < 5 * deviation / 20_000**0.5).all()

    def test_counts_follow_the_binomial_law(self) -> None:
        n, theta, rows = 6, 0.3, 40_000
        means = expected(torch.full((1, rows, 1), 0.5), n, theta)
        counts = PoissonBinomial(n, theta, 1, SeededNoise(2))({"q": means}, ("a",), 1, "TRAIN.0")["q"]
        seen = np.bincount(counts.flatten().long().numpy(), minlength=n + 1)
        wanted = rows * binomial(n, 0.5 + theta * 0.5)
        assert ((seen - wanted) ** 2 / wanted).sum() < 22.5  # chi-square with 6 degrees of freedom, 0.1 %

    def test_what_is_out_of_bounds_is_clipped_at_the_gate_too(self) -> None:
        mechanism, rows = PoissonBinomial(16, 0.1, 1, SeededNoise(3)), 4000
        counts = mechanism({"q": torch.full((1, rows, 1), 16.0)}, ("a",), 1, "TRAIN.0")["q"]
        assert abs(float(counts.double().mean()) - 16 * 0.6) < 0.2

    def test_draws_belong_to_the_party_the_round_and_the_part(self) -> None:
        mechanism = PoissonBinomial(16, 0.2, 4, SeededNoise(0))
        means = expected(torch.zeros(2, 6, 4), 16, 0.2)
        both = mechanism({"q": means}, ("a", "b"), 1, "TRAIN.0")["q"]
        assert torch.equal(both[1:], mechanism({"q": means[1:]}, ("b",), 1, "TRAIN.0")["q"])
        assert not torch.equal(both[0], both[1])
        assert not torch.equal(both, mechanism({"q": means}, ("a", "b"), 2, "TRAIN.0")["q"])
        assert not torch.equal(both, mechanism({"q": means}, ("a", "b"), 1, "TRAIN.1")["q"])

    def test_the_gate_sends_whole_numbers_and_records_the_facts(self) -> None:
        ledger = Ledger()
        mechanism = PoissonBinomial(16, 0.2, 3, SeededNoise(0))
        gate = Gate("run", ledger, {"q": Array(3)}, Protection.everywhere(mechanism))
        passed = gate.release(Upload({"q": torch.full((2, 5, 3), 8.0)}), ("a", "b"), 1, Purpose.TRAIN, 5)
        sent = decode(passed.releases[0].payload)[1]["q"]
        assert torch.equal(sent, sent.round())
        assert torch.equal(sent, passed.values["q"][0])
        assert [r.mechanism for r in ledger] == ["poisson binomial"] * 2
        assert dict(next(iter(ledger)).parameters) == {"trials": 16, "theta": 0.2, "width": 3, "simulated": 1.0}

    def test_nonsense_is_refused(self) -> None:
        with pytest.raises(ConfigError, match="one byte"):
            PoissonBinomial(256, 0.1, 1)
        with pytest.raises(ConfigError, match="theta"):
            PoissonBinomial(16, 0.5, 1)
        with pytest.raises(GateError, match="whole already"):
            PoissonBinomial(16, 0.1, 3)({"q": torch.zeros(1, 2, 3, dtype=torch.uint8)}, ("a",), 1, "TRAIN.0")
        with pytest.raises(GateError, match="4 numbers per row; it was declared with 3"):
            PoissonBinomial(16, 0.1, 3)({"q": torch.zeros(1, 2, 4)}, ("a",), 1, "TRAIN.0")


def binomial(n: int, p: float) -> np.ndarray:
    return np.array([math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)])


def outcomes(chances: list[float]) -> list[float]:
    """Probability of each number of successes, by visiting all 2^len(chances) outcomes."""
    out = [0.0] * (len(chances) + 1)
    for bits in product((0, 1), repeat=len(chances)):
        out[sum(bits)] += math.prod(c if b else 1 - c for b, c in zip(bits, chances, strict=True))
    return out


def test_counts_that_nobody_may_draw_again_come_from_the_cipher(monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy's Philox is none, whoever has keyed it."""

    def no(*_: object) -> np.random.Generator:
        raise AssertionError("not a cipher")

    monkeypatch.setattr(SystemNoise, "generator", no)
    trials, theta = 16, 0.1
    mechanism = PoissonBinomial(trials, theta, 5, SystemNoise())
    means = torch.full((1, 4000, 5), trials * 0.55, dtype=torch.float64)
    means[:, :2000] = 1e9  # far beyond the bound
    counts = mechanism({"q": means}, ["a"], 1, "TRAIN.0")["q"][0].double()
    for part, chance in ((counts[:2000], 0.5 + theta), (counts[2000:], 0.55)):
        spread = trials * chance * (1 - chance)
        assert float(part.mean()) == pytest.approx(trials * chance, abs=5 * (spread / part.numel()) ** 0.5)
        assert float(part.var()) == pytest.approx(spread, rel=0.06)
    again = mechanism({"q": means}, ["a"], 1, "TRAIN.0")["q"][0].double()
    assert float((again == counts).double().mean()) < 0.3
