"""local_only: parties that trained alone, weighed on validation rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import log_loss
from torch import Tensor

from colonnade import Federation, Run, fit
from colonnade.federation import RowSplit
from colonnade.fit import Trainer
from colonnade.methods import LocalOnly
from colonnade.methods.base import Uploads
from colonnade.methods.without import outputs_of
from colonnade.tasks import TASKS
from tests.federations import mixed_encoder, small
from tests.trainers import changed, open_trainer

ALL = list(TASKS)
FAST = {"rounds": 60, "dtype": "float64", "evaluate_every": 20}


def same_news(parties: int = 5, rows: int = 2000) -> Federation:
    """A rare yes; all parties hold nearly the same columns, except the last, which holds only noise."""
    rng = np.random.default_rng(3)
    news = rng.normal(size=(rows, 3))
    label = (news @ np.array([1.0, -1.0, 0.5]) + rng.normal(size=rows) > 2).astype(int)
    columns = {f"party_{k}": news + 0.1 * rng.normal(size=news.shape) for k in range(parties - 1)}
    columns["noise"] = rng.normal(size=(rows, 3))
    split = RowSplit(torch.arange(400), torch.arange(400, 1000), torch.arange(1000, rows))
    return Federation.from_arrays(columns, label, task="binary", split=split)


def alone(run: Run, party: str) -> Run:
    """The model of one party as a run of its own."""
    design = replace(run.model.design, parties=(party,))
    return changed(run, models={party: run.models[party]}, state={"share": torch.ones(())}, design=design)


def parts(run: Run, federation: Federation, rows: Tensor) -> dict[str, Tensor]:
    """What every party's model says by itself."""
    columns = {party.name: party.columns[rows] for party in federation.parties}
    return {party: alone(run, party).logits({party: columns[party]}) for party in federation.names}


def columns(federation: Federation, rows: Tensor) -> dict[str, Tensor]:
    return {p.name: p.columns[rows] for p in federation.parties}


def test_the_log_loss_is_not_worse_than_that_of_a_party_alone() -> None:
    """Five models that say the same: their sum is five times too sure of it."""
    federation = same_news()
    run, test = fit(federation, LocalOnly(), **FAST), federation.split.test
    truth = federation.labels[test].numpy()
    apart = {p: log_loss(truth, torch.sigmoid(z).numpy()) for p, z in parts(run, federation, test).items()}
    summed = log_loss(truth, torch.sigmoid(sum(parts(run, federation, test).values())).numpy())  # type: ignore[arg-type]
    together = log_loss(truth, torch.sigmoid(run.logits(columns(federation, test))).numpy())
    assert together < min(apart.values()) + 0.005 < summed


def test_a_party_of_noise_counts_little() -> None:
    run = fit(same_news(), LocalOnly(), **FAST)
    weights = dict(zip(same_news().names, run.state["weights"].tolist(), strict=True))
    assert 0 <= weights["noise"] < 0.1 * sum(weights.values())


@pytest.mark.parametrize("task", ALL)
def test_prediction_is_the_weighted_sum(task: str) -> None:
    federation = small(task=task)
    run, rows = fit(federation, LocalOnly(), **FAST), federation.split.test
    uploaded = parts(run, federation, rows)
    shift, scale = run.state.get("target.shift", 0.0), run.state.get("target.scale", 1.0)
    logits = (
        sum(w * uploaded[p] for w, p in zip(run.state["weights"], federation.names, strict=True)) + run.state["bias"]
    )
    torch.testing.assert_close(run.logits(columns(federation, rows)), logits * scale + shift)


