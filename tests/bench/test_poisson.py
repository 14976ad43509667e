"""The benchmark of counts, on made-up files: who gets which rows, and what is held against what."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import PoissonRegressor
from sklearn.metrics import mean_poisson_deviance

from colonnade.bench.catalogue import CHECKOUT, find, read_bench
from colonnade.bench.poisson import Case, Found, PoissonBenchSettings, Tables, regression, run_poisson, summarise
from colonnade.bench.settings import Options
from colonnade.config import build
from colonnade.errors import ConfigError, MissingData
from colonnade.methods import make_method
from colonnade.row_split import RowSplit
from colonnade.run import Training

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
    results = summarise(Found({"poisson_regressor": [1.0, 1.2], "fu": [0.9, None]}, {"fu": [1.0, 2.0]}))
    assert results["deviance.fu"] is results["excess.fu"] is None
    assert results["seconds.fu"] == 1.5


def test_the_difference_from_the_regression_is_paired_over_seeds() -> None:
    results = summarise(Found({"poisson_regressor": [1.0, 2.0], "fu": [1.1, 2.3]}, {"fu": [1.0, 2.0]}))
    assert results["excess.fu"] == pytest.approx(0.2)
    assert results["excess_se.fu"] == pytest.approx(np.std([0.1, 0.3], ddof=1) / np.sqrt(2))


SEARCH: dict[str, Any] = {
    **TABLES,
    "search": {"training.rounds": [1, 3], "method.local_steps": [2, 5]},
    "cases": [
        {"method": {"name": "vimadmm_j"}},
        {"name": "plain", "search": False, "method": {"name": "vimadmm_j"}},
    ],
}


def test_validation_rows_choose_settings_while_the_test_rows_are_absent(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[tuple[str, int, int]] = []  # candidate, rows there are, rows to test
    train = Case.train

    def watched(self: Case, name: str, federation: Any, seed: int, notify: Any) -> Any:
        trained.append((name, federation.rows, len(federation.split.test)))
        return train(self, name, federation, seed, notify)

    monkeypatch.setattr(Case, "train", watched)
    found = run_poisson(read_bench("small", SEARCH), Options(data_dir, seeds=1), lambda _: None)
    searched, (chosen, plain) = trained[:4], trained[4:]
    assert len({name for name, _, _ in searched}) == 4
    assert {(rows, tests) for _, rows, tests in searched} == {(ROWS - 18, 0)}
    assert chosen[1:] == plain[1:] == (ROWS, 18)
    lowest = min((found[f"validation.vimadmm_j.{name}"], name) for name, _, _ in searched)
    assert lowest[1] == chosen[0]
    assert [found[f"chosen.vimadmm_j.{name}"] for name, _, _ in searched] == [
        float(name == chosen[0]) for name, _, _ in searched
    ]
    assert found["deviance.plain"] is not None and not any(key.startswith("validation.plain") for key in found)


def test_other_first_seeds_are_other_splits(data_dir: Path) -> None:
    later = {**TABLES, "poisson": {**TABLES["poisson"], "first_seed": 3}}
    results = run_poisson(read_bench("small", later), Options(data_dir, seeds=1), lambda _: None)
    tables = Tables.read(TABLES["data"], "made_up", data_dir)
    assert results["deviance.poisson_regressor"] == pytest.approx(
        regression(tables.federation(RowSplit.random(ROWS, seed=3)), (1e-3, 10.0))
    )


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
    cases = {case.key: case for case in (Case.read(bench, given, Options()) for given in bench.tables["cases"])}
    assert {f"excess.{key}" for key, case in cases.items() if len(case.candidates) > 1} == set(bench.limits("cpu"))
    for name in ("vimadmm", "vimadmm_j"):
        (as_they_are,) = cases[f"{name}_defaults"].candidates.values()
        assert as_they_are.method == make_method(name)
        assert as_they_are.training == Training()
