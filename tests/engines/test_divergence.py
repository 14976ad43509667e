"""A run that leaves the finite numbers stops with a reason and keeps its best round; on both engines.

With noise it does not stop for that: whether a party's numbers are finite would be a release that nobody counts.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from colonnade.errors import Diverged, WireError
from colonnade.evaluate.metrics import METRICS
from colonnade.fit import fit, resume
from colonnade.methods import VIMADMM, VIMADMMJ, LocalOnly
from colonnade.methods.base import LARGEST_REPLY, Reply
from colonnade.methods.linear_admm import LinearADMM
from colonnade.models.optimise import SGD
from colonnade.run import Run
from tests.federations import small
from tests.trainers import ENGINES, TINY, open_trainer

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
    assert all(torch.isfinite(value).all() for value in run.model.flat().values())
    rows = federation.split.validation
    logits = run.logits({p.name: p.columns[rows] for p in federation.parties})
    assert METRICS["accuracy"](federation.task, logits, federation.labels[rows]) == run.result["validation_score"]
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
    large = type(federation).from_arrays(columns, federation.labels, task=federation.task, split=federation.split)
    for method in (VIMADMM(), VIMADMMJ()):
        run = fit(large, method, engine=engine, rounds=6, model=TINY)
        assert not run.result["diverged"]
        assert all(torch.isfinite(value).all() for value in run.model.flat().values())


# -- with noise nobody is told ------------------------------------------------------------------

NOISE = {"mechanism": "gaussian", "clip": 0.001, "epsilon": 0.01}


def answer_to_a_crafted_reply(secret: float, size: float, privacy: dict[str, Any], engine: str) -> str:
    """What the coordinator sees of a party in which one person's columns are `secret`, after a reply made for it."""
    federation = small(widths=(5, 4, 5), rows=60)
    row = int(federation.split.train[0])
    columns = federation.parties[0].columns.clone()
    columns[row] = secret
    mine = replace(federation.parties[0], columns=columns)
    federation = replace(federation, parties=(mine, *federation.parties[1:]), scaled=True)
    method = VIMADMMJ(optimiser=SGD(lr=0.1, momentum=0.9), local_steps=20)
    trainer = open_trainer(
        federation, method, engine=engine, rounds=3, evaluate_every=0, privacy=privacy, dtype="float32"
    )
    order, down = trainer.coordinator.request()
    trainer.coordinator.receive(order, trainer.engine.run_round(order, down))
    place = order.queries[0].rows.tolist().index(row)  # everybody trains on all rows: it is there
    crafted = {name: torch.zeros_like(value) for name, value in trainer.coordinator.reply.common.items()}
    crafted["v"][place] = size
    trainer.coordinator.reply = Reply(crafted)
    order, down = trainer.coordinator.request()
    try:
        trainer.engine.run_round(order, down)
    except (Diverged, WireError) as error:
        return type(error).__name__
    return "an upload"


SIZES = (1.0, 1e3, 1e6, 1e12, 1e18, 1e30)


@pytest.mark.parametrize("engine", ENGINES)
def test_without_noise_a_crafted_reply_reads_a_person_s_columns(engine: str) -> None:
    told = [{answer_to_a_crafted_reply(secret, size, {}, engine) for secret in (0.0, 50.0)} for size in SIZES]
    assert {"an upload", "Diverged"} in told


@pytest.mark.parametrize("engine", ENGINES)
def test_with_noise_the_same_is_told_whatever_the_columns_are(engine: str) -> None:
    for size in SIZES:
        told = {answer_to_a_crafted_reply(secret, size, NOISE, engine) for secret in (0.0, 50.0)}
        assert told == {"WireError" if size > LARGEST_REPLY else "an upload"}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", METHODS)
def test_with_noise_a_party_that_diverges_does_not_end_the_run(name: str, engine: str) -> None:
    """The coordinator may give up by itself, from what was released; no party is ever the reason."""
    options = {**OPTIONS, "rounds": 12, "evaluate_every": 0}
    run = fit(small(), METHODS[name], engine=engine, privacy={**NOISE, "evaluation": "none"}, **options)
    assert run.result["stop"] == "all rounds done" or "the coordinator computed" in run.result["stop"]
    assert "party '" not in run.result["stop"]


@pytest.mark.parametrize("engine", ENGINES)
def test_with_noise_steps_that_fail_are_left_out(engine: str) -> None:
    """Columns beyond what can be squared: the solve fails at home, and only home hears of it."""
    federation = small(widths=(5, 4, 5), rows=60)
    large = replace(federation, parties=tuple(replace(p, columns=p.columns * 1e200) for p in federation.parties))
    large = replace(large, scaled=True)
    options: dict[str, Any] = {"engine": engine, "rounds": 3, "evaluate_every": 0, "dtype": "float64", "model": TINY}
    with pytest.raises(Exception, match=r"cholesky|linalg"):
        fit(large, LinearADMM(), **options)
    with pytest.warns(UserWarning, match="local steps were left out"):
        run = fit(large, LinearADMM(), privacy=NOISE, **options)
    assert run.result["stop"] == "all rounds done"
    assert sum(r.owner == "party_0" for r in run.ledger) == 3


@pytest.mark.parametrize("name", ["assisted_boosting", "one_message", "vimadmm_j"])
def test_with_noise_nobody_hears_of_a_solve_that_fails(name: str) -> None:
    """Whatever else than networks a party has."""
    federation = small(widths=(5, 4), rows=60)
    large = replace(federation, parties=tuple(replace(p, columns=p.columns * 1e200) for p in federation.parties))
    options: dict[str, Any] = {"rounds": 3, "evaluate_every": 0, "dtype": "float64", "model": {"encoder": "ridge"}}
    with pytest.warns(UserWarning, match="local steps were left out"):
        run = fit(replace(large, scaled=True), name, privacy={**NOISE, "evaluation": "none"}, **options)
    assert run.result["stop"] == "all rounds done"


def test_with_noise_a_mistake_in_a_method_is_still_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """What fails on zeros, too, says nothing of anybody's columns."""

    def broken(*_: Any) -> None:
        raise KeyError("v")

    monkeypatch.setattr(VIMADMMJ, "learn", broken)
    with pytest.raises(KeyError):
        fit(small(), VIMADMMJ(), engine="stacked", rounds=2, privacy=NOISE, model=TINY)
