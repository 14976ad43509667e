"""The game: correct code stays below its ledger in every seed, half the noise rises above it in every seed."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from colonnade.audit.bound import epsilon_of_mu, runs_for
from colonnade.audit.game import Layout, directions, judge, lower_bound, play
from colonnade.audit.scores import Worlds, differences, likelihood
from colonnade.errors import ConfigError
from colonnade.privacy.gaussian import Gaussian, SeededNoise, SystemNoise
from colonnade.privacy.mechanism import Mechanism, Unchanged
from tests.audit.quick import Quick

DELTA, CLIP = 1e-5, 3.0


def claimed(sigma: float, releases: int) -> float:
    return epsilon_of_mu(math.sqrt(releases) / sigma, DELTA)


def play_one(mechanism: Mechanism, releases: int, seed: int, runs: int = 1000) -> float:
    return lower_bound(mechanism, (4, 2), releases, runs, DELTA, CLIP, seed).epsilon


@pytest.mark.parametrize(("sigma", "releases"), [(1.0, 1), (2.0, 4), (5.0, 12)])
def test_twenty_of_twenty_seeds(sigma: float, releases: int) -> None:
    runs = 1000 if releases == 1 else runs_for(math.sqrt(releases) / sigma)
    correct = [play_one(Quick(CLIP, sigma), releases, seed, runs) for seed in range(20)]
    half = [play_one(Quick(CLIP, sigma / 2), releases, seed, runs) for seed in range(20)]
    assert max(correct) < claimed(sigma, releases) < min(half)
    assert len(set(correct)) > 10  # the seeds are games of their own, not one game twenty times
    assert min(correct) > claimed(sigma, releases) / 3  # and the player is not blind


@pytest.mark.parametrize("source", [SeededNoise(7), SystemNoise()], ids=["seeded", "system"])
def test_the_gate_s_own_mechanism(source: SeededNoise | SystemNoise) -> None:
    for seed in range(4):
        assert play_one(Gaussian(CLIP, 1.0, source), 1, seed) < claimed(1.0, 1)
        assert play_one(Gaussian(CLIP, 0.5, source), 1, seed) > claimed(1.0, 1)


def test_weak_noise_needs_more_runs_and_then_shows() -> None:
    """mu = 0.2: 1,000 runs cannot tell half the noise from all of it; as many as `runs_for` says can."""
    assert play_one(Quick(CLIP, 2.5), 1, 0) < claimed(5.0, 1)
    assert play_one(Quick(CLIP, 2.5), 1, 0, runs=16_000) > claimed(5.0, 1)
    assert play_one(Quick(CLIP, 5.0), 1, 0, runs=16_000) < claimed(5.0, 1)


def test_no_bound_is_above_the_truth_in_many_small_games() -> None:
    """The confidence is 99.9 %: of 300 games none or, at worst, one may be wrong."""
    truth, quick = claimed(1.0, 2), Quick(CLIP, 1.0)
    wrong = sum(play_one(replace(quick, seed=seed), 2, seed, runs=50) > truth for seed in range(300))
    assert wrong <= 1


def test_replaced_neighbours_are_twice_as_far_apart() -> None:
    bound = lower_bound(Quick(CLIP, 1.0), (4, 2), 1, 1000, DELTA, CLIP, 0, "replaced")
    assert claimed(1.0, 1) < bound.epsilon < claimed(0.5, 1)


def test_arrays_of_an_upload_are_clipped_and_seen_together() -> None:
    shape = {"h": (3, 2), "extra": (3, 1, 2)}
    for sigma, above in ((1.0, False), (0.5, True)):
        bound = lower_bound(Quick(CLIP, sigma), shape, 1, 1000, DELTA, CLIP, 2)
        assert bound.above(claimed(1.0, 1)) is above


def test_no_protection_is_seen_at_once() -> None:
    bound = lower_bound(Unchanged(), (2, 2), 1, 1000, DELTA, CLIP)
    assert (bound.fpr, bound.fnr) == (0.0, 0.0)
    assert bound.mu > 4.5


def test_a_seeded_mechanism_never_draws_twice() -> None:
    """Zero uploads of all games of a seed and of the next: no two releases are alike."""
    layout, zeros = Layout.of((2, 2)), torch.zeros(3, 4, dtype=torch.float64)
    mechanism = Gaussian(CLIP, 1.0, SeededNoise(0))
    seen = [play(mechanism, layout, zeros, 120, first) for first in (0, 120 * 3, 2 * 120 * 3)]
    cells = torch.cat(seen).flatten()
    assert len(cells.unique()) > 0.99 * len(cells)  # float32 has few digits: a chance meeting of cells is no re-use
    releases = torch.cat(seen).view(-1, 4)
    assert len(releases.unique(dim=0)) == len(releases)


def test_layout_is_there_and_back() -> None:
    layout = Layout.of({"a": (2, 3), "b": (2,)})
    flat = torch.arange(16.0, dtype=torch.float64).view(2, 8)
    assert torch.equal(layout.join(layout.split(flat)), flat)
    assert {n: tuple(v.shape) for n, v in layout.split(flat).items()} == {"a": (2, 2, 3), "b": (2, 2)}


def test_canaries_are_unit_vectors_and_differ() -> None:
    drawn = directions(6, 8, seed=1)
    torch.testing.assert_close(drawn.norm(dim=1), torch.ones(6, dtype=torch.float64))
    assert float((drawn @ drawn.T - torch.eye(6)).abs().max()) < 0.99
    assert not torch.equal(drawn, directions(6, 8, seed=2))


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
    nothing = torch.full((500, 4, 2), math.nan, dtype=torch.float64)
    one = torch.ones(4, 2, dtype=torch.float64)
    assert judge(nothing, nothing, Worlds(one, 0 * one), 2, DELTA).epsilon == 0.0


@pytest.mark.parametrize("bad", [{"releases": 0}, {"runs": 0}, {"clip": 0.0}, {"shape": (1, 1)}])
def test_a_game_without_play_is_refused(bad: dict[str, object]) -> None:
    given: dict[str, object] = {"shape": (2, 2), "releases": 1, "runs": 5, "delta": DELTA, "clip": CLIP} | bad
    with pytest.raises(ConfigError, match=r"needs|needed"):
        lower_bound(Unchanged(), **given)  # type: ignore[arg-type]