def test_weights_follow_their_parties_through_groups() -> None:
    """Parties of two architectures stand in two groups, and so not in the order of the federation."""
    federation = small()
    runs = [fit(federation, LocalOnly(), encoders=mixed_encoder, engine=e, **FAST) for e in ("loop", "stacked")]
    groups = [party for group in runs[0].about["groups"] for party in group]
    assert groups != list(federation.names)
    uploaded = parts(runs[0], federation, federation.split.test)
    logits = sum(w * uploaded[p] for w, p in zip(runs[0].state["weights"], groups, strict=True)) + runs[0].state["bias"]
    torch.testing.assert_close(runs[0].logits(columns(federation, federation.split.test)), logits)
    torch.testing.assert_close(runs[0].state["weights"], runs[1].state["weights"], atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("task", ALL)
@pytest.mark.parametrize(
    "why", [{"evaluate_every": 0}, {"privacy": {"secure_sum": {"use": True}}}], ids=["never evaluated", "secure sum"]
)
def test_without_weights_it_is_the_mean(task: str, why: dict[str, Any]) -> None:
    federation = small(task=task)
    run, rows = fit(federation, LocalOnly(), **{**FAST, **why}), federation.split.test
    assert "weights" not in run.state
    design = replace(run.model.design, privacy=type(run.privacy)())
    uploaded = parts(changed(run, design=design), federation, rows)
    mean = sum(uploaded.values()) / len(uploaded)
    shift, scale = run.state.get("target.shift", 0.0), run.state.get("target.scale", 1.0)
    torch.testing.assert_close(run.logits(columns(federation, rows)), mean * scale + shift, atol=1e-6, rtol=1e-6)


def test_the_weights_of_the_best_round_are_kept(tmp_path: Path) -> None:
    """Not those of the last evaluation: they belong to other models."""
    trainer = open_trainer(same_news(), LocalOnly(), rounds=40, evaluate_every=5)
    seen: list[Tensor] = []
    trainer.train(watch=lambda _: seen.append(trainer.coordinator.state.get("weights", torch.zeros(5)).clone()))
    best = trainer.coordinator.watch.best_round
    torch.testing.assert_close(trainer.coordinator.best_state["weights"], seen[best], rtol=0, atol=0)
    assert best == 40 or not torch.equal(seen[best], seen[-1])


def test_a_saved_run_without_weights_predicts_as_it_did(tmp_path: Path) -> None:
    """Runs of earlier versions hold share = 1 and nothing else: the sum."""
    federation = small()
    run = fit(federation, LocalOnly(), **{**FAST, "evaluate_every": 0})
    run.model.state = {"share": torch.tensor(1.0, dtype=torch.float64)}
    run.save(tmp_path / "run")
    rows = federation.split.test
    uploaded = parts(run, federation, rows)
    torch.testing.assert_close(Run.load(tmp_path / "run").logits(columns(federation, rows)), sum(uploaded.values()))


def test_without_a_party_it_still_predicts_as_often_yes() -> None:
    """Not a sum that lacks a term: log loss and share of yes stay right."""
    federation = same_news()
    run, test = fit(federation, LocalOnly(), **FAST), federation.split.test
    truth = federation.labels[test].numpy()
    uploads = Uploads(({"o": torch.stack(list(parts(run, federation, test).values()))},))
    present = torch.tensor([False, True, True, True, False])
    everybody = run.logits(columns(federation, test))
    some = outputs_of(run.method, run.task, run.state, uploads, [present])
    assert log_loss(truth, torch.sigmoid(some).numpy()) < log_loss(truth, torch.sigmoid(everybody).numpy()) + 0.02
    assert abs(float(torch.sigmoid(some).mean()) - float(truth.mean())) < 0.02


def weights_after(trainer: Trainer) -> Tensor:
    return trainer.train().state["weights"]


def test_protected_labels_are_weighed_by_their_noisy_ones() -> None:
    """Other plain validation labels behind the same noisy ones change nothing that is kept."""
    privacy = {"labels": {"mechanism": "randomised_response", "epsilon": 2.0}}
    one, other = (open_trainer(same_news(), LocalOnly(), privacy=privacy, rounds=20) for _ in range(2))
    other.coordinator.truth = 1 - other.coordinator.truth
    assert torch.equal(weights_after(one), weights_after(other))
    plain = open_trainer(same_news(), LocalOnly(), rounds=20)
    assert not torch.equal(weights_after(plain), weights_after(one))
