"""The benchmark of client explanation: what it reports, and that it needs neither SciPy nor scikit-learn's extras."""

from __future__ import annotations

from typing import Any

import pytest

from colonnade.bench.catalogue import CHECKOUT, Bench, find, read_bench
from colonnade.bench.explain import ExplainBenchSettings, average, run_explain
from colonnade.bench.settings import Options
from colonnade.config import build
from colonnade.job import read_job

TABLES: dict[str, Any] = {
    "title": "t",
    "kind": "explain",
    "data": {"set": "digits", "parties": 4},
    "method": {"name": "vimadmm", "local_steps": 2},
    "model": {"hidden": 12, "embedding": 6},
    "training": {"rounds": 6, "evaluate_every": 2, "schedule": {"batch": 256}},
    "explain": {
        "ask": {"rows": "test", "draws": 1}, "high": [2, 3], "low": [1], "shares": [0.5], "noisy": 2,
        "epochs": [1, 2], "epoch": 3, "rivals": {"vafl": {"preset": "paper"}},
    },
}  # fmt: skip


def bench(**changes: Any) -> Bench:
    return read_bench("x", {**TABLES, "explain": {**TABLES["explain"], **changes}})


def test_every_promised_key() -> None:
    told: list[str] = []
    results = run_explain(bench(), Options(seeds=2), told.append)
    wanted = {
        "rank_correlation_noise", "rank_correlation_shapley", "kendall_noise", "kendall_shapley", "all", "top50",
        "bottom50", "gap50", "denoise_epoch1", "denoise_epoch2", "denoise_epoch2.vafl", "noisy_place_fall",
        "noisy_named", "high_worst_place", "low_best_place", "high_over_low", "norm_4", "top50_std",
    }  # fmt: skip
    assert wanted <= set(results) and told
    assert results["gap50"] == pytest.approx(results["top50"] - results["bottom50"])  # type: ignore[operator]
    assert 1 <= results["high_worst_place"] <= 4 and 0 <= results["denoise_epoch2"] <= 100  # type: ignore[operator]


def test_settings_of_retraining_do_not_touch_the_explained_run() -> None:
    plain = run_explain(bench(), Options(seeds=1), lambda _: None)
    other = run_explain(bench(retrain={"local_steps": 5}), Options(seeds=1), lambda _: None)
    same = ("all", "rank_correlation_noise", "norm_1", "noisy_place_before", "noisy_place_after", "noisy_named")
    assert all(other[key] == plain[key] for key in same)
    assert other["denoise_epoch2"] != plain["denoise_epoch2"]


def test_the_shipped_file_reports_all_its_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CHECKOUT)
    shipped = find("mnist-explain")
    settings = build(ExplainBenchSettings, shipped.tables["explain"], "explain")
    job = read_job({key: value for key, value in shipped.tables.items() if key != "explain"})
    assert job.training.rounds == settings.epoch * max(settings.epochs)  # the last column is the whole training
    read_job({"method": {**shipped.tables["method"], **settings.retrain}})
    small = run_explain(
        bench(shares=settings.shares, epochs=settings.epochs, epoch=1), Options(seeds=1), lambda _: None
    )
    assert shipped.limits("cuda").keys() <= small.keys()


def test_a_seed_without_a_value_leaves_no_mean() -> None:
    found = average([{"a": 1.0, "b": 1.0, "noisy_place_fall": 4}, {"a": 2.0, "b": None, "noisy_place_fall": 2}])
    assert found["a"] == 1.5 and found["b"] is None and found["noisy_place_fall"] == 2
    assert found["a_std"] == pytest.approx(0.5**0.5) and "noisy_place_fall_std" not in found
