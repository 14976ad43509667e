"""`bench tables` on a made-up set: what is compared is on the same rows, and what is chosen sees no test row."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from colonnade.bench import tables
from colonnade.bench.catalogue import read_bench
from colonnade.bench.settings import Options
from colonnade.bench.table_sets import TableSet, read_set
from colonnade.errors import ConfigError, MissingData

pytest.importorskip("lightgbm")
BENCH = read_bench("tables", {"title": "t", "kind": "tables", "tables": {"sets": ["breast"]}})


def made_up(rows: int = 240) -> TableSet:
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(rows, 3)), rng.normal(size=(rows, 2))
    labels = (first[:, 0] + second[:, 0] > 0).astype(np.int64)
    colour = np.where(rng.random(rows) < 0.5, "red", "blue")
    left = pd.DataFrame(first, columns=["a", "b", "c"]).assign(colour=colour)
    return TableSet("auc", {"left": left, "right": pd.DataFrame(second, columns=["d", "e"])}, labels)


def test_rows_are_shared_out_once_and_by_class() -> None:
    found = made_up()
    rows = tables.split_rows(found, seed=0)
    assert sorted(np.concatenate([rows.train, rows.validation, rows.test])) == list(range(240))
    assert (len(rows.train), len(rows.validation), len(rows.test)) == (153, 27, 60)
    assert abs(found.labels[rows.test].mean() - found.labels.mean()) < 0.01


@pytest.mark.parametrize(
    "predict",
    [lambda f, r: tables.central_trees(f.tables["left"], f, r, 0), lambda f, r: tables._linear(f.tables["left"], f, r)],
)
def test_labels_of_test_rows_change_no_prediction(predict) -> None:
    found = made_up()
    rows = tables.split_rows(found, seed=0)
    changed = found.labels.copy()
    changed[rows.test] = 1 - changed[rows.test]
    other = TableSet("auc", found.tables, changed)
    np.testing.assert_array_equal(predict(found, rows), predict(other, rows))


def test_it_measures_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours is a stand-in that knows one party's column: training is measured elsewhere."""
    monkeypatch.setattr(tables, "read_set", lambda name, folder: made_up())
    monkeypatch.setattr(tables, "_ours", lambda found, rows, seed: found.tables["left"]["a"].to_numpy()[rows.test])
    told: list[str] = []
    results = tables.run_tables(BENCH, Options(data_dir=Path(), seeds=2), told.append)
    assert results["linear.breast"] > 0.97
    assert results["alone.breast"] < results["linear.breast"]
    assert results["linear_gap.breast"] == pytest.approx(results["linear.breast"] - results["auc.breast"])
    assert results["linear_gap_se.breast"] > 0
    assert len(told) == 2


def test_a_set_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingData, match=r"fate/breast_hetero_guest\.csv\.gz is not there"):
        read_set("breast", tmp_path)
    with pytest.raises(ConfigError, match="there is no set 'brest'"):
        tables.run_tables(BENCH, Options(data_dir=tmp_path, only=("brest",)), print)
    with pytest.raises(ConfigError, match="needs --data-dir"):
        tables.run_tables(BENCH, Options(), print)
