"""The zoo benchmark: every case under its own key, on the same rows, bytes counted on what travelled."""

from __future__ import annotations

from typing import Any

import pytest

from colonnade.bench.catalogue import read_bench
from colonnade.bench.settings import Options
from colonnade.bench.zoo import run_zoo
from colonnade.errors import ConfigError

TABLES: dict[str, Any] = {
    "title": "a small one",
    "kind": "zoo",
    "reach": 5.0,
    "targets": {"test_accuracy.fdml": {"at_least": 10}},
    "data": {"set": "digits", "parties": 4},
    "model": {"hidden": 8, "embedding": 6},
    "training": {"rounds": 3, "evaluate_every": 1, "schedule": {"batch": 128}},
    "cases": [
        {"method": {"name": "split_learning"}},
        {"key": "short", "method": {"name": "fdml"}, "training": {"rounds": 2}},
    ],
}


def test_every_case_has_its_own_results() -> None:
    found = run_zoo(read_bench("small", TABLES), Options(seeds=2), lambda _: None)
    results = found.results
    assert results["rounds.split_learning"] == 3 and results["rounds.short"] == 2
    floats = {"split_learning": 6, "short": 10}  # numbers per row that a party sends
    for key, width in floats.items():
        up = results[f"mb_per_round_up.{key}"]
        assert up is not None and 0 < up * 1e6 - 128 * width * 4 < 500  # float32 and a header
    assert results["rounds_to_5.short"] == 1 and results["test_accuracy.short"] is not None


def test_a_case_may_have_fewer_seeds_and_then_says_so_and_has_no_spread() -> None:
    few = [TABLES["cases"][0], {**TABLES["cases"][1], "seeds": 1}]
    results = run_zoo(read_bench("small", {**TABLES, "cases": few}), Options(seeds=2), lambda _: None).results
    assert results["seeds.short"] == 1 and results["test_accuracy_std.short"] is None
    assert "seeds.split_learning" not in results and results["test_accuracy_std.split_learning"] is not None


def test_a_file_without_cases_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"has no \[\[cases\]\]"):
        run_zoo(read_bench("small", {**TABLES, "cases": []}), Options(seeds=1), lambda _: None)


@pytest.mark.parametrize("cases", [[{"method": {"name": "fdml"}}, {"method": {"name": "fdml", "local_steps": 2}}]])
def test_cases_without_a_name_of_their_own_are_refused(cases: list[Any]) -> None:
    with pytest.raises(ConfigError, match="each with a key of its own"):
        run_zoo(read_bench("small", {**TABLES, "cases": cases}), Options(seeds=1), lambda _: None)
