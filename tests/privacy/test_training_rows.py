"""After a training with noise, one prediction about the training rows would release them bare: it is refused."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load
from torch import Tensor

from colonnade import Run, fit
from colonnade.errors import Refused, RunError, UnknownTrainingRows
from colonnade.federation import Federation
from colonnade.methods import VIMADMMJ, LinearADMM
from colonnade.privacy.training_rows import TrainingRows
from colonnade.saved import TRAINED
from colonnade.wire.messages import COORDINATOR, Purpose
from colonnade.written import replace_file
from tests.federations import small
from tests.trainers import TINY

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


@pytest.mark.parametrize("loaded", [False, True], ids=["trained here", "loaded"])
class TestRecognised:
    """The same answers from the run in memory and from its folder."""

    def run(self, federation: Federation, folder: Path, loaded: bool) -> Run:
        run = fit(federation, VIMADMMJ(), rounds=2, model=TINY, privacy=NOISE, out=folder / "run")
        return Run.load(folder / "run") if loaded else run

    def test_raw_training_rows_are_refused(self, loaded: bool, tmp_path: Path) -> None:
        federation = small()
        run = self.run(federation, tmp_path, loaded)
        train, before = columns(federation, federation.split.train), len(run.ledger)
        with pytest.raises(Refused, match=f"{len(federation.split.train)} of these rows trained this run"):
            run.predict(train)
        with pytest.raises(Refused):  # the same numbers, written differently
            run.predict({name: value.double().numpy() for name, value in train.items()})
        assert len(run.ledger) == before
        run.predict(columns(federation, federation.split.test))

    def test_the_columns_of_one_party_are_enough(self, loaded: bool, tmp_path: Path) -> None:
        federation = small()
        run = self.run(federation, tmp_path, loaded)
        mine, names = columns(federation, federation.split.train[:7]), federation.names
        changed = {name: mine[name] + 1e-3 * (name != names[2]) for name in names}
        with pytest.raises(Refused, match=rf"7 of these rows .* \(recognised by {names[2]}; first: row 0, counted"):
            run.predict(changed)
        run.predict({name: mine[name] + 1e-3 for name in names})  # nobody's columns are those of the training

    def test_columns_that_many_rows_share_recognise_none_of_them(self, loaded: bool, tmp_path: Path) -> None:
        federation, new = yes_no_and_numbers(200, 0), yes_no_and_numbers(200, 1)
        run = self.run(federation, tmp_path, loaded)
        run.predict(columns(new, torch.arange(200)))  # every answer of "survey" occurs among the training rows
        mixed = columns(new, torch.arange(5)) | {"bank": columns(federation, federation.split.train[:5])["bank"]}
        with pytest.raises(Refused, match=r"5 of these rows trained this run: .* \(recognised by bank;"):
            run.predict(mixed)

    def test_columns_that_new_rows_often_have_recognise_only_together(self, loaded: bool, tmp_path: Path) -> None:
        """Some answers of five columns occur once; a tenth of the new rows have such answers by accident."""
        federation = few_values(400, 0)
        run = self.run(federation, tmp_path, loaded)
        train = columns(federation, federation.split.train)
        assert all((_counts(value) == 1).sum() > 40 for value in train.values())
        new = columns(few_values(400, 1), torch.arange(400))
        assert run.model.trained is not None
        run.predict({**new, "c": new["c"] + 0.5})
        with pytest.raises(Refused, match=r"recognised by the columns of all parties together"):
            run.predict(train)

    def test_rows_that_a_party_does_not_hold_are_none_of_its_training_rows(self, loaded: bool, tmp_path: Path) -> None:
        whole = small()
        held = torch.ones(whole.rows, len(whole.parties), dtype=torch.bool)
        held[whole.split.train[:20], 1] = False  # zeros stand in their place
        of = {party.name: party.columns for party in whole.parties}
        federation = Federation.from_arrays(of, whole.labels, task=whole.task, split=whole.split, held=held)
        trained = TrainingRows.of(federation)
        if loaded:
            trained = TrainingRows.from_bytes(trained.to_bytes("x"), "x")
        found = trained.among(columns(federation, federation.split.train[:25]))
        assert found["party_0"].all() and found["party_1"].tolist() == [False] * 20 + [True] * 5
        assert found[""].tolist() == [False] * 20 + [True] * 5


def _counts(values: Tensor) -> Tensor:
    return values.unique(dim=0, return_counts=True)[1]


def yes_no_and_numbers(rows: int, seed: int) -> Federation:
    """Two yes/no questions at one party, numbers at the other."""
    rng = np.random.default_rng(seed)
    survey, bank = rng.integers(0, 2, size=(rows, 2)), rng.normal(size=(rows, 3))
    return Federation.from_arrays({"survey": survey, "bank": bank}, (bank[:, 0] > 0).astype(int), task="binary")


def few_values(rows: int, seed: int) -> Federation:
    """Three parties with five questions of three answers each."""
    rng = np.random.default_rng(seed)
    answers = {party: rng.integers(0, 3, size=(rows, 5)) for party in "abc"}
    return Federation.from_arrays(answers, (answers["a"][:, 0] > 0).astype(int), task="binary")


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


def test_a_saved_run_keeps_digests_and_not_the_order_of_its_rows(tmp_path: Path) -> None:
    federation, run = trained(NOISE, out=tmp_path / "run")
    assert run.model.trained is not None and len(run.model.trained.together) == len(federation.split.train)
    read = load((tmp_path / "run" / TRAINED).read_bytes())
    assert set(read) == {"run", "salt", "together", *(f"party/{name}" for name in federation.names)}
    for name, digests in read.items():
        assert name in ("run", "salt") or (np.diff(digests.astype(object)) > 0).all()
    assert all(set(read["together"]).isdisjoint(read[f"party/{name}"]) for name in federation.names)
    other = TrainingRows.of(federation)
    assert set(other.together).isdisjoint(run.model.trained.together)  # every run has a key of its own


def test_an_earlier_folder_without_digests_warns_and_says_what_to_check(tmp_path: Path) -> None:
    federation, _ = trained(NOISE, out=tmp_path / "run")
    (tmp_path / "run" / TRAINED).unlink()
    run = Run.load(tmp_path / "run")
    with pytest.warns(UnknownTrainingRows, match="without digests of its training rows, so it cannot recognise them"):
        run.predict(columns(federation, federation.split.test))
    with pytest.raises(Refused, match="recognised by the federation"):
        run.predict(federation.select(federation.split.train))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the federation knows which rows trained
        run.predict(federation.select(federation.split.test))


def test_digests_of_another_run_are_refused(tmp_path: Path) -> None:
    for name in ("one", "two"):
        trained(NOISE, out=tmp_path / name)
    replace_file(tmp_path / "one" / TRAINED, (tmp_path / "two" / TRAINED).read_bytes())
    with pytest.raises(RunError, match="are those of another run"):
        Run.load(tmp_path / "one")
    (tmp_path / "one" / TRAINED).write_bytes(b"torn")
    with pytest.raises(RunError, match="damaged"):
        Run.load(tmp_path / "one")


def test_a_run_without_noise_stores_nothing_about_its_rows(tmp_path: Path) -> None:
    trained(NOISE, out=tmp_path / "run")
    _, bare = trained({})
    bare.save(tmp_path / "run")
    assert bare.model.trained is None and not (tmp_path / "run" / TRAINED).exists()
