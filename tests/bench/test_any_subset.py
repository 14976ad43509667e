"""`bench any-subset` on a made-up table: gaps are against models of the same columns, on the same test rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from colonnade.bench import any_subset
from colonnade.bench.any_subset import federation_of, lacking, run_any_subset
from colonnade.bench.catalogue import Bench, read_bench
from colonnade.bench.perform import measure
from colonnade.bench.settings import Options
from colonnade.bench.table_sets import TableSet
from colonnade.errors import ConfigError
from colonnade.federation import Federation
from colonnade.fit import fit
from colonnade.run import Run

pytest.importorskip("lightgbm")


def made_up(rows: int = 400) -> TableSet:
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(rows, 2)), rng.normal(size=(rows, 2))
    labels = (first[:, 0] + second[:, 0] + rng.normal(size=rows) > 0).astype(np.int64)
    left, right = (pd.DataFrame(x, columns=list(names)) for x, names in ((first, "ab"), (second, "cd")))
    return TableSet("auc", {"left": left, "right": right}, labels)


def bench(**settings: object) -> Bench:
    return read_bench(
        "any-subset", {"title": "t", "kind": "any_subset", "any_subset": {"sets": ["credit"], **settings}}
    )


def quick(federation: Federation, method: str, seed: int, party_dropout: float = 0.0) -> Run:
    """Ridge regressions: how good trees are is measured elsewhere."""
    schedule = {"batch": 500, **({"party_dropout": party_dropout} if method == "vimadmm_j" else {})}
    return fit(federation, method, model={"encoder": "ridge"}, rounds=10, seed=seed, schedule=schedule)


def test_it_measures_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(any_subset, "read_set", lambda name, folder: made_up())
    monkeypatch.setattr(any_subset, "train", quick)
    told: list[str] = []
    methods = ("one_message", "vimadmm_j")
    results = run_any_subset(bench(methods=methods, masked=["one_message"]), Options(Path(), seeds=2), told.append)
    named = {f"{key}.{m}" for m in methods for key in ("auc_gap", "worst_auc_gap", "log_loss_gap")}
    assert set(results) == named | {"missing_gain.credit", "missing_gain_se.credit", "missing_sets"}
    assert len(told) == 2 * 2 * 2 + 2 * 2
    assert abs(results["auc_gap.one_message"] or 0) < 1e-9  # its stack of one party is that of a training of one
    assert abs(results["log_loss_gap.vimadmm_j"] or 0) < 0.05
    assert (results["worst_auc_gap.vimadmm_j"] or 0) >= (results["auc_gap.vimadmm_j"] or 0)


def test_rows_that_a_party_loses_are_training_rows() -> None:
    federation = federation_of(made_up(), 0)
    partial = lacking(federation, 1, 0.3, seed=0)
    assert partial.held is not None
    gone = (~partial.held[:, 1]).nonzero()[:, 0]
    assert len(gone) == round(0.3 * len(federation.split.train))
    assert bool(torch.isin(gone, federation.split.train).all()) and bool(partial.held[:, 0].all())
    assert not partial.parties[1].columns[gone].any()
    assert len(partial.matched().split.train) == len(federation.split.train) - len(gone)


def test_refusals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="needs --data-dir"):
        run_any_subset(bench(), Options(), print)
    with pytest.raises(ConfigError, match="there is no set 'crdit'"):
        run_any_subset(bench(), Options(Path(), only=("crdit",)), print)
    with pytest.raises(ConfigError, match="means over all sets"):
        measure("any-subset", Options(tmp_path, only=("credit",)), tmp_path / "out.json", print)
    monkeypatch.setattr(any_subset, "read_set", lambda name, folder: TableSet("r2", {}, np.zeros(1)))
    with pytest.raises(ConfigError, match="is about yes/no tables"):
        run_any_subset(bench(), Options(Path()), print)
