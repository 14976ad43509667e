"""The benchmark of unmatched rows: who is given which rows, who chooses by what, and what is held against what."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from colonnade.bench.catalogue import CHECKOUT, find, read_bench
from colonnade.bench.settings import Options
from colonnade.bench.unmatched import Case, UnmatchedSettings, run_unmatched, scatter
from colonnade.config import build
from colonnade.errors import ConfigError
from colonnade.federation import Federation
from colonnade.job import Job, read_job
from tests.federations import small

BIG, SMALL = ({"optimiser": {"kind": "adamw", "lr": lr}} for lr in (1e-2, 1e-6))
TABLES: dict[str, Any] = {
    "title": "a small one",
    "kind": "unmatched",
    "data": {"set": "digits", "parties": 2},
    "model": {"hidden": 8, "embedding": 6},
    "training": {"rounds": 6, "evaluate_every": 3, "schedule": {"batch": 128}},
    "unmatched": {"matched": [5, 50], "seeds": 2},
    "cases": [
        {"method": {"name": "fedmvt"}},
        {"method": {"name": "split_learning"}, "rows": "matched", "tries": [SMALL, BIG]},
        {"key": "alone", "method": {"name": "local_only"}, "rows": "guest"},
    ],
}


def test_every_case_at_every_share(monkeypatch: pytest.MonkeyPatch) -> None:
    trained: list[tuple[str, Federation, float | None]] = []
    fit = Job.fit

    def watched(self: Job, federation: Federation, *args: Any, **options: Any) -> Any:
        run = fit(self, federation, *args, **options)
        trained.append((self.method.name, federation, run.accuracy))
        return run

    monkeypatch.setattr(Job, "fit", watched)
    results = run_unmatched(read_bench("small", TABLES), Options(), lambda _: None)
    cases = [f"{key}_{share}" for share in (5, 50) for key in ("fedmvt", "split_learning", "alone")]
    told = ("test_accuracy", "test_accuracy_std", "validation_accuracy")
    more = {"fedmvt": (), "split_learning": ("chosen", "gain"), "alone": ("gain",)}
    assert list(results) == [f"{key}.{c}" for c in cases for key in (*told, *more[c.rpartition("_")[0]])]
    assert results["chosen.split_learning_5"] == results["chosen.split_learning_50"] == 1
    for case in cases[1:3]:
        gap = results["test_accuracy.fedmvt_5"] - results[f"test_accuracy.{case}"]  # type: ignore[operator]
        assert results[f"gain.{case}"] == pytest.approx(gap)
    tried = [accuracy for name, _, accuracy in trained if name == "split_learning"]
    assert [accuracy is None for accuracy in tried] == ([True] * 4 + [False] * 2) * 2  # test rows once, at the end
    rows = {name: len(federation.split.train) for name, federation, _ in trained[:10]}
    assert rows == {"fedmvt": 1258, "split_learning": 63, "local_only": 661}  # 63 and half of the rest, rounded up


def test_scattered_rows() -> None:
    whole = small(widths=(5, 5), rows=80)
    parted = scatter(whole, 0.25, seed=3)
    held, train = parted.held, whole.split.train
    assert held is not None and parted.labelled is not None and torch.equal(parted.labelled, held[:, 0])
    assert [int(mask[train].sum()) for mask in (parted.complete, held[:, 0], held[:, 1])] == [12, 30, 30]  # of 48
    assert not torch.equal(held, scatter(whole, 0.25, seed=4).held)  # type: ignore[arg-type]
    assert torch.equal(parted.split.test, whole.split.test)


@pytest.mark.parametrize("cases", [[], [TABLES["cases"][0]] * 2])
def test_cases_without_a_name_of_their_own_are_refused(cases: list[Any]) -> None:
    with pytest.raises(ConfigError, match="each with a key of its own"):
        run_unmatched(read_bench("small", {**TABLES, "cases": cases}), Options(), lambda _: None)


@pytest.mark.parametrize("name", ["digits-fedmvt", "mnist-fedmvt"])
def test_the_shipped_ones_name_results_that_there_are(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CHECKOUT)
    bench = find(name)
    settings = build(UnmatchedSettings, bench.tables["unmatched"], "unmatched")
    cases = [build(Case, case, "cases") for case in bench.tables["cases"]]
    assert set(bench.limits("cpu")) <= {f"gain.{case.name}_{share:g}" for case in cases for share in settings.matched}
    for case in cases:
        for settings_tried in case.tries:
            read_job({"method": {**case.method, **settings_tried}})
