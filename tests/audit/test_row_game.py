"""Unit ROW: the game against the figure catches planted bugs, and leaves correct code below its epsilon."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from scipy.special import ndtr
from torch import Tensor

from colonnade.audit.at_home import DRAWS, NOISE
from colonnade.audit.checks import BOUND
from colonnade.audit.planted_rows import LISTED, MISTAKES, plant_rows, row_failure
from colonnade.audit.row_bound import Steps, allows, least_noise
from colonnade.audit.row_game import RowGame
from colonnade.errors import ConfigError
from colonnade.methods import LocalOnly
from colonnade.models.by_row import RowTraining
from colonnade.models.cohort import Cohort
from colonnade.privacy.by_row import LocalSteps, RowNoise
from colonnade.privacy.gaussian import NoiseSource, SeededNoise, SystemNoise
from colonnade.privacy.sampled import calibrate_steps
from colonnade.schedule import RoundPlan
from colonnade.tasks import find_task

PLAN = LocalSteps(rows=900, batch=300, steps=20, parties=3)
EPSILON, SIGMA = 8.0, calibrate_steps(8.0, 1e-5, 1 / 3, 60)
TASKS = {"multiclass": (10, 3), "binary": (1,), "multilabel": (3,)}
BY_GAME = {*MISTAKES} - {"rows_one_batch", "rows_fixed_size"}


def game(source: NoiseSource | None = None, task: str = "multiclass", outputs: int = 10, **more: Any) -> RowGame:
    how = RowNoise(0.5, SIGMA, PLAN, source or SeededNoise(3))
    made = RowGame(how, LocalOnly(), ("bank", "shop", "telco"), find_task(task)(outputs), torch.float32, 1e-5)
    return replace(made, **more)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("source", [SeededNoise(0), SystemNoise()], ids=["seeded", "system"])
def test_correct_code_stays_below_its_epsilon_and_not_far(source: NoiseSource, seed: int) -> None:
    check = game(source).check(seed, 1000)
    assert not check.failed and check.name == BOUND
    assert 0.4 * EPSILON < float(check.facts["epsilon"]) < float(check.facts["claimed"])  # type: ignore[arg-type]
    assert check.facts["claimed"] == pytest.approx(EPSILON, rel=0.01) and "60 of 60 steps" in check.means


@pytest.mark.parametrize("task", [(name, k) for name, ks in TASKS.items() for k in ks])
@pytest.mark.parametrize("chained", [True, False], ids=["chain", "rows one by one"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_it_knows_the_gradients_of_every_task(task: tuple[str, int], chained: bool, dtype: torch.dtype) -> None:
    """A wrong sign at one party would cost the player most of what it sees."""
    smoothed = LocalOnly(local_steps=2, smoothing=0.1)
    check = game(task=task[0], outputs=task[1], chained=chained, dtype=dtype, method=smoothed).check(1, 500)
    assert not check.failed and float(check.facts["epsilon"]) > 0.3 * EPSILON  # type: ignore[arg-type]


@pytest.mark.parametrize("bug", sorted(BY_GAME))
def test_the_game_alone_sees_a_bug(bug: str) -> None:
    check = plant_rows(game(), bug).check(1, 1000)
    assert check.failed and float(check.facts["epsilon"]) > EPSILON, check  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("bug", "by"), [("rows_one_batch", DRAWS), ("rows_fixed_size", DRAWS), ("rows_half_noise", NOISE)]
)
def test_what_the_rest_of_the_audit_sees_first(bug: str, by: str) -> None:
    """Batches that always have one size hide a single row nearly as well: no game sees them, and the draws tell."""
    found = row_failure(plant_rows(game(), bug), seed=1)
    assert found is not None and found.name == by


def test_the_wrapper_without_a_bug_is_left_alone() -> None:
    assert row_failure(plant_rows(game(), "no_bug"), seed=1) is None
    with pytest.raises(ConfigError, match="known: rows_unclipped"):
        plant_rows(game(), "rows_unsinkable")
    assert plant_rows(game(), LISTED).listed == 2


class GoesByThePlan(LocalOnly):
    """A method that takes the rows of the round's plan, which everybody knows, and not those that are drawn."""

    def _learn_by_row(self, cohort: Cohort, how: RowTraining, plan: RoundPlan) -> None:
        assert isinstance(how, RowNoise)
        super()._learn_by_row(cohort, Planned(how.clip, how.sigma, how.plan, how.source, plan.rows), plan)


@dataclass(frozen=True)
class Planned(RowNoise):
    known: Tensor = torch.empty(0)  # noqa: RUF009 - never changed

    def draw(self, parties: Any, number: int, step: int) -> Tensor:
        drawn = torch.zeros(len(parties), self.plan.rows, dtype=torch.bool)
        drawn[:, self.known] = True
        return drawn


def test_it_goes_through_the_methods_own_steps() -> None:
    check = game(method=GoesByThePlan()).check(0)
    assert check.failed and check.facts["score"] == "sum over the plan"


def test_a_long_training_is_played_in_part_and_held_against_its_part() -> None:
    how = RowNoise(1.0, 0.6, LocalSteps(900, 300, 400, 3), SeededNoise(1))
    check = game(how=how).check(0, 300)
    assert not check.failed and int(check.facts["releases"]) < 60  # type: ignore[call-overload]
    assert "of 1,200 steps" in check.means and float(check.facts["claimed"]) < how_much(how)  # type: ignore[arg-type]


def how_much(how: RowNoise) -> float:
    return Steps(how.plan.rate, how.sigma, how.plan.releases).epsilon(1e-5)


def test_few_games_say_that_they_show_nothing() -> None:
    weak = RowNoise(1.0, 30.0, PLAN, SeededNoise(1))
    check = game(how=weak).check(0, 50)
    assert "too few to show anything; 'noise at home' needs no games" in check.means
    assert (check.facts["epsilon"], check.facts["sigma"], check.failed) == (0.0, None, False)


# -- the bound ------------------------------------------------------------------------------------


@pytest.mark.parametrize("sigma", [0.5, 1.0, 3.0])
def test_without_sampling_it_is_the_bound_of_a_gaussian(sigma: float) -> None:
    """Of one release at rate 1 the rates of the best test are known: Phi(-1/(2 sigma)) both."""
    rate = float(ndtr(-1 / (2 * sigma)))
    found = least_noise(Steps(1.0, 2.0, 1), rate, rate)
    assert found == pytest.approx(sigma, rel=0.03) and found >= 0.995 * sigma
    assert allows(Steps(1.0, sigma, 1), rate, rate)


def test_fewer_errors_need_less_noise() -> None:
    steps = Steps(0.2, 2.0, 50)
    bounds = [least_noise(steps, rate, rate) for rate in (0.45, 0.3, 0.2, 0.1)]
    assert bounds == sorted(bounds, reverse=True) and bounds[-1] < steps.sigma < bounds[0]
    assert math.isinf(least_noise(steps, 0.5, 0.5)) and steps.epsilon(1e-5, math.inf) == 0


def test_one_sided_errors_count_too() -> None:
    """A player that is never wrong about rows that were not there, and sees half of the others: rate 1/2, no noise."""
    steps = Steps(0.5, 2.0, 1)
    assert least_noise(steps, 1e-6, 0.55) < steps.sigma
    assert allows(steps, 1e-6, 1 - 1e-6)
