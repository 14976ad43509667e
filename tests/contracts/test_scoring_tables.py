"""A run that was trained from tables scores new raw rows: from Python, after saving and loading, and in any order."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import skops.io
import torch

from colonnade.data.columns import ColumnPlan
from colonnade.engines import queries
from colonnade.errors import ConfigError, DataError, Refused, RowsDisagree, RunError
from colonnade.federation import Federation, RowSplit
from colonnade.fit import fit, resume
from colonnade.methods import make_method
from colonnade.models.encoders import ModelSettings
from colonnade.rows import Rows
from colonnade.run import Run, read_record

TINY = ModelSettings(hidden=8, embedding=4)
NEW = 600


def tables(rows: int, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """A bank with large numbers and a telephone company with words; each knows half of why somebody leaves."""
    rng = np.random.default_rng(seed)
    income, city = rng.normal(40_000, 8_000, rows), rng.choice(["Bonn", "Jena", "Ulm"], rows)
    minutes, prepaid = rng.gamma(2.0, 50.0, rows), rng.choice([True, False], rows)
    pull = (income - 40_000) / 8_000 + 2.0 * (city == "Ulm") - (minutes - 100) / 50 + 1.5 * prepaid
    churn = np.where(pull > 1.2, "stays", "leaves")
    customer = rng.permutation(rows) + 1000 * seed
    bank = pd.DataFrame({"customer": customer, "income": income, "city": city, "constant": 7.0})
    telco = pd.DataFrame({"customer": customer, "minutes": minutes, "prepaid": prepaid, "churn": churn})
    return bank, telco


def joined(rows: int = 500, **options: Any) -> Federation:
    bank, telco = tables(rows, 1)
    options = {"labels": "churn", "id": "customer", "task": "binary", **options}
    return Federation.from_tables({"bank": bank, "telco": telco.sample(frac=1, random_state=0)}, **options)


def train(federation: Federation, method: str = "vimadmm", **options: Any) -> Run:
    own = {"local_steps": 5} if method == "vimadmm" else {}
    return fit(federation, make_method(method, own), model=TINY, **{"rounds": 12, "seed": 3, **options})


@pytest.fixture(scope="module")
def run() -> Run:
    return train(joined(), rounds=40)


def by_hand(run: Run, federation: Federation, bank: pd.DataFrame, telco: pd.DataFrame) -> torch.Tensor:
    """Logits of rows whose columns were encoded here, in NumPy, with statistics of the training rows."""
    old, numbers = {"bank": tables(500, 1)[0], "telco": tables(500, 1)[1]}, {}
    place = pd.Series(range(500), index=old["bank"]["customer"].astype(str))
    train_rows = place[[federation.ids[i] for i in federation.split.train.tolist()]].to_numpy()
    for party, table in (("bank", bank), ("telco", telco)):
        columns = []
        for name in table.columns.drop(["customer", "churn"], errors="ignore"):
            before, now = old[party][name].to_numpy()[train_rows], table[name].to_numpy()
            if name == "constant":
                columns.append(np.zeros(len(now)))
            elif before.dtype == float:
                columns.append((now - before.mean()) / before.std())
        for name in ("city", "prepaid"):
            if name in table.columns:
                columns += [(table[name] == value).to_numpy(float) for value in np.unique(old[party][name])]
        numbers[party] = torch.from_numpy(np.stack(columns, axis=1)).float()
    return run.logits(Rows(numbers, plans=run.plans))


def test_600_new_rows_in_any_order_before_and_after_saving(run: Run, tmp_path: Path) -> None:
    bank, telco = tables(NEW, 2)
    churn = telco.pop("churn").to_numpy()
    assert run.classes == ("stays", "leaves")
    truth = torch.sigmoid(by_hand(run, joined(), bank, telco)).double().numpy()
    chances = run.predict_proba({"bank": bank, "telco": telco})
    assert chances.shape == (NEW, 2)
    assert list(chances.columns) == ["stays", "leaves"]
    assert chances.index.tolist() == bank["customer"].tolist()
    np.testing.assert_allclose(chances["leaves"], truth[:, 0], atol=1e-5)
    np.testing.assert_allclose(chances["stays"], 1 - truth[:, 0], atol=1e-5)

    loaded = Run.load(run.save(tmp_path / "run"))
    shuffled = {
        "bank": bank[["constant", "city", "customer", "income"]].sample(frac=1, random_state=5),
        "telco": telco[["prepaid", "customer", "minutes"]].sample(frac=1, random_state=6),
    }
    again = loaded.predict_proba(shuffled)
    assert again.index.tolist() == shuffled["bank"]["customer"].tolist()
    pd.testing.assert_frame_equal(again.loc[chances.index], chances, rtol=0, atol=1e-6)

    told = loaded.predict(shuffled)
    assert set(told) == {"leaves", "stays"}
    assert (told == np.where(again["stays"] > 0.5, "stays", "leaves")).all()
    assert (told.loc[bank["customer"]].to_numpy() == churn).mean() > 0.85  # 0.51 when raw numbers went in unscaled

    for method in (loaded.predict, loaded.predict_proba, loaded.logits):
        with pytest.raises(DataError, match="party 'telco': the new table lacks the column 'minutes'"):
            method({**shuffled, "telco": telco.drop(columns="minutes")})


def test_raw_rows_of_the_training_give_what_the_training_saw(run: Run) -> None:
    federation, (bank, telco) = joined(), tables(500, 1)
    rows = federation.split.test
    seen = run.logits(federation.select(rows))
    ids = [int(federation.ids[i]) for i in rows.tolist()]
    new = {"bank": bank.set_index("customer").loc[ids], "telco": telco.set_index("customer").loc[ids[::-1]]}
    assert torch.equal(run.logits(new), seen)
    assert (run.predict(federation.select(rows)) == run.predict(new).to_numpy()).all()


def test_arrays_and_nameless_frames_are_refused(run: Run) -> None:
    bank, telco = tables(5, 2)
    encoded = joined()
    for given in (
        {"bank": bank.to_numpy(), "telco": telco},
        {p.name: p.columns[:5] for p in encoded.parties},
        {p.name: p.columns[:5].numpy() for p in encoded.parties},
    ):
        with pytest.raises(
            DataError, match=r"party 'bank': got .* without column names, which could be raw or encoded"
        ):
            run.predict(given)
    nameless = pd.DataFrame(encoded.parties[0].columns[:5].numpy())
    with pytest.raises(DataError, match="lacks the column 'income'"):
        run.predict({"bank": nameless, "telco": telco.drop(columns="customer")})


def test_other_ids_in_one_table_are_refused_by_name(run: Run) -> None:
    bank, telco = tables(NEW, 2)
    with pytest.raises(RowsDisagree, match=r"'bank' and 'telco' differ \(1 only in 'bank', .*; 1 only in 'telco'"):
        run.predict({"bank": bank.replace({"customer": {2001: 99}}), "telco": telco})


@pytest.mark.parametrize("name", ["centralized", "local_only", "vimadmm_j", "split_learning", "fedmvt"])
def test_other_methods_score_raw_rows_too(name: str) -> None:
    bank, telco = tables(60, 2)
    run = train(joined(120), name, rounds=3)
    told = run.predict_proba({"telco": telco, "bank": bank.sample(frac=1, random_state=1)})
    assert told.index.tolist() == telco["customer"].tolist()
    position = {"bank": bank.drop(columns="customer"), "telco": telco.drop(columns="customer")}
    np.testing.assert_allclose(told.to_numpy(), run.predict_proba(position).to_numpy(), atol=1e-6)


def test_regression_predicts_numbers_and_no_probabilities() -> None:
    bank, telco = tables(200, 1)
    telco["churn"] = telco["minutes"] * 3 + 1000
    split = RowSplit.random(200)
    federation = Federation.from_tables({"bank": bank, "telco": telco}, labels="churn", task="regression", split=split)
    run = train(federation, rounds=20)
    told = run.predict({"bank": bank, "telco": telco.drop(columns="churn")})
    assert told.shape == (200,)
    assert np.corrcoef(told, telco["churn"])[0, 1] > 0.8
    assert run.classes == ()
    with pytest.raises(ConfigError, match="a regression predicts numbers, not probabilities"):
        run.predict_proba({"bank": bank, "telco": telco})


@pytest.mark.parametrize(("task", "classes"), [("multiclass", 2), ("binary", 2), ("multilabel", 3)])
def test_shapes_of_answers_for_arrays(task: str, classes: int) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 3))
    y: Any = (x[:, 0] > 0).astype(int) if task != "multilabel" else (x > 0).astype(int)
    run = train(Federation.from_arrays({"a": x[:, :2], "b": x[:, 2:]}, y, task=task), rounds=2)
    new = {"a": x[:7, :2], "b": x[:7, 2:]}
    told, chances = run.predict(new), run.predict_proba(new)
    assert isinstance(told, np.ndarray) and isinstance(chances, np.ndarray)
    assert run.classes == tuple(range(classes))
    assert chances.shape == (7, classes)
    if task == "multilabel":
        assert (told == (chances > 0.5)).all()
    else:
        np.testing.assert_allclose(chances.sum(axis=1), 1, atol=1e-6)
        assert (told == chances.argmax(axis=1)).all()


def test_a_run_of_arrays_refuses_frames_whose_columns_it_cannot_know() -> None:
    x = np.random.default_rng(0).normal(size=(40, 2))
    run = train(Federation.from_arrays({"a": x}, (x[:, 0] > 0).astype(int)), rounds=2)
    with pytest.raises(DataError, match="party 'a': got a data frame, and this run knows its columns by position only"):
        run.predict({"a": pd.DataFrame(x, columns=["u", "v"])})
    with pytest.raises(DataError, match="columns to predict must be given by party name"):
        run.predict([x])
    with pytest.raises(ConfigError, match="id names a column of raw data frames"):
        run.predict({"a": x}, id="customer")


# -- the folder -----------------------------------------------------------------------------------


def test_a_resumed_run_has_its_preprocessing(tmp_path: Path) -> None:
    def stop(progress: Any) -> None:
        if progress.round == 5:
            raise KeyboardInterrupt

    federation = joined(120)
    whole = train(federation)
    with pytest.raises(KeyboardInterrupt):
        train(federation, out=tmp_path / "run", watch=stop, checkpoint_every=2)
    resume(tmp_path / "run", joined(120))
    bank, telco = tables(30, 2)
    loaded = Run.load(tmp_path / "run")
    assert torch.equal(loaded.logits({"bank": bank, "telco": telco}), whole.logits({"bank": bank, "telco": telco}))


def forget_columns(folder: Path, config: Mapping[str, Any] | None = None) -> None:
    """As folders were before preprocessing was stored."""
    record = read_record(folder)
    del record["columns"]
    record["config"] = config
    (folder / "run.json").write_text(json.dumps(record))
    (folder / "columns.skops").unlink()


def test_folders_of_before_still_load_and_say_what_they_cannot_do(run: Run, tmp_path: Path) -> None:
    bank, telco = tables(5, 2)
    federation = joined()
    seen = run.logits(federation.select(federation.split.test))
    run.save(tmp_path / "run")
    forget_columns(tmp_path / "run", {"data": {"tables": {"bank": "bank.csv", "telco": "telco.csv"}}})
    old = Run.load(tmp_path / "run")
    with pytest.raises(RunError, match=r"raw tables cannot be scored with this run.*did not store its preprocessing"):
        old.predict({"bank": bank, "telco": telco})
    assert torch.equal(old.logits(federation.select(federation.split.test)), seen)
    run.save(tmp_path / "python")
    forget_columns(tmp_path / "python")
    with pytest.raises(DataError, match="saved without its preprocessing"):
        Run.load(tmp_path / "python").predict({"bank": bank, "telco": telco})


def test_a_folder_without_its_preprocessing_is_not_complete(run: Run, tmp_path: Path) -> None:
    run.save(tmp_path)
    content = (tmp_path / "columns.skops").read_bytes()
    (tmp_path / "columns.skops").unlink()
    with pytest.raises(RunError, match=r"lacks columns\.skops"):
        Run.load(tmp_path)
    (tmp_path / "columns.skops").write_bytes(content[:-1])
    with pytest.raises(RunError, match=r"columns\.skops does not belong to its run\.json"):
        Run.load(tmp_path)


def test_strange_types_in_a_folder_are_not_loaded(run: Run, tmp_path: Path) -> None:
    run.save(tmp_path)
    strange = skops.io.dumps({"bank": np.random.default_rng(0)})
    (tmp_path / "columns.skops").write_bytes(strange)
    record = read_record(tmp_path)
    record["columns"] = hashlib.sha256(strange).hexdigest()
    (tmp_path / "run.json").write_text(json.dumps(record))
    with pytest.raises(RunError, match=r"columns\.skops cannot be used: it holds a numpy.*no preprocessing of ours"):
        Run.load(tmp_path)


# -- many rows ------------------------------------------------------------------------------------


def three(x: np.ndarray) -> dict[str, np.ndarray]:
    return {"a": x[:, :1], "b": x[:, 1:2], "c": x[:, 2:]}


@pytest.mark.parametrize("summed", [False, True])
def test_150_000_rows_are_predicted_in_messages_that_fit(summed: bool) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 3)).astype(np.float32)
    federation = Federation.from_arrays(three(x), (x.sum(axis=1) > 0).astype(int))
    privacy = {"secure_sum": {"use": True}} if summed else {}
    wide = {"hidden": 4, "embedding": 60}
    run = fit(federation, make_method("vimadmm_j" if summed else "vimadmm", {}), rounds=2, model=wide, privacy=privacy)
    new = rng.normal(size=(150_000, 3)).astype(np.float32)
    before = len(run.ledger)
    logits = run.logits(three(new))
    releases = list(run.ledger)[before:]
    assert len(logits) == 150_000
    assert sum(release.rows for release in releases if release.owner == "a") == 150_000
    assert len({(release.owner, release.number) for release in releases}) == len(releases) >= 9
    some = torch.tensor([0, 70_000, 149_999])
    few = run.logits(three(new[some]))
    torch.testing.assert_close(logits[some], few, rtol=0, atol=1e-4 if summed else 1e-5)


@pytest.mark.parametrize("summed", [False, True])
def test_pieces_follow_the_limit_in_bytes(summed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "EVALUATION_BYTES", 400)  # two logits of 4 bytes: 50 rows; of 8 bytes: 25
    x = np.random.default_rng(0).normal(size=(100, 3))
    federation = Federation.from_arrays(three(x), (x[:, 0] > 0).astype(int), task="multiclass")
    privacy = {"secure_sum": {"use": True}} if summed else {}
    run = fit(federation, make_method("vimadmm_j", {}), rounds=1, evaluate_every=0, model=TINY, privacy=privacy)
    before = len(run.ledger)
    run.logits(three(x))
    assert {release.rows for release in list(run.ledger)[before:]} == {25 if summed else 50}


def test_the_plan_of_a_party_is_only_its_own(run: Run) -> None:
    assert all(isinstance(plan, ColumnPlan) for plan in run.plans.values())
    assert run.plans["bank"].label is None
    assert run.plans["telco"].label == "churn"
    assert set(joined(120).only(["bank"]).plans) == {"bank"}


def test_raw_tables_of_rows_that_trained_with_noise_are_refused() -> None:
    """The stored preprocessing gives the numbers of the training again, so they are known as training rows."""
    federation = joined()
    run = train(federation, rounds=2, privacy={"mechanism": "gaussian", "clip": 1.0, "sigma": 3.0})
    bank, telco = tables(500, 1)
    with pytest.raises(Refused, match=f"{len(federation.split.train)} of these rows trained this run"):
        run.predict({"bank": bank, "telco": telco.drop(columns="churn")})
    new_bank, new_telco = tables(50, 2)
    assert len(run.predict({"bank": new_bank, "telco": new_telco.drop(columns="churn")})) == 50


def test_rows_of_a_federation_with_statistics_of_its_own_are_refused(run: Run) -> None:
    bank, telco = tables(NEW, 2)
    other = Federation.from_tables({"bank": bank, "telco": telco}, labels="churn", id="customer")
    with pytest.raises(DataError, match="'bank': these rows were not encoded as in the training of this run"):
        run.predict_proba(other.select(torch.arange(NEW)))
    arrays = Federation.from_arrays({p.name: p.columns for p in other.parties}, other.labels, task="binary")
    with pytest.raises(DataError, match="pass raw data frames"):
        run.predict(arrays.select(torch.arange(NEW)))
    again = joined()  # the same tables: the same statistics
    assert len(run.predict(again.select(again.split.test))) == len(again.split.test)


def test_rows_of_a_pooled_run_say_how_to_pool_them() -> None:
    federation = joined()
    run = train(federation, "centralized", rounds=2)
    with pytest.raises(DataError, match=r"federation\.pooled\(\)\.select\(rows\)"):
        run.predict(federation.select(federation.split.test))
    assert len(run.predict(federation.pooled().select(federation.split.test))) == len(federation.split.test)


def test_a_loaded_run_refuses_the_training_rows_of_a_federation(tmp_path: Path) -> None:
    federation = joined()
    private = {"mechanism": "gaussian", "clip": 1.0, "epsilon": 1.0}
    train(federation, rounds=2, privacy=private, out=tmp_path / "run")
    run = Run.load(tmp_path / "run")
    before = len(run.ledger)
    with pytest.raises(Refused, match=f"{len(federation.split.train)} of these rows trained"):
        run.predict(federation.select(federation.split.train))
    assert len(run.ledger) == before
    assert len(run.predict(federation.select(federation.split.test))) == len(federation.split.test)


def test_a_loaded_run_refuses_the_raw_tables_of_its_training(tmp_path: Path) -> None:
    bank, telco = tables(500, 1)
    federation = joined()
    private = {"mechanism": "gaussian", "clip": 1.0, "epsilon": 1.0}
    train(federation, rounds=2, privacy=private, out=tmp_path / "run")
    run = Run.load(tmp_path / "run")
    before = (tmp_path / "run" / "ledger.jsonl").read_bytes()
    trained = [federation.ids[i] for i in federation.split.train.tolist()]
    with pytest.raises(Refused, match=f"{len(trained)} of these rows trained this run"):
        run.predict({"bank": bank, "telco": telco})
    other = telco.assign(customer=telco["customer"] + 10_000, minutes=telco["minutes"] + 1)
    again = {"bank": bank.assign(customer=bank["customer"] + 10_000), "telco": other}  # other ids, and a number changed
    with pytest.raises(Refused, match=r"recognised by bank; first: row \d+\)"):
        run.predict(again)
    assert (tmp_path / "run" / "ledger.jsonl").read_bytes() == before
    new = dict(zip(("bank", "telco"), tables(NEW, 2), strict=True))
    assert len(run.predict(new)) == NEW
    left = ~bank["customer"].astype(str).isin(trained)
    assert len(run.predict({"bank": bank[left], "telco": telco[left]})) == 500 - len(trained)


@pytest.mark.parametrize(
    ("pair", "task"),
    [
        *(((0.5, 1.5), "binary"), ((-1, 1), "binary"), ((False, True), "binary"), (("stay", "go"), "binary")),
        *(((1, 2), "binary"), ((1, 2), "multiclass"), ((1.0, 2.0), "multiclass"), ((False, True), "multiclass")),
    ],
)
def test_predictions_equal_labels_of_any_kind(pair: tuple[Any, Any], task: str, tmp_path: Path) -> None:
    bank, telco = tables(300, 1)
    truth = np.where(telco["churn"] == "stays", *pair)
    given = {"bank": bank, "telco": telco.drop(columns="churn")}
    federation = Federation.from_tables(given, labels=truth, id="customer", task=task)
    run = train(federation, out=tmp_path / "run")
    for one in (run, Run.load(tmp_path / "run")):
        assert set(one.classes) == set(pair)
        assert (one.predict(given).to_numpy() == truth).mean() > 0.7
        assert list(one.predict_proba(given).columns) == list(one.classes)
