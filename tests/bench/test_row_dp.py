"""The benchmarks of unit ROW: no figure under noise without what no noise gives, no epsilon that was not spent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from colonnade.bench import row_dp
from colonnade.bench.catalogue import read_bench
from colonnade.bench.row_dp import run_row_dp, run_tables_row_dp
from colonnade.bench.settings import Options
from colonnade.bench.table_sets import TableSet
from colonnade.errors import ConfigError

ROWS = {"unit": "row", "epsilon": 5.0}


def bench(*cases: dict[str, Any]) -> Any:
    shared = {"data": {"set": "digits", "parties": 2}, "model": {"encoder": "linear", "embedding": 4}}
    training = {"rounds": 3, "evaluate_every": 3, "schedule": {"batch": 256}}
    return read_bench("x", {"title": "t", "kind": "row_dp", **shared, "training": training, "cases": list(cases)})


def test_every_case_with_what_it_cost() -> None:
    method = {"name": "local_only"}
    cases = {"key": "none", "method": method}, {"key": "eps5", "method": method, "privacy": ROWS}
    results = run_row_dp(bench(*cases), Options(seeds=2), lambda _: None)
    assert {"accuracy_none", "accuracy_eps5", "accuracy_std_eps5"} <= results.keys()
    assert 4.9 < results["epsilon_eps5"] <= 5.0 < results["epsilon_rdp_eps5"]  # type: ignore[operator]
    assert "epsilon_none" not in results


def made_up(goal: Any = "auc") -> TableSet:
    rng = np.random.default_rng(0)
    news = rng.normal(size=(600, 4))
    tables = {
        "one": pd.DataFrame(news[:, :2], columns=["a", "b"]),
        "two": pd.DataFrame(news[:, 2:], columns=["c", "d"]),
    }
    return TableSet(goal, tables, (news.sum(axis=1) + rng.normal(size=600) > 0).astype(np.int64))


def tables(**settings: Any) -> Any:
    given = {"sets": ["credit"], "plain_rounds": 5, **settings}
    return read_bench("y", {"title": "t", "kind": "tables_row_dp", "tables_row_dp": given})


def test_tables_beside_no_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_dp, "read_set", lambda name, folder: made_up())
    told: list[str] = []
    quick = {"rounds": 4, "batch": 200, "embedding": 3}
    results = run_tables_row_dp(tables(tries=[quick, {**quick, "lr": 0.1}]), Options(Path(), seeds=2), told.append)
    gap = results["auc_none.credit"] - results["auc.credit"]  # type: ignore[operator]
    assert results["auc_gap.credit"] == pytest.approx(gap)
    assert 2.9 < results["epsilon.credit"] <= 3.0  # type: ignore[operator]
    assert results["chosen.credit"] in (0.0, 1.0) and "validation AUC of the tries" in told[0]


def test_sets_without_two_classes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_dp, "read_set", lambda name, folder: made_up("r2"))
    with pytest.raises(ConfigError, match="is about two classes"):
        run_tables_row_dp(tables(), Options(Path()), lambda _: None)
