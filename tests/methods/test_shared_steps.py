"""Small pieces that several methods share."""

from __future__ import annotations

import pytest
import torch

from colonnade.errors import ConfigError
from colonnade.federation import Federation, RowSplit
from colonnade.fit import fit
from colonnade.methods import VIMADMM, VIMADMMJ, make_method
from colonnade.models.optimise import SGD, AdamW, rate_of
from colonnade.tasks.multiclass import Multiclass
from colonnade.tasks.regression import Regression
from tests.federations import small


def test_smoothed_targets_are_still_probabilities_with_the_same_winner() -> None:
    targets = torch.eye(4, dtype=torch.float64)
    soft = Multiclass(4).smoothed(targets, 0.2)
    torch.testing.assert_close(soft.sum(1), torch.ones(4, dtype=torch.float64))
    torch.testing.assert_close(soft.diagonal(), torch.full((4,), 0.85, dtype=torch.float64))


def test_other_tasks_are_not_smoothed() -> None:
    numbers = torch.tensor([[3.5], [-1.0]])
    assert Regression(1).smoothed(numbers, 0.2) is numbers


@pytest.mark.parametrize("optimiser", [SGD(halve_every=10), AdamW(halve_every=10)])
def test_the_step_size_halves_with_the_round_number(optimiser: SGD | AdamW) -> None:
    assert [rate_of(optimiser, plan) for plan in (0, 10, 20)] == [1.0, 0.5, 0.25]
    assert rate_of(SGD(), 1000) == 1.0


def test_a_halving_step_size_ends_with_smaller_steps() -> None:
    """The same run, once with constant and once with vanishing steps: late rounds move the model far less."""

    def moved(halve_every: int) -> float:
        sgd = SGD(lr=0.05, halve_every=halve_every)
        runs = [
            fit(small(), VIMADMMJ(optimiser=sgd, local_steps=2), rounds=n, evaluate_every=0).model.flat()
            for n in (12, 13)
        ]
        return max(float((runs[0][k] - runs[1][k]).abs().max()) for k in runs[0])

    assert moved(halve_every=1) < moved(halve_every=0) / 50


def test_presets_name_what_was_published() -> None:
    assert make_method("vimadmm", preset="paper:cifar10") == VIMADMM.paper("cifar10")
    assert make_method("vimadmm_j", {"rho": 3.0}, preset="paper").rho == 3.0
    with pytest.raises(ConfigError, match=r"no published settings for 'imagenet'.*mnist"):
        make_method("vimadmm", preset="paper:imagenet")
    with pytest.raises(ConfigError, match="unknown preset"):
        make_method("vimadmm", preset="best")


@pytest.mark.parametrize("batch", [5, 1024])
def test_a_joint_solve_that_nothing_holds_is_refused(batch: int) -> None:
    free = VIMADMM(beta=0.0, kappa=0.0)
    with pytest.raises(ConfigError, match=r"beta = 0 and kappa = 0: .* no single answer; set one of them above 0"):
        fit(small(), free, rounds=1, batch=batch)
    for held in (VIMADMM(beta=0.0), VIMADMM(kappa=0.0), free.model_copy(update={"head_update": "sgd"})):
        fit(small(), held, rounds=1, batch=batch, evaluate_every=0)


def test_damping_below_one_over_m_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"damping = 0.1 is below 1/M; with 4 parties use 0.25 to 1"):
        fit(small(), VIMADMMJ(damping=0.1), rounds=1)


@pytest.mark.parametrize("method", [VIMADMM(), VIMADMMJ()], ids=lambda m: str(m.name))
def test_numbers_are_predicted_on_their_own_scale(method: VIMADMM | VIMADMMJ) -> None:
    """Targets around a million with a spread of a thousand: learned on a common scale, given back on theirs."""
    x = torch.linspace(-2, 2, 240, dtype=torch.float64).unsqueeze(1)
    y = 1e6 + 1e3 * x
    order = torch.arange(240).view(4, 60).T.flatten()
    split = RowSplit(order[:160], order[160:200], order[200:])
    federation = Federation.from_arrays({"a": x, "b": x * 5}, y, task="regression", split=split)
    run = fit(federation, method, rounds=15, evaluate_every=3, schedule={"batch": 80})
    assert run.score is not None and run.score > 0.98  # R2
    told = torch.from_numpy(run.predict({"a": x[:4], "b": x[:4] * 5})).double()
    torch.testing.assert_close(told, y[:4, 0], rtol=0, atol=300)
