"""What several trainings on the same rows cost together, from their records."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import colonnade as cn
from colonnade.privacy.accounting import exact_epsilon
from colonnade.privacy.events import Unit
from colonnade.privacy.pbm import Counted, counted_epsilon
from colonnade.privacy.repeats import Training, all_together, folds_together, in_words, largest_sets
from colonnade.privacy.sampled import SampledGaussianEvent, sampled_epsilon
from colonnade.privacy.settings import PrivacySettings
from colonnade.privacy.tally import Tally
from colonnade.report.privacy import together_of
from tests.federations import small

DP = PrivacySettings(mechanism="gaussian", clip=1.0, sigma=5.0)
LABELS = PrivacySettings(labels={"mechanism": "alibi", "epsilon": 2.0})


def spent(shift: float, party: str = "a", **more: object) -> Tally:
    return Tally(party, 4, shift, (), (), simulated=True, **more)  # type: ignore[arg-type]


def test_the_party_that_it_costs_most_is_told() -> None:
    runs = [Training([spent(0.3), spent(0.1, "b")], DP), Training([spent(0.4), spent(0.1, "b")], DP)]
    (found,) = all_together(runs)
    assert found.epsilon == pytest.approx(exact_epsilon(0.5, 1e-5)) and found.releases == 8
    assert "unit PARTY, neighbours: absent" in in_words(runs)


def test_the_stricter_relation_counts_for_all() -> None:
    strict = DP.model_copy(update={"neighbours": "replaced"})
    (found,) = all_together([Training([spent(0.3)], DP), Training([spent(0.6)], strict)])
    assert found.epsilon == pytest.approx(exact_epsilon(math.hypot(0.6, 0.6), 1e-5))
    assert found.neighbours == "replaced"


def test_what_has_no_bound_is_said() -> None:
    bare = Training([spent(math.inf)], PrivacySettings())
    (found,) = all_together([Training([spent(0.3)], DP), bare])
    assert math.isinf(found.epsilon) and "uploads left without noise" in str(found)
    assert all_together([bare, bare]) == [] and in_words([]) == ""  # nothing was promised


def test_a_large_delta_is_not_passed_over() -> None:
    loose = DP.model_copy(update={"delta": 0.4})
    assert "delta 0.4, unit PARTY, neighbours: absent), a size that promises little" in in_words(
        [Training([spent(0.3)], loose)]
    )
    assert "promises little" not in in_words([Training([spent(0.3)], DP)])


def test_counts_and_labels() -> None:
    counts = (Counted(8, 0.01, 1, 20),)
    both = [Training([spent(math.inf, counts=counts)], PrivacySettings()), Training([spent(0.3)], DP)]
    assert all_together(both)[0].epsilon == pytest.approx(counted_epsilon(counts, 1e-5, 0.3))
    labels = all_together([Training([], LABELS, noisy_labels=True)] * 3)
    assert [(one.unit, one.epsilon, one.delta) for one in labels] == [(Unit.LABEL, 6.0, 0.0)]


def test_a_comparison_says_it(tmp_path: Path) -> None:
    privacy = {"mechanism": "gaussian", "clip": 1.0, "sigma": 5.0}
    found = cn.compare(small((3, 2)), ["vimadmm_j"], seeds=2, rounds=3, privacy=privacy, progress=False)
    figure = exact_epsilon(math.sqrt(6) / 5, 1e-5)
    assert (
        f"2 trainings on the same rows cost, together: epsilon {figure:.4g} (exact accountant over 6" in found.together
    )
    assert cn.compare(small((3, 2)), ["vimadmm_j"], seeds=1, rounds=1, progress=False).together == ""


@pytest.mark.parametrize(
    ("method", "privacy", "unit"),
    [
        ("vimadmm_j", {"mechanism": "gaussian", "clip": 1.0, "sigma": 5.0, "evaluation": "simulated"}, Unit.PARTY),
        ("local_only", {"unit": "row", "sigma": 4.0}, Unit.ROW),
    ],
)
def test_parties_alone_and_a_central_model_cost_nothing(method: str, privacy: dict[str, object], unit: Unit) -> None:
    """Nothing leaves anybody there: noise that they lack takes no bound from what does."""
    quiet: dict[str, Any] = {"rounds": 3, "progress": False, "model": {"encoder": "tanh"}, "privacy": privacy}
    beside = cn.compare(small((3, 2)), [method], seeds=2, beside=("alone", "central"), **quiet)
    without = cn.compare(small((3, 2)), [method], seeds=2, **quiet)
    assert len(beside.runs) > 2 and f"unit {unit.value}" in beside.together
    assert beside.together == without.together and without.together.startswith("2 trainings on the same rows cost")


def test_trainings_at_home_add_up_although_each_party_has_the_same_line() -> None:
    """Unit ROW: the event of one party stands for all parties of its training, and for no other training."""
    rows = PrivacySettings(unit="row", sigma=2.0)
    event = SampledGaussianEvent(rate=0.1, clip=1.0, sigma=2.0, steps=20, at_parties=2)
    both = [spent(math.inf, name, sampled=(event,)) for name in ("a", "b")]
    (once,) = all_together([Training(both, rows)])
    (found,) = all_together([Training(both, rows)] * 3)
    assert once.epsilon == pytest.approx(sampled_epsilon([event], 1e-5), rel=0.01)
    assert found.epsilon == pytest.approx(sampled_epsilon([replace(event, steps=60)], 1e-5), rel=0.01)
    assert (found.unit, found.accountant) == (Unit.ROW, "PLD")
    assert "unit ROW, neighbours: one row added or removed" in in_words([Training(both, rows)] * 3)


def test_noise_in_some_trainings_bounds_nothing_that_another_one_told() -> None:
    rows = PrivacySettings(unit="row", sigma=2.0)
    event = SampledGaussianEvent(rate=0.1, clip=1.0, sigma=2.0, steps=20, at_parties=2)
    at_home, uploads = Training([spent(math.inf, sampled=(event,))], rows), Training([spent(0.3)], DP)
    by_unit = {one.unit: one for one in all_together([at_home, uploads])}
    assert math.isinf(by_unit[Unit.ROW].epsilon) and by_unit[Unit.PARTY].epsilon < math.inf
    assert "1 of 2 trainings did not hide single rows" in in_words([at_home, uploads])
    noisy, plain = Training([], LABELS, noisy_labels=True), Training([], PrivacySettings(), plain_labels=True)
    (labels,) = all_together([noisy, plain, noisy])
    assert labels.unit is Unit.LABEL and math.isinf(labels.epsilon)
    assert "1 of 3 trainings told the labels as they are" in in_words([noisy, plain, noisy])


def test_a_report_of_two_runs_knows_which_told_the_labels(tmp_path: Path) -> None:
    told = {"rounds": 2, "progress": False}
    noisy = cn.fit(small(), "vimadmm_j", privacy=LABELS.model_dump(), **told).record()
    plain = cn.fit(small(), "vimadmm_j", **told).record()
    assert "epsilon 4 (pure accountant over 2 releases" in together_of([noisy, noisy])
    assert "trainings told the labels as they are" in together_of([noisy, plain])


def test_folds_that_a_row_is_in() -> None:
    member = torch.tensor([[1, 1, 0], [1, 0, 0], [0, 1, 1], [1, 1, 0], [0, 0, 0]]).bool()
    assert set(largest_sets(member)) == {frozenset({0, 1}), frozenset({1, 2})}
    costly, cheap = (PrivacySettings(labels={"mechanism": "alibi", "epsilon": e}) for e in (3.0, 1.0))
    trainings = [Training([], p, noisy_labels=True) for p in (costly, cheap, costly)]
    (found,) = folds_together(trainings, [], largest_sets(member))
    assert found.epsilon == 4.0  # of a row in the first two folds, or in the last two; nobody is in all three


def test_simulations_of_one_seed_share_their_noise() -> None:
    assert "simulations of one seed draw the same" in in_words([Training([spent(0.3)], DP)] * 2)
    drawn = [Training([replace(spent(0.3), simulated=False)], DP)] * 2
    assert "epsilon" in in_words(drawn) and "simulations" not in in_words(drawn)
