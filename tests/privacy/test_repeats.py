"""What several trainings on the same rows cost together, from their records."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

import colonnade as cn
from colonnade.privacy.accounting import exact_epsilon
from colonnade.privacy.events import Unit
from colonnade.privacy.pbm import Counted, counted_epsilon
from colonnade.privacy.repeats import Training, all_together, in_words
from colonnade.privacy.sampled import SampledGaussianEvent, sampled_epsilon
from colonnade.privacy.settings import PrivacySettings
from colonnade.privacy.tally import Tally
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
