"""The method `scorecard`: the contracts that other methods are walked through, on columns that are cut into bins."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import colonnade as cn
from colonnade import mapped
from colonnade.errors import ColonnadeError, ConfigError, DataError, WireError
from colonnade.explain.explain import explain
from colonnade.fit import resume
from colonnade.methods import METHODS, ScorecardADMM, make_method
from colonnade.methods._bins import MOST_BINS, looked_up
from colonnade.methods.base import GivesPoints, Method
from colonnade.model import Model
from colonnade.part import Part
from colonnade.progress import Progress
from colonnade.rows import Rows
from colonnade.run import Run
from colonnade.scorecards.card import PartyCard
from tests.contracts.registry import OF_BINS
from tests.explain.shoppers import shoppers

TABLES = shoppers(240)
OPTIONS: dict[str, Any] = {"rounds": 6, "evaluate_every": 2, "dtype": "float64", "batch": 500, "progress": False}
PAGE = Path(__file__).parents[2] / "docs" / "methods" / "scorecard.md"


@cache
def federation(bins: int = 5) -> cn.Federation:
    """Three parties, so that a secure sum hides something."""
    bank = TABLES["bank"]
    tables = {
        "bank": bank[["customer", "income"]],
        "shop": bank[["customer", "age", "since"]],
        "telco": TABLES["telco"],
    }
    return cn.Federation.from_tables(tables, labels="churn", id="customer", columns={"bins": bins})


@cache
def trained() -> Run:
    return cn.fit(federation(), "scorecard", **OPTIONS)


def points_of(run: Run, rows: Rows) -> torch.Tensor:
    assert isinstance(run.method, ScorecardADMM)
    return run.method.points(run.model.logits(rows))


def test_all_methods_for_bins_are_tried_here() -> None:
    assert {name for name, kind in METHODS.items() if getattr(kind, "reads_bins", False)} == OF_BINS == {"scorecard"}


def test_it_is_a_described_method_with_a_page() -> None:
    method = make_method("scorecard")
    assert isinstance(method, Method) and isinstance(method, GivesPoints) and ScorecardADMM.__doc__
    assert all(field.description for field in ScorecardADMM.model_fields.values())
    assert "## Who sees labels" in PAGE.read_text(encoding="utf-8")
    assert f"Label exposure is {method.exposes.value}" in PAGE.read_text(encoding="utf-8")


def test_settings_survive_json_and_are_all_read() -> None:
    usual = cn.fit(federation(), "scorecard", **{**OPTIONS, "batch": 100, "evaluate_every": 0})
    changed = {"monotone": True, "base_score": 500.0, "odds": 20.0, "pdo": 40.0, "rho": 1.0, "beta": 1e-2, "kappa": 0.5}
    assert set(changed) == set(ScorecardADMM.model_fields)
    for name, value in changed.items():
        method = ScorecardADMM(**{name: value})
        assert make_method("scorecard", json.loads(json.dumps(method.model_dump()))) == method
        other = cn.fit(federation(), method, **{**OPTIONS, "batch": 100, "evaluate_every": 0})
        if name == "base_score":  # where points begin: it trains nothing
            rows = federation().select(range(20))
            assert torch.equal(points_of(other, rows), points_of(usual, rows) - 100)
        elif name in ("odds", "pdo"):
            rows = federation().select(range(20))
            assert not torch.equal(points_of(other, rows), points_of(usual, rows)), name
        else:
            assert other.fingerprint() != usual.fingerprint(), f"{name} changes nothing"


def test_both_engines_compute_the_same_bits() -> None:
    assert cn.fit(federation(), "scorecard", engine="loop", **OPTIONS).fingerprint() == trained().fingerprint()


class Killed(Exception):
    """In the middle of a training."""


def test_a_run_that_was_killed_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    def kill(now: Progress) -> None:
        if now.round == 3:
            raise Killed

    with pytest.raises(Killed):
        cn.fit(federation(), "scorecard", out=tmp_path / "run", checkpoint_every=1, watch=kill, **OPTIONS)
    assert resume(tmp_path / "run", federation(), progress=False).fingerprint() == trained().fingerprint()


def test_columns_on_disk_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    trained()  # in memory
    monkeypatch.setattr(mapped, "IN_MEMORY", 0)
    federation.cache_clear()
    try:
        assert mapped.is_mapped(federation().parties[0].columns)
        assert cn.fit(federation(), "scorecard", **OPTIONS).fingerprint() == trained().fingerprint()
    finally:
        federation.cache_clear()


def test_a_secure_sum_opens_the_same_points() -> None:
    run = cn.fit(federation(), "scorecard", privacy={"secure_sum": {"use": True}}, **OPTIONS)
    rows = federation().select(federation().split.test)
    assert torch.equal(points_of(run, rows), points_of(trained(), rows))


def test_small_batches_come_to_the_same_weights() -> None:
    whole = cn.fit(federation(), "scorecard", **{**OPTIONS, "rounds": 60, "evaluate_every": 0})
    parts = cn.fit(federation(), "scorecard", **{**OPTIONS, "rounds": 150, "evaluate_every": 0, "batch": 90})
    for party in federation().names:
        one, two = (run.models[party]["head.weight.0"] for run in (whole, parts))
        torch.testing.assert_close(one, two, atol=0.1, rtol=0.1)


def test_a_saved_model_scores_raw_tables_as_the_cards_do(tmp_path: Path) -> None:
    trained().model.save(tmp_path)
    model, new = Model.load(tmp_path), shoppers(50, seed=7)
    tables = {"bank": new["bank"][["customer", "income"]], "shop": new["bank"][["customer", "age", "since"]]}
    logits = model.logits({**tables, "telco": new["telco"]})
    method = model.method
    assert isinstance(method, ScorecardADMM)
    total = sum(PartyCard.of(model.part(name)).points(t) for name, t in {**tables, "telco": new["telco"]}.items())
    scores = method.scale.base_points(float(model.state["constant"])) + np.asarray(total)
    assert method.points(logits).tolist() == scores.tolist()
    assert len(set(scores.tolist())) > 10


def test_a_part_alone_gives_its_own_whole_points(tmp_path: Path) -> None:
    trained().model.part("telco").save(tmp_path)
    part = Part.load(tmp_path)
    told = part.predict(TABLES["telco"])["o"][:, 0]
    assert told.tolist() == PartyCard.of(part).points(TABLES["telco"]).tolist()


def test_parties_are_explained_without_noise_on_bins() -> None:
    found = explain(trained(), federation())
    assert found.shapley is not None and "the number of a bin" in found.unavailable["noise"]
    with pytest.raises(ConfigError, match="stands on its card"):
        trained().model.contributions(TABLES["telco"], party="telco")
    terms = trained().model.contributions(federation().select(range(5)))
    torch.testing.assert_close(terms.total, trained().model.logits(federation().select(range(5))))


@pytest.mark.parametrize(
    ("method", "bins", "told"),
    [
        ("scorecard", 0, "method 'scorecard' reads columns that are cut into bins, and those of party 'bank' are not"),
        (
            "vimadmm_j",
            5,
            "the columns of party 'bank' are cut into bins, whose numbers mean nothing to method",
        ),
    ],
)
def test_bins_and_the_method_belong_together(method: str, bins: int, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        cn.fit(federation(bins), method, rounds=1)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"class_weights": "balanced"}, "a scorecard counts rows, and these have weights"),
        ({"model": {"scale_columns": "always"}}, "reads the numbers of bins as they are"),
        ({"model": {"encoder": "ridge"}}, "would not use the local model of party 'bank'"),
    ],
    ids=str,
)
def test_what_it_cannot_use_is_refused(asked: dict[str, Any], told: str) -> None:
    with pytest.raises(ColonnadeError, match=told):
        cn.fit(federation(), "scorecard", rounds=1, **asked)


class TestWhatComesFromOutside:
    """Labels and how likely they were kept are read off a message."""

    @pytest.mark.parametrize(
        "reply",
        [
            {},
            {"targets": torch.zeros(3, 1, dtype=torch.uint8)},
            {"targets": torch.zeros(3, 1, dtype=torch.uint8), "keep": torch.tensor([0.4])},
            {"targets": torch.tensor([[0], [1], [2]]), "keep": torch.tensor([1.0])},
            {"targets": torch.zeros(2, 1, dtype=torch.uint8), "keep": torch.tensor([1.0])},
            {"targets": torch.zeros(3, 1, dtype=torch.uint8), "keep": torch.tensor([float("nan")])},
        ],
        ids=["nothing", "no keep", "a coin", "another class", "too few", "no number"],
    )
    def test_what_is_no_label_is_refused(self, reply: dict[str, torch.Tensor]) -> None:
        from types import SimpleNamespace

        from colonnade.methods._bins import count_labels
        from colonnade.methods.base import Received

        cohort: Any = SimpleNamespace(schema=SimpleNamespace(train=torch.arange(3)))
        with pytest.raises(WireError, match="a scorecard begins with"):
            count_labels(cohort, Received(reply, {}), False)

    @pytest.mark.parametrize("code", [0.5, -1.0 - MOST_BINS / 2, MOST_BINS / 2])
    def test_what_is_no_bin_is_refused(self, code: float) -> None:
        with pytest.raises(DataError, match=r"numbers of bins, and these columns are none"):
            looked_up(torch.zeros(1, 1, MOST_BINS), torch.full((1, 2, 1), code))
