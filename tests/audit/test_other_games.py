"""Games against counts, secure sums and label noise: correct code is left alone, mistakes are seen."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from colonnade.audit import label_game
from colonnade.audit.claims import Counts
from colonnade.audit.counts import (
    CountTrial,
    auc_of,
    epsilon_of_counts,
    least_misses,
    plan_counts,
    play_full_counts,
    smallest_theta,
)
from colonnade.audit.full_shape import FRESH, SIZE
from colonnade.audit.label_game import LABELS, ONCE, UNIFORM, LabelTrial
from colonnade.audit.planted_elsewhere import MissingShare, kept_too_often, weak_label_noise
from colonnade.audit.shapes import Layout
from colonnade.audit.sums import MASKS, SHARES
from colonnade.audit.target import BOUND, MEMBERSHIP, Target
from colonnade.errors import ConfigError
from colonnade.privacy.around import AroundSum
from colonnade.privacy.gaussian import SeededNoise
from colonnade.privacy.labels import Labels
from colonnade.privacy.labels.settings import LabelSettings, open_labels
from colonnade.privacy.mechanism import Hiding
from colonnade.privacy.pbm import PoissonBinomial, pbm_epsilon
from colonnade.privacy.secure_sum.adders import simulated
from colonnade.privacy.settings import PrivacySettings
from colonnade.tasks import TASKS, Task
from colonnade.wire.numbers import Numbers

LAYOUT = Layout.of((40, 4))
DELTA = 1e-5


class TestCounts:
    @pytest.mark.parametrize(("trials", "theta"), [(1, 0.3), (7, 0.1), (40, 0.05)])
    def test_least_misses_are_those_of_the_best_player(self, trials: int, theta: float) -> None:
        """Brute force: the player that accepts outcomes in order of their likelihood ratio, the last one by chance."""
        k = range(trials + 1)
        choose = [math.comb(trials, i) for i in k]
        there, gone = (
            [c * p**i * (1 - p) ** (trials - i) for i, c in zip(k, choose, strict=True)]
            for p in (0.5 + theta, 0.5 - theta)
        )
        for alarms in (0.0, 0.01, 0.3, 1.0):
            left, found = alarms, 1.0
            for i in reversed(k):
                share = min(1.0, left / gone[i])
                left, found = left - share * gone[i], found - share * there[i]
            assert least_misses(trials, theta, alarms) == pytest.approx(max(0.0, found), abs=1e-9)

    @pytest.mark.parametrize(("trials", "theta"), [(16, 0.25), (16, 0.05), (2, 0.1)])
    def test_the_exact_epsilon_is_within_the_accountant_s(self, trials: int, theta: float) -> None:
        exact = epsilon_of_counts(trials, theta, DELTA)
        told = pbm_epsilon(DELTA, trials, theta, parties=1, cells=1, releases=1, view="local")
        assert 0.9 * told < exact <= told
        assert epsilon_of_counts(trials, 0.0, DELTA) == 0.0

    def test_theta_is_found_again_from_its_own_curve(self) -> None:
        misses = least_misses(30, 0.1, 0.1)
        assert smallest_theta(30, 0.1, misses) == pytest.approx(0.1, abs=1e-6)
        assert smallest_theta(30, 0.5, 0.5) == 0.0

    def test_the_ceiling_of_pairs(self) -> None:
        rng = np.random.default_rng(0)
        there, gone = (rng.binomial(20, p, 200_000) for p in (0.6, 0.4))
        assert auc_of(20, 0.1) == pytest.approx((there > gone).mean() + (there == gone).mean() / 2, abs=0.005)

    def test_correct_code_is_below_and_a_larger_theta_above(self) -> None:
        claim = Counts(16, 0.05)
        trial = plan_counts(claim, LAYOUT, 60_000, DELTA)
        for theta, wrong in ((0.05, False), (0.0625, True)):
            bound, pairs = trial.play(PoissonBinomial(16, theta, 4, SeededNoise(1)), 1)
            assert (bound.epsilon > bound.claimed, pairs.p < 1e-4) == (wrong, wrong)

    @pytest.mark.parametrize("trials", [1, 255])
    def test_few_and_many_trials(self, trials: int) -> None:
        mechanism = PoissonBinomial(trials, 0.25, 4, SeededNoise(1))
        trial = replace(plan_counts(Counts(trials, 0.25), LAYOUT, 400, DELTA), runs=200)
        bound, _ = trial.play(mechanism, 0)
        assert bound.epsilon <= bound.claimed
        assert not any(check.failed for check in play_full_counts(mechanism, LAYOUT, Counts(trials, 0.25), 0).checks())

    def test_counts_without_chance_are_seen(self) -> None:
        @dataclass(frozen=True)
        class Rounded(PoissonBinomial):
            def _counts(self, means: Tensor, binomial: object) -> Tensor:
                limit = self.trials * self.theta
                return (means.double().clamp(self.trials / 2 - limit, self.trials / 2 + limit)).round()

        mechanism = Rounded(16, 0.25, 4, SeededNoise(1))
        wrong = [c.name for c in play_full_counts(mechanism, LAYOUT, Counts(16, 0.25), 0).checks() if c.failed]
        assert wrong == [SIZE]
        bound, _ = CountTrial(Counts(16, 0.25), LAYOUT.smaller(1), 1, 0.5, 400).play(mechanism, 0)
        assert bound.epsilon > bound.claimed


def summed(parties: int = 3, noise: bool = True) -> Target:
    sums = {"use": True, "colluders": 1}
    chosen: dict[str, Any] = {"mechanism": "gaussian", "clip": 2.0, "sigma": 1.0} if noise else {}
    privacy = PrivacySettings(**chosen, secure_sum=sums)  # type: ignore[arg-type]
    names = tuple(f"party {n}" for n in range(parties))
    adders = simulated("audit", names, 5, privacy)
    own = None if noise else PoissonBinomial(16, 0.1, 4, SeededNoise(5))
    mechanism = privacy.protection(1, SeededNoise(5), adders, own).training
    return Target(mechanism, LAYOUT, Numbers(), 1, parties=names, opener=adders.opener(1))


@dataclass
class Unmasked(AroundSum):
    """Parts leave as they are."""

    def hide(
        self, values: Mapping[str, Tensor], parties: Sequence[str], number: int, part: int, rows: str
    ) -> Mapping[str, Tensor]:
        step = self.inner.grid.step  # type: ignore[attr-defined]
        return {name: (value / step).long() for name, value in values.items()}


class TestSums:
    @pytest.mark.parametrize("parties", [3, 6])
    def test_correct_code_is_left_alone(self, parties: int) -> None:
        whole = summed(parties)
        checks = [*whole.at_full_shape(1), *whole.in_games(1, 100)]
        assert [check.name for check in checks if check.failed] == []
        assert {SHARES, MASKS, BOUND, MEMBERSHIP} < {check.name for check in checks}

    @pytest.mark.parametrize("silent", ["party 0", "party 1", "party 5"])
    def test_a_party_that_adds_no_noise_is_seen(self, silent: str) -> None:
        """The last one colludes in the game, so that only its own share shows it."""
        whole = summed(6)
        assert isinstance(whole.mechanism, Hiding)
        checks = replace(whole, mechanism=MissingShare(whole.mechanism, silent)).at_full_shape(1)
        wrong = [check.name for check in checks if check.failed]
        assert SHARES in wrong
        assert (SIZE in wrong) == (silent != "party 5")

    def test_parts_without_masks_are_seen(self) -> None:
        whole = summed()
        assert isinstance(whole.mechanism, Hiding)
        checks = replace(whole, mechanism=Unmasked(whole.mechanism)).at_full_shape(1)
        assert [check.name for check in checks if check.failed] == [MASKS]

    def test_counts_in_a_sum_are_those_of_each_party(self) -> None:
        whole = summed(noise=False)
        checks = [*whole.at_full_shape(1), *whole.in_games(1, 300)]
        assert [check.name for check in checks if check.failed] == []
        assert {FRESH, MASKS, BOUND} < {check.name for check in checks}


TASK = {"classes": TASKS["multiclass"](5), "yes/no": TASKS["binary"](1), "several": TASKS["multilabel"](3)}


def label_checks(mechanism: str, task: Task, epsilon: float = 1.0, **more: Any) -> dict[str, bool]:
    settings = LabelSettings(mechanism=mechanism, epsilon=epsilon)  # type: ignore[arg-type]
    trial = LabelTrial(settings, task, 400, **{"enough": 60_000, **more})
    return {check.name: check.failed for check in trial.checks(3)}


class TestLabels:
    @pytest.mark.parametrize("epsilon", [0.5, 3.0, 9.0])
    @pytest.mark.parametrize("task", TASK)
    @pytest.mark.parametrize("mechanism", ["alibi", "randomised_response"])
    def test_correct_code_is_left_alone(self, mechanism: str, task: str, epsilon: float) -> None:
        found = label_checks(mechanism, TASK[task], epsilon)
        assert not any(found.values())
        assert (UNIFORM in found) == (mechanism == "randomised_response" and task == "classes")

    def test_the_bound_is_not_blind(self) -> None:
        trial = LabelTrial(LabelSettings(mechanism="randomised_response", epsilon=1.0), TASK["yes/no"], 1000)
        (bound, _) = trial.checks(0)
        assert 0.9 < float(bound.facts["epsilon"]) <= 1.0  # type: ignore[arg-type]

    @pytest.mark.parametrize("task", TASK)
    def test_noise_at_0_8_is_seen(self, task: str) -> None:
        assert label_checks("alibi", TASK[task], opened=weak_label_noise)[LABELS]

    def test_labels_that_are_kept_too_often_are_seen(self) -> None:
        assert label_checks("randomised_response", TASK["classes"], opened=kept_too_often)[LABELS]
        with pytest.raises(ConfigError, match="label mechanism"):
            kept_too_often(torch.zeros(3), TASK["classes"], torch.arange(3), LabelSettings(), 1)

    @pytest.mark.parametrize("left_out", ["a class", "a row"])
    @pytest.mark.parametrize("mechanism", ["alibi", "randomised_response"])
    def test_what_is_left_out_of_the_noise_is_seen(self, mechanism: str, left_out: str) -> None:
        """Only labels 0 and 1 were played, and only all rows together."""

        def but(values: Tensor, task: Task, rows: Tensor, settings: LabelSettings, key: int) -> Labels:
            labels = open_labels(values, task, rows, settings, key)
            where = values == task.outputs - 1 if left_out == "a class" else torch.arange(len(values)) == 17
            plain = labels.epsilon * one_hot(values, task.outputs)  # type: ignore[attr-defined]
            return replace(labels, evidence=torch.where(where[:, None], plain, labels.evidence))  # type: ignore

        assert label_checks(mechanism, TASK["classes"], opened=but)[LABELS]

    def test_noise_that_is_drawn_again_is_seen(self) -> None:
        keys = iter(range(1, 1000))

        def afresh(values: Tensor, task: Task, rows: Tensor, settings: LabelSettings, key: int) -> Labels:
            return open_labels(values, task, rows, settings, next(keys))

        assert label_checks("alibi", TASK["classes"], opened=afresh) == {LABELS: False, ONCE: True}

    def test_a_favourite_replacement_is_seen(self) -> None:
        def next_class(values: Tensor, task: Task, rows: Tensor, settings: LabelSettings, key: int) -> Labels:
            labels = open_labels(values, task, rows, settings, key)
            truth = values.long()
            answered = labels.evidence.argmax(dim=1)  # type: ignore[attr-defined]
            answered = torch.where(answered == truth, truth, (truth + 2) % task.outputs)
            evidence = float(settings.epsilon or 0) * torch.nn.functional.one_hot(answered, task.outputs).double()
            return replace(labels, evidence=evidence)  # type: ignore[type-var]

        found = label_checks("randomised_response", TASK["classes"], opened=next_class)
        assert found[UNIFORM]

    def test_a_small_run_is_opened_often_enough(self) -> None:
        trial = LabelTrial(LabelSettings(mechanism="alibi", epsilon=1.0), TASK["yes/no"], 7)
        assert trial._openings == label_game.MOST_OPENINGS
