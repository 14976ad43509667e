"""The estimate is what a run then sends, to the byte or to a few bytes of header."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from colonnade.estimate import estimate
from colonnade.job import Job, read_job
from tests.federations import digits

JOBS: dict[str, dict[str, Any]] = {
    "vimadmm, residual before": {"name": "vimadmm", "residual": "before", "head_update": "sgd"},
    "vimadmm, residual after": {"name": "vimadmm", "residual": "after"},
    "vimadmm, joint heads": {"name": "vimadmm", "head_update": "joint"},
    "vimadmm_j": {"name": "vimadmm_j"},
    "vimadmm_j, lifted": {"name": "vimadmm_j", "lifts": 3, "guest": "party_1"},
    "local_only": {"name": "local_only"},
    "centralized": {"name": "centralized"},
}


def job(method: dict[str, Any], **training: Any) -> Job:
    tables = {
        "method": {"local_steps": 1, **method},
        "privacy": training.pop("privacy", {}),
        "model": {"hidden": 8, "embedding": 5},
        "training": {"rounds": 12, "evaluate_every": 5, "schedule": {"batch": 300}, **training},
    }
    return read_job(tables)


def close(expected: float) -> Any:
    """Headers say whether a round was the best so far, in words of different length."""
    return pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("name", JOBS)
def test_the_estimate_is_what_the_run_sends(name: str) -> None:
    federation, wanted = digits(), job(JOBS[name])
    found, sent = estimate(wanted, federation).traffic, wanted.fit(federation).traffic
    assert found.up == sent.up
    assert found.evaluation == sent.evaluation
    assert (found.down, found.multicast) == (close(sent.down), close(sent.multicast))
    assert [r.number for r in found.rounds] == [r.number for r in sent.rounds]
    for party, both in sent.per_party().items():
        assert found.per_party()[party] == {"up": both["up"], "down": close(both["down"])}


def test_weights_are_counted_where_they_travel() -> None:
    federation = digits()
    heavy = replace(federation, weights=torch.linspace(0.5, 2.0, federation.rows, dtype=torch.float64))
    for name, travels in (("local_only", True), ("vimadmm_j", False)):
        wanted = job({"name": name})
        with_weights, without = (estimate(wanted, one).traffic.down for one in (heavy, federation))
        assert with_weights == close(wanted.fit(heavy).traffic.down)
        more = 4 * len(federation.split.train) * len(federation.parties)
        assert (more < with_weights - without < more + 1000) if travels else with_weights == without


PROTECTED = {
    "noise": {"mechanism": "gaussian", "clip": 1.0, "sigma": 5.0},
    "noise, looks simulated": {"mechanism": "gaussian", "clip": 1.0, "epsilon": 8.0, "evaluation": "simulated"},
    "sum": {"secure_sum": {"use": True}},
    "noisy sum": {"secure_sum": {"use": True}, "mechanism": "gaussian", "clip": 1.0, "sigma": 5.0},
}


@pytest.mark.parametrize("privacy", PROTECTED)
def test_protected_uploads_have_other_sizes_and_no_evaluations(privacy: str) -> None:
    federation, wanted = digits(), job({"name": "vimadmm_j"}, privacy=PROTECTED[privacy])
    found, sent = estimate(wanted, federation).traffic, wanted.fit(federation).traffic
    assert found.up == sent.up and found.evaluation == sent.evaluation
    assert found.down == close(sent.down)


def test_short_batches_silent_parties_and_double_numbers() -> None:
    schedule = {"batch": 500, "participation": 0.5, "silent_learn": False}
    federation, wanted = digits(), job({"name": "vimadmm"}, schedule=schedule, dtype="float64")
    found, sent = estimate(wanted, federation).traffic, wanted.fit(federation).traffic
    assert [r.up.tolist() for r in found.rounds] == [r.up.tolist() for r in sent.rounds]
    assert found.down == close(sent.down)


def test_it_does_not_need_the_device_and_ignores_early_stopping() -> None:
    wanted = job({"name": "vimadmm_j"}, device="cuda", stopping={"patience": 1})
    found = estimate(wanted, digits())
    assert found.rounds == 12
    assert found.traffic.rounds[-1].number == 15  # twelve rounds, the last evaluation, stop, the test rows


def test_plain_values_add_up() -> None:
    facts = estimate(job({"name": "vimadmm"}), digits()).to_json()
    assert facts["total"]["both"] == facts["total"]["up"] + facts["total"]["down"]
    assert sum(p["up"] for p in facts["per_party"].values()) == facts["total"]["up"]
    assert facts["per_round"]["up"] * facts["rounds"] == pytest.approx(facts["total"]["up"])
    assert facts["total"]["multicast"] < facts["total"]["both"]


def test_a_secure_sum_says_how_many_colluders_it_tolerates() -> None:
    noise = {"mechanism": "gaussian", "clip": 1.0, "sigma": 5.0}
    found = estimate(job(JOBS["vimadmm_j"], rounds=1, privacy={**noise, "secure_sum": {"use": True}}), digits())
    assert found.colluders is not None and found.to_json()["colluders"] == 1
    assert "The figure tolerates 1 colluder" in found.colluders.tolerates()
    assert estimate(job(JOBS["vimadmm_j"], rounds=1), digits()).to_json()["colluders"] is None
