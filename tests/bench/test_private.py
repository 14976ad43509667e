"""The benchmark of accuracy under a guarantee: what it reports, and that what it calls spent is what was spent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from colonnade.bench.catalogue import read_bench
from colonnade.bench.outcome import read
from colonnade.bench.perform import measure
from colonnade.bench.private import run_private
from colonnade.bench.settings import Options
from colonnade.errors import ConfigError
from colonnade.privacy.accounting import exact_epsilon, shift_of

DP = {"mechanism": "gaussian", "clip": 1.0, "sigma": 4.0, "evaluation": "simulated"}
LABELS = {"labels": {"mechanism": "alibi", "epsilon": 2.0}}


def bench(*cases: dict[str, Any]) -> Any:
    small = {"set": "digits", "parties": 2}
    training = {"rounds": 4, "evaluate_every": 2, "schedule": {"batch": 64}}
    return read_bench("x", {"title": "t", "kind": "private", "data": small, "training": training, "cases": list(cases)})


def test_every_case_under_its_names() -> None:
    cases = (
        {"method": {"name": "vimadmm_j", "local_steps": 1}, "budgets": ["eps8"], "privacy": DP},
        {"method": {"name": "vimadmm_j", "local_steps": 1}, "budgets": ["eps1"], "privacy": {**DP, "sigma": 20.0}},
        {"method": {"name": "local_only"}, "budgets": ["eps8", "eps1"], "training": {"rounds": 6}},
        {"method": {"name": "vimadmm", "local_steps": 1}, "budgets": ["labels"], "privacy": LABELS},
    )
    told: list[str] = []
    results = run_private(bench(*cases), Options(seeds=2), told.append)
    loud, quiet = exact_epsilon(shift_of(4.0, 4), 1e-5), exact_epsilon(shift_of(20.0, 4), 1e-5)
    assert results["epsilon_spent_eps8.vimadmm_j"] == pytest.approx(loud) == results["epsilon_spent.vimadmm_j"]
    assert results["epsilon_spent_eps1.vimadmm_j"] == pytest.approx(quiet)
    assert results["accuracy_eps8.local_only"] == results["accuracy_eps1.local_only"]
    assert results["epsilon_spent.local_only"] == 0.0  # nobody spoke
    assert "epsilon_spent_labels.vimadmm" not in results  # uploads left without noise: no such figure
    assert 0 <= results["accuracy_labels.vimadmm"] <= 100 and results["accuracy_std_eps8.vimadmm_j"] is not None  # type: ignore[operator]
    assert told


def test_the_largest_epsilon_of_budgets_that_were_measured_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "benchmarks").mkdir()
    case = '[[cases]]\nbudgets = ["{}"]\nmethod = {{ name = "fdml" }}\n'
    case += 'privacy = {{ mechanism = "gaussian", clip = 1.0, sigma = {}, evaluation = "simulated" }}\n'
    shared = '[data]\nset = "digits"\nparties = 2\n[training]\nrounds = 2\n'
    text = 'title = "t"\nkind = "private"\n' + shared + case.format("eps8", 4.0) + case.format("eps1", 20.0)
    (tmp_path / "benchmarks" / "parts.toml").write_text(text)
    for only in ("eps8.fdml", "eps1.fdml"):
        measure("parts", Options(seeds=1, only=(only,)), tmp_path / "r.json", lambda _: None)
    results = read(tmp_path / "r.json").results
    assert results["epsilon_spent_eps1.fdml"] < results["epsilon_spent_eps8.fdml"] == results["epsilon_spent.fdml"]


def test_a_file_without_cases() -> None:
    with pytest.raises(ConfigError, match=r"has no \[\[cases\]\]"):
        run_private(bench(), Options(), lambda _: None)
