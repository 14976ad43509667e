"""A run that leaves the finite numbers stops with a reason and keeps its best round; on both engines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from colonnade.evaluate.metrics import score
from colonnade.fit import fit, resume
from colonnade.methods import VIMADMM, VIMADMMJ, LocalOnly
from colonnade.models.optimise import SGD
from colonnade.run import Run
from tests.exchanges import ENGINES, TINY
from tests.federations import small

ABSURD = SGD(lr=1e3, momentum=0.9)
METHODS = {
    "vimadmm, sgd heads": VIMADMM(optimiser=ABSURD, local_steps=1, head_update="sgd", head_lr=1e3),
    "vimadmm, joint heads": VIMADMM(optimiser=ABSURD, local_steps=1),
    "vimadmm, many steps": VIMADMM(optimiser=ABSURD, local_steps=20, residual="before", head_update="sgd"),
    "vimadmm_j": VIMADMMJ(optimiser=SGD(lr=50.0), local_steps=5),
    "vimadmm_j, alternating": VIMADMMJ(optimiser=SGD(lr=50.0), local_steps=5, alternate=True),
    "local_only": LocalOnly(optimiser=SGD(lr=1e6, weight_decay=0.1)),
}
OPTIONS: dict[str, Any] = {"rounds": 60, "evaluate_every": 1, "model": TINY, "stopping": {"drop": 1e9}}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", METHODS)
def test_it_stops_and_says_so(name: str, dtype: str, engine: str) -> None:
    federation = small()
    run = fit(federation, METHODS[name], engine=engine, dtype=dtype, **OPTIONS)
    assert run.result["stop"].startswith("diverged: ")
    assert run.result["diverged"]
    assert run.result["rounds"] < 60
    if run.result["best_round"] is None:
        return  # it left the finite numbers before anything could be scored
    assert all(torch.isfinite(value).all() for value in run._flat().values())
    rows = federation.split.validation
    logits = run.logits({p.name: p.columns[rows] for p in federation.parties})
    assert score(federation.task, logits, federation.labels[rows]) == run.result["validation_score"]
    assert run.result["validation_score"] == max(h["score"] for h in run.history if "score" in h)
    assert run.accuracy is not None
    json.dumps(run.record(), allow_nan=False)  # readable by any JSON reader


def test_at_least_one_of_them_has_a_best_round_to_keep() -> None:
    kept = [fit(small(), method, **OPTIONS).result["best_round"] for method in METHODS.values()]
    assert sum(best is not None for best in kept) >= 3


@pytest.mark.parametrize("engine", ENGINES)
def test_the_reason_names_the_party_and_the_remedy(engine: str) -> None:
    run = fit(small(), METHODS["vimadmm_j"], engine=engine, **OPTIONS)
    assert "party 'party_" in run.result["stop"]
    assert "smaller learning rate" in run.result["stop"]


def test_a_diverged_run_is_saved_whole(tmp_path: Path) -> None:
    run = fit(small(), METHODS["vimadmm_j"], out=tmp_path / "run", **OPTIONS)
    loaded = Run.load(tmp_path / "run")
    assert loaded.fingerprint() == run.fingerprint()
    assert loaded.result == run.result
    again = resume(tmp_path / "run", small())  # it goes on from its last checkpoint, to the same end
    assert again.fingerprint() == run.fingerprint()
    assert again.result["stop"] == run.result["stop"]


@pytest.mark.parametrize("engine", ENGINES)
def test_before_the_first_evaluation_there_is_nothing_to_keep(engine: str) -> None:
    options = {**OPTIONS, "evaluate_every": 50}
    run = fit(small(), METHODS["vimadmm_j"], engine=engine, **options)
    assert run.result["diverged"]
    assert run.result["best_round"] is None
    assert run.accuracy is None
    assert "best round is kept" not in run.result["stop"]


@pytest.mark.parametrize("engine", ENGINES)
def test_defaults_do_not_diverge_on_columns_nobody_scaled(engine: str) -> None:
    federation = small(rows=60)
    columns = {p.name: p.columns * 30 for p in federation.parties}
    large = type(federation).from_arrays(columns, federation.labels, split=federation.split)
    for method in (VIMADMM(), VIMADMMJ()):
        run = fit(large, method, engine=engine, rounds=6, model=TINY)
        assert not run.result["diverged"]
        assert all(torch.isfinite(value).all() for value in run._flat().values())
