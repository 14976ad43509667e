"""After a training with noise, one prediction about the training rows would release them bare: it is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from colonnade import Run, fit
from colonnade.errors import Refused
from colonnade.federation import Federation
from colonnade.methods import VIMADMMJ, LinearADMM
from colonnade.wire.messages import COORDINATOR, Purpose
from tests.exchanges import TINY
from tests.federations import small

NOISE = {"mechanism": "gaussian", "clip": 0.5, "sigma": 3.0}


def trained(privacy: dict[str, Any], **options: Any) -> tuple[Federation, Run]:
    federation = small()
    return federation, fit(federation, VIMADMMJ(), rounds=2, model=TINY, privacy=privacy, **options)


def columns(federation: Federation, rows: Tensor) -> dict[str, Tensor]:
    return {party.name: party.columns[rows] for party in federation.parties}


def predictions(run: Run) -> list[Any]:
    return [r for r in run.ledger if r.purpose is Purpose.PREDICT and r.owner != COORDINATOR]


@pytest.mark.parametrize("predict", ["logits", "predict", "predict_proba"])
def test_training_rows_are_refused_and_nothing_is_released(predict: str) -> None:
    federation, run = trained(NOISE)
    train, test = federation.split.train, federation.split.test
    with pytest.raises(Refused, match=f"{len(train)} of these rows trained this run"):
        getattr(run, predict)(columns(federation, train))
    mixed = torch.cat([test, train[3:4]])
    with pytest.raises(Refused, match="1 of these rows trained this run: predicting them would release them without"):
        getattr(run, predict)(columns(federation, mixed))
    assert predictions(run) == []
    getattr(run, predict)(columns(federation, test))
    assert {r.parameters for r in predictions(run)} == {()}


def test_a_row_of_other_columns_is_another_row() -> None:
    """A party with few columns has new rows that equal an old one; only all columns together are a training row."""
    federation, run = trained(NOISE)
    mine = columns(federation, federation.split.train)
    name = next(iter(mine))
    run.predict({**mine, name: mine[name] + 1e-3})
    with pytest.raises(Refused):
        run.predict({**mine, name: mine[name].double() * 1.0})  # the same numbers, written differently


def test_what_is_released_all_the_same_stands_in_the_ledger() -> None:
    federation, run = trained(NOISE)
    run.releases_training_rows = True
    train = federation.split.train
    run.predict(columns(federation, train))
    told = predictions(run)
    assert len(told) == len(federation.parties)
    assert {(r.mechanism, r.parameters) for r in told} == {("none", (("training_rows", float(len(train))),))}


def test_a_noisy_secure_sum_and_noise_of_a_method_count_as_noise() -> None:
    federation, run = trained({**NOISE, "secure_sum": {"use": True}})
    with pytest.raises(Refused):
        run.predict(columns(federation, federation.split.train))
    run.releases_training_rows = True
    run.predict(columns(federation, federation.split.train[:5]))
    assert {dict(r.parameters)["training_rows"] for r in predictions(run)} == {5.0}
    own = fit(federation, LinearADMM(noise=0.1), rounds=2, model=TINY)
    with pytest.raises(Refused):
        own.predict(columns(federation, federation.split.train))


@pytest.mark.parametrize("privacy", [{}, {"secure_sum": {"use": True}}], ids=["nothing", "sum"])
def test_without_noise_nothing_was_promised(privacy: dict[str, Any]) -> None:
    federation, run = trained(privacy)
    run.predict(columns(federation, federation.split.train))


def test_a_saved_run_does_not_hold_digests_of_its_rows(tmp_path: Path) -> None:
    """They would tell anybody with the folder who was in the training."""
    federation, run = trained(NOISE, out=tmp_path / "run")
    assert run.trained is not None and bool(run.trained.among(columns(federation, federation.split.train)).all())
    loaded = Run.load(tmp_path / "run")
    assert loaded.trained is None
    some = next(iter(run.trained._digests))
    assert all(some not in file.read_bytes() for file in (tmp_path / "run").iterdir())
