"""The game: correct code stays below its ledger in every seed, weak noise rises above it in every seed."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from colonnade.audit.bound import epsilon_of_mu
from colonnade.audit.claims import claim_of
from colonnade.audit.game import Pairs, directions, judge, play
from colonnade.audit.scores import Worlds, differences, likelihood
from colonnade.audit.shapes import Layout
from colonnade.audit.trial import CLEAREST, Trial, plan
from colonnade.errors import ConfigError
from colonnade.privacy.bounded import BoundedGaussian
from colonnade.privacy.gaussian import Gaussian, SeededNoise, SystemNoise
from colonnade.privacy.mechanism import Mechanism
from tests.audit.quick import Quick

DELTA, CLIP = 1e-5, 3.0
SMALL = Layout.of((4, 2))


def claimed(sigma: float, releases: int) -> float:
    return epsilon_of_mu(math.sqrt(releases) / sigma, DELTA)


def trial(sigma: float, releases: int, runs: int = 1000, layout: Layout = SMALL, **more: object) -> Trial:
    mechanism = Quick(CLIP, sigma)
    claim = claim_of(mechanism.event)
    return Trial(mechanism, claim, layout, releases, runs, DELTA, **more)  # type: ignore[arg-type]


def play_one(mechanism: Mechanism, sigma: float, releases: int, seed: int, runs: int = 1000) -> float:
    return trial(sigma, releases, runs).play(seed, mechanism).bound.epsilon


@pytest.mark.parametrize(("sigma", "releases", "seeds"), [(1.0, 1, 6), (1.0, 4, 2)])
def test_correct_code_is_below_and_noise_at_0_8_above_in_every_seed(sigma: float, releases: int, seeds: int) -> None:
    fair = plan(trial(sigma, 1), releases)
    assert fair.releases == releases
    correct = [fair.play(seed) for seed in range(seeds)]
    weak = [fair.play(seed, Quick(CLIP, 0.8 * sigma)) for seed in range(seeds)]
    assert max(o.bound.epsilon for o in correct) < claimed(sigma, releases) < min(o.bound.epsilon for o in weak)
    assert (
        len({o.bound.epsilon for o in correct}) == seeds
    )  # the seeds are games of their own, not one game twenty times
    assert min(o.bound.epsilon for o in correct) > claimed(sigma, releases) / 2  # and the player is not blind
    assert min(o.pairs.p for o in correct) > 1e-4 > max(o.pairs.p for o in weak)


@pytest.mark.parametrize("source", [SeededNoise(7), SystemNoise()], ids=["seeded", "system"])
def test_the_gate_s_own_mechanism(source: SeededNoise | SystemNoise) -> None:
    for seed in range(2):
        assert play_one(Gaussian(CLIP, 1.0, source), 1.0, 1, seed) < claimed(1.0, 1)
        assert play_one(Gaussian(CLIP, 0.5, source), 1.0, 1, seed) > claimed(1.0, 1)


def test_no_bound_is_above_the_truth_in_many_small_games() -> None:
    """The confidence is 99.99 %: of 150 games none may be wrong."""
    quick = Quick(CLIP, 1.0)
    wrong = sum(
        play_one(replace(quick, seed=seed), 1.0, 2, seed, runs=50) > claimed(1.0, 2) for seed in range(150)
    )  # fmt: skip
    assert wrong == 0


def test_pairs_at_the_ceiling_are_binomial() -> None:
    """Correct code sits at the ceiling, so its p-values are spread evenly: a tenth of them is below a tenth."""
    fair = trial(1.0, 1, runs=60)
    found = [fair.play(seed).pairs.p for seed in range(100)]
    assert 1 <= sum(p < 0.1 for p in found) <= 25
    assert min(found) > 1e-4


def test_ties_are_half_a_win() -> None:
    assert Pairs(50.0, 100, 0.5).p > 0.4
    assert Pairs(100.0, 100, 0.5).p < 1e-12


def test_replaced_neighbours_are_twice_as_far_apart() -> None:
    found = trial(1.0, 1, neighbours="replaced").play(0)
    assert claimed(1.0, 1) < found.bound.epsilon < claimed(0.5, 1)


def test_arrays_of_an_upload_are_clipped_and_seen_together() -> None:
    layout = Layout.of({"h": (3, 2), "extra": (3, 1, 2)})
    for sigma, above in ((1.0, False), (0.5, True)):
        fair = trial(1.0, 1, layout=layout)
        assert fair.play(2, Quick(CLIP, sigma)).bound.above(fair.claimed) is above


def test_a_seeded_mechanism_never_draws_twice() -> None:
    """Zero uploads of all games of a seed and of the next: no two releases are alike."""
    layout, zeros = Layout.of((2, 2)), torch.zeros(3, 4, dtype=torch.float64)
    mechanism = Gaussian(CLIP, 1.0, SeededNoise(0))
    seen = [play(mechanism, layout, zeros, 120, first) for first in (0, 120 * 3, 2 * 120 * 3)]
    releases = torch.cat(seen).view(-1, 4)
    assert len(releases.unique(dim=0)) == len(releases)


def test_layout_is_there_and_back() -> None:
    layout = Layout.of({"a": (2, 3), "b": (2,)})
    flat = torch.arange(16.0, dtype=torch.float64).view(2, 8)
    assert torch.equal(layout.join(layout.split(flat)), flat)
    assert {n: tuple(v.shape) for n, v in layout.split(flat).items()} == {"a": (2, 2, 3), "b": (2, 2)}
    assert [tuple(t.shape) for t in layout.tables(flat)] == [(2, 2, 3), (2, 1, 2)]
    assert dict(Layout.of({"a": (900, 30), "b": (70,)}).smaller(8, 4).shapes) == {"a": (8, 4), "b": (4,)}


@pytest.mark.parametrize("signs", [False, True])
def test_canaries_are_unit_vectors_and_differ(signs: bool) -> None:
    drawn = directions(6, 8, seed=1, signs=signs)
    torch.testing.assert_close(drawn.norm(dim=1), torch.ones(6, dtype=torch.float64))
    assert float((drawn @ drawn.T - torch.eye(6)).abs().max()) < 0.99
    assert not torch.equal(drawn, directions(6, 8, seed=2, signs=signs))


def test_scores_agree_with_a_slow_reading_of_their_words() -> None:
    generator = torch.Generator().manual_seed(0)
    seen, present, absent = (
        torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in ((9, 4, 5), (4, 5), (4, 5))
    )
    worlds = Worlds(present, absent)
    for run, (fast, clear) in enumerate(zip(likelihood(seen, worlds), differences(seen, worlds), strict=True)):
        nearer = ((seen[run] - absent) ** 2).sum() - ((seen[run] - present) ** 2).sum()
        assert float(2 * fast) == pytest.approx(float(nearer))
        verdicts = []
        for a in range(4):
            for b in range(a):
                d = seen[run, a] - seen[run, b]
                there, gone = present[a] - present[b], absent[a] - absent[b]
                left = min((d - there).norm(), (d - gone).norm())
                w = there - gone
                verdicts.append(float((d - (there + gone) / 2) @ w / (w.norm() * left)))
        assert float(clear) == pytest.approx(max(verdicts, key=abs), rel=1e-6)


def test_a_score_that_is_no_number_shows_nothing() -> None:
    nothing = torch.full((500, 2, 2), math.nan, dtype=torch.float64)
    one = torch.ones(2, 2, dtype=torch.float64)
    found = judge(nothing, nothing, Worlds(one, 0 * one), DELTA, 1.0)
    assert (found.bound.epsilon, found.pairs.wins) == (0.0, 0.0)


@pytest.mark.parametrize("bad", [{"releases": 0}, {"runs": 0}, {"part": 0.0}, {"part": 1.5}])
def test_a_game_without_play_is_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="needed releases and runs above 0"):
        replace(trial(1.0, 1), **bad)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="at least 2 cells"):
        Layout.of((1, 1))


@pytest.mark.parametrize(("sigma", "releases", "played"), [(1.0, 53, 4), (5.0, 53, 53), (5.0, 1, 1), (0.1, 53, 2)])
def test_a_plan_plays_what_can_be_told_apart(sigma: float, releases: int, played: int) -> None:
    found = plan(trial(sigma, 1, layout=Layout.of((1024, 16))), releases)
    assert found.releases == played
    assert found.layout.cells == 32
    assert found.mu <= CLEAREST * (1 + 1e-9)
    assert (found.part < 1) == (sigma < 0.5)


def test_a_plan_says_what_it_would_not_show() -> None:
    long, short = (plan(trial(30.0, 1), 53, draws) for draws in (10**8, 10**5))
    assert long.shows <= 1.2501 < short.shows


def test_a_mechanism_that_bounds_numbers_is_played_at_its_width() -> None:
    mechanism = BoundedGaussian(1.0, 2.0, 16, SeededNoise(0))
    claim = claim_of(mechanism.event)
    found = plan(Trial(mechanism, claim, Layout.of((100, 16))), 5)  # type: ignore[arg-type]
    assert found.layout.shapes == (("h", (1, 16)),)
    assert found.mu == pytest.approx(2.0)  # sqrt(16) / 2
    assert not found.play(0).bound.above(found.claimed)
