"""The benchmark of counts, on made-up files: who gets which rows, and what is held against what."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import PoissonRegressor
from sklearn.metrics import mean_poisson_deviance

from colonnade.bench.catalogue import CHECKOUT, find, read_bench
from colonnade.bench.poisson import PoissonBenchSettings, Tables, regression, run_poisson, summarise
from colonnade.bench.settings import Options
from colonnade.config import build
from colonnade.errors import ConfigError, MissingData
from colonnade.methods import make_method
from colonnade.row_split import RowSplit

pd = pytest.importorskip("pandas")
ROWS = 120
TABLES: dict[str, Any] = {
    "title": "a small one",
    "kind": "poisson",
    "data": {"tables": {"guest": "guest.csv.gz", "host": "host.csv.gz"}, "labels": "visits", "id": "id"},
    "model": {"hidden": 6, "embedding": 4},
    "training": {"rounds": 3, "evaluate_every": 1, "schedule": {"batch": 64}},
    "poisson": {"folder": "made_up", "alphas": [1e-3, 10.0]},
    "cases": [{"method": {"name": "vimadmm_j"}}, {"method": {"name": "linear_admm"}}],
}


@pytest.fixture
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COLONNADE_DATA", str(tmp_path / "cache"))
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(ROWS, 2)), rng.normal(size=(ROWS, 2))
    ids, visits = np.arange(ROWS), rng.poisson(np.exp(0.6 * a[:, 0] - 0.6 * b[:, 1]))
    folder = tmp_path / "data" / "made_up"
    folder.mkdir(parents=True)
    pd.DataFrame({"id": ids, "visits": visits, "a0": a[:, 0], "a1": a[:, 1]}).to_csv(
        folder / "guest.csv.gz", index=False
    )
    host = pd.DataFrame({"id": ids, "b0": b[:, 0], "b1": b[:, 1]}).sample(frac=1.0, random_state=0)
    host.to_csv(folder / "host.csv.gz", index=False)
    return tmp_path / "data"


def test_every_case_beside_the_regression(data_dir: Path) -> None:
    results = run_poisson(read_bench("small", TABLES), Options(data_dir, seeds=2), lambda _: None)
    for key in ("vimadmm_j", "linear_admm"):
        above = results[f"deviance.{key}"] - results["deviance.poisson_regressor"]  # type: ignore[operator]
        assert results[f"excess.{key}"] == pytest.approx(above)
        assert results[f"seconds.{key}"] > 0  # type: ignore[operator]
    tables = Tables.read(TABLES["data"], "made_up", data_dir)
    two = [regression(tables.federation(RowSplit.random(ROWS, seed=seed)), (1e-3, 10.0)) for seed in (0, 1)]
    assert two[0] != two[1]  # seeds are splits
    assert results["deviance.poisson_regressor"] == pytest.approx(np.mean(two))
    assert results["deviance_std.poisson_regressor"] == pytest.approx(np.std(two, ddof=1))


def test_the_regression_has_the_columns_of_all_and_its_alpha_from_validation_rows(data_dir: Path) -> None:
    federation = Tables.read(TABLES["data"], "made_up", data_dir).federation(RowSplit.random(ROWS, seed=3))
    x = np.hstack([party.columns.numpy() for party in federation.parties]).astype(float)
    y, split = federation.labels[:, 0].numpy(), federation.split
    assert x.shape == (ROWS, 4)
    good, bad = (
        PoissonRegressor(alpha=alpha, max_iter=1000, tol=1e-8).fit(x[split.train], y[split.train])
        for alpha in (1e-3, 10.0)
    )
    better = [mean_poisson_deviance(y[split.validation], model.predict(x[split.validation])) for model in (good, bad)]
    assert better[0] < better[1]
    expected = mean_poisson_deviance(y[split.test], good.predict(x[split.test]))
    assert regression(federation, (10.0, 1e-3)) == pytest.approx(expected, rel=1e-4)


def test_a_run_without_a_score_has_no_mean() -> None:
    results = summarise({"poisson_regressor": [1.0, 1.2], "fu": [0.9, None]}, {"fu": [1.0, 2.0]})
    assert results["deviance.fu"] is results["excess.fu"] is None
    assert results["seconds.fu"] == 1.5


def test_files_that_are_nowhere_are_named(tmp_path: Path, data_dir: Path) -> None:
    with pytest.raises(MissingData, match=r"'guest.csv.gz' is in none of .*--data-dir"):
        run_poisson(read_bench("small", TABLES), Options(tmp_path / "elsewhere"), lambda _: None)


def test_without_cases_it_is_refused(data_dir: Path) -> None:
    with pytest.raises(ConfigError, match=r"needs \[\[cases\]\]"):
        run_poisson(read_bench("small", {**TABLES, "cases": []}), Options(data_dir), lambda _: None)


def test_the_shipped_one_has_a_target_for_each_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CHECKOUT)
    bench = find("dvisits")
    build(PoissonBenchSettings, bench.tables["poisson"], "poisson")
    methods = [
        make_method(c["method"]["name"], {k: v for k, v in c["method"].items() if k != "name"})
        for c in bench.tables["cases"]
    ]
    assert {f"excess.{method.name}" for method in methods} == set(bench.limits("cpu"))
