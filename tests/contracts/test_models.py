"""A model predicts, is scored, saved, loaded and taken apart; parts predict what the whole did."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import mean_absolute_error, roc_auc_score
from torch import Tensor

import colonnade as cn
from colonnade.engines import queries
from colonnade.errors import ConfigError, DataError, Refused, RowsDisagree, RunError, UnknownTrainingRows
from colonnade.federation import Federation
from colonnade.fit import fit
from colonnade.methods.base import Uploads
from colonnade.methods.without import outputs
from colonnade.model import Model
from colonnade.models.schema import Schema
from colonnade.part import PART_LEDGER, Part, open_parts
from colonnade.privacy.ledger import Ledger
from colonnade.privacy.mechanism import Protection
from colonnade.run import Run
from colonnade.saved import COLUMNS, LEDGER, MODEL
from colonnade.tasks import TASKS
from colonnade.wire.messages import Purpose
from tests.contracts.registry import NAMES, fitting, make
from tests.contracts.test_scoring_tables import joined, tables, train
from tests.federations import normed_encoder, small

FORMAT_1 = Path(__file__).parents[1] / "golden" / "format1"
NOISE = {"mechanism": "gaussian", "clip": 1.0, "sigma": 4.0}
FAST: dict[str, Any] = {"rounds": 3, "model": {"hidden": 6, "embedding": 4}}


@pytest.fixture(scope="module")
def run() -> Run:
    return train(joined(), rounds=40)


@pytest.fixture(scope="module")
def new() -> dict[str, pd.DataFrame]:
    bank, telco = tables(300, 2)
    return {"bank": bank, "telco": telco.sample(frac=1, random_state=3)}


def put_together(model: Model, uploaded: Mapping[str, Mapping[str, Tensor]]) -> Tensor:
    """What the coordinator makes of the parts' uploads."""
    schema: Schema = open_parts(model.design, list(model.parts.values()), Ledger(), Protection()).schema
    groups = tuple(
        {name: torch.stack([uploaded[p][name] for p in group.parties]) for name in uploaded[group.parties[0]]}
        for group in schema.groups
    )
    with torch.no_grad():
        return outputs(model.method, model.state, Uploads(groups))


# -- the model of a run -------------------------------------------------------------------------


def test_a_run_is_its_model_and_a_record(run: Run, new: dict[str, pd.DataFrame]) -> None:
    model = run.model
    assert isinstance(model, cn.Model) and model.task == run.task and model.classes == ("stays", "leaves")
    pd.testing.assert_frame_equal(model.predict_proba(new), run.predict_proba(new))
    assert model.ledger is run.ledger and run.ledger.counts()["bank", Purpose.PREDICT] >= 2


def test_a_saved_model_predicts_the_same_without_its_run(
    run: Run, new: dict[str, pd.DataFrame], tmp_path: Path
) -> None:
    alone = Model.load(run.model.save(tmp_path / "model"))
    run.model.path = None
    assert not (tmp_path / "model" / "run.json").exists()
    pd.testing.assert_frame_equal(alone.predict_proba(new), run.predict_proba(new))
    shuffled = {p: t.sample(frac=1, random_state=1).iloc[:, ::-1] for p, t in new.items()}
    told = alone.predict_proba(shuffled)
    assert told.index.tolist() == shuffled["bank"]["customer"].tolist()
    pd.testing.assert_frame_equal(told.sort_index(), run.predict_proba(new).sort_index(), atol=1e-6, rtol=0)
    lines = (tmp_path / "model" / LEDGER).read_text().splitlines()
    assert len(lines) == len(alone.ledger)  # what it predicted since stands in its own ledger
    assert alone.fingerprint() == run.fingerprint() and "Model of run" in repr(alone)


@pytest.mark.parametrize("name", NAMES)
def test_every_method_gives_a_model_that_can_be_saved_and_loaded(name: str, tmp_path: Path) -> None:
    federation, method = fitting(name, small()), make(name, local_steps=2)
    run = fit(federation, method, encoders=normed_encoder, **FAST)
    run.releases_training_rows = True
    rows = (federation.pooled() if method.pools else federation).select(torch.arange(20))
    logits = run.logits(rows)
    loaded = Model.load(run.model.save(tmp_path / "model"), encoders=normed_encoder)
    loaded.releases_training_rows = True
    assert torch.equal(loaded.logits(rows), logits)


@pytest.mark.parametrize("folder", sorted(p.name for p in FORMAT_1.iterdir() if p.is_dir()))
def test_a_run_folder_of_version_01_is_a_model(folder: str, tmp_path: Path) -> None:
    model = Model.load(shutil.copytree(FORMAT_1 / folder, tmp_path / "run"))
    then = json.loads((tmp_path / "run" / "expected.json").read_text())
    columns = {name: np.array(values, dtype=np.float32) for name, values in then["columns"].items()}
    found, wanted = model.logits(columns), torch.tensor(then["logits"])  # numbers are float64 by now
    torch.testing.assert_close(found.float(), wanted, rtol=1e-5, atol=1e-6)


def test_a_run_folder_is_a_model(run: Run, new: dict[str, pd.DataFrame], tmp_path: Path) -> None:
    run.save(tmp_path / "run")
    run.model.path = None
    pd.testing.assert_frame_equal(Model.load(tmp_path / "run").predict_proba(new), run.predict_proba(new))


def test_a_copy_of_a_model_does_not_take_the_ledger_of_its_run_with_it(tmp_path: Path) -> None:
    federation = small()
    run = fit(federation, "vimadmm", out=tmp_path / "run", **FAST)
    run.model.save(tmp_path / "copy")
    before = {name: len((tmp_path / name / LEDGER).read_text().splitlines()) for name in ("run", "copy")}
    run.predict(federation.select(federation.split.test))
    lines = {name: len((tmp_path / name / LEDGER).read_text().splitlines()) for name in before}
    assert run.path == tmp_path / "run"
    assert lines == {"run": before["run"] + len(federation.parties), "copy": before["copy"]}


# -- decisions and scores -----------------------------------------------------------------------


def test_a_threshold_decides_yes_or_no(run: Run, new: dict[str, pd.DataFrame]) -> None:
    chances = run.model.predict_proba(new)["leaves"]
    for threshold in (0.1, 0.3, 0.9):
        told = run.model.predict(new, threshold=threshold)
        assert ((told == "leaves") == (chances > threshold)).all()
    assert (run.predict(new, threshold=0.5) == run.predict(new)).all()
    before = len(run.ledger)
    for wrong in (0, 1, 1.5, "0.3", True):
        with pytest.raises(ConfigError, match="between 0 and 1"):
            run.predict(new, threshold=wrong)  # type: ignore[arg-type]
    assert len(run.ledger) == before  # refused before anything left


@pytest.mark.parametrize("task", sorted(set(TASKS) - {"binary"}))
def test_a_threshold_is_for_yes_or_no_only(task: str) -> None:
    federation = small(task=task)
    run = fit(federation, "vimadmm", **FAST)
    before = len(run.ledger)
    with pytest.raises(ConfigError, match="is for a yes/no task"):
        run.model.predict(federation.select([0, 1]), threshold=0.3)
    assert len(run.ledger) == before


def test_scores_are_those_of_scikit_learn_whatever_way_labels_are_given(run: Run, new: dict[str, pd.DataFrame]) -> None:
    chances = run.model.predict_proba(new)["leaves"]
    by_id = new["telco"].set_index("customer")["churn"]
    truth = by_id.loc[chances.index]
    wanted = roc_auc_score(truth == "leaves", chances)
    without = {**new, "telco": new["telco"].drop(columns="churn")}
    for given, labels in ((new, "churn"), (without, by_id), (without, truth), (without, truth.to_numpy())):
        assert run.model.score(given, labels, ["auc"]) == {"auc": pytest.approx(wanted, abs=1e-6)}
    everything = run.model.score(without, truth)
    assert list(everything) == list(run.metrics) and everything["auc"] == pytest.approx(wanted, abs=1e-6)


def test_labels_that_may_belong_to_other_rows_are_refused(run: Run, new: dict[str, pd.DataFrame]) -> None:
    before = len(run.ledger)
    with pytest.raises(DataError, match="not clear which label belongs to which row"):
        run.model.score(new, new["telco"]["churn"])
    with pytest.raises(DataError, match="no table has a column 'left'"):
        run.model.score(new, "left")
    with pytest.raises(RowsDisagree, match="299 labels, groups or weights and 300 rows"):
        run.model.score(new, ["stays"] * 299)
    with pytest.raises(DataError, match="'maybe' is none of the classes"):
        run.model.score(new, ["maybe"] * 300)
    with pytest.raises(ConfigError, match="is not for a yes/no task"):
        run.model.score(new, "churn", ["rmse"])
    with pytest.raises(ConfigError, match="needed a list of names"):
        run.model.score(new, "churn", "auc")
    assert len(run.ledger) == before


@pytest.mark.parametrize("task", TASKS)
def test_every_task_is_scored_as_its_test_rows_were(task: str) -> None:
    federation = small(task=task)
    run, test = fit(federation, "vimadmm", **FAST), federation.split.test
    names = np.array(federation.task.classes)
    single = bool(federation.task.classes) and not federation.task.several()
    labels = names[federation.labels[test].reshape(-1).long()] if single else federation.labels[test].numpy()
    scores = run.model.score(federation.select(test), labels)
    assert scores == pytest.approx({name: found["test"] for name, found in run.metrics.items()}, abs=1e-6)
    if task == "regression":
        told = run.model.predict(federation.select(test))
        assert scores["mae"] == pytest.approx(mean_absolute_error(labels, told.reshape(labels.shape)), abs=1e-6)


def test_rows_of_one_class_are_scored_where_that_is_defined() -> None:
    federation = small(task="binary")
    run = fit(federation, "vimadmm", **FAST)
    scores = run.model.score(federation.select(range(5)), [1] * 5, ["accuracy", "auc"])
    assert np.isnan(scores["auc"]) and 0 <= scores["accuracy"] <= 1
    counts = small(task="count")
    never = fit(counts, "vimadmm", **FAST).model.score(counts.select(range(5)), [0] * 5, ["mae"])
    assert never["mae"] > 0
    with pytest.raises(DataError, match="needed 1 label columns"):
        fit(counts, "vimadmm", **FAST).model.score(counts.select(range(5)), np.ones((5, 2)))


# -- parts --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in NAMES if not make(name).pools])
def test_the_parts_together_say_what_the_model_says(name: str, tmp_path: Path) -> None:
    federation, method = (
        fitting(name, small(widths=(5, 4, 5) if name != "fedmvt" else (5, 4))),
        make(name, local_steps=2),
    )
    run = fit(federation, method, **FAST)
    run.releases_training_rows = True
    rows, uploaded = torch.arange(20), {}
    for party in federation.parties:
        part = run.model.part(party.name)
        loaded = Part.load(part.save(tmp_path / party.name))
        loaded.releases_training_rows = True
        uploaded[party.name] = loaded.predict(party.columns[rows])
        assert loaded.ledger.counts() == {(party.name, Purpose.PREDICT): 1}
        assert len((tmp_path / party.name / PART_LEDGER).read_text().splitlines()) == 1
    logits = run.logits({party.name: party.columns[rows] for party in federation.parties})
    torch.testing.assert_close(put_together(run.model, uploaded), logits, rtol=1e-6, atol=1e-6)


def test_a_part_reads_its_own_raw_table_and_holds_nothing_of_the_others(
    run: Run, new: dict[str, pd.DataFrame], tmp_path: Path
) -> None:
    part = Part.load(run.model.part("bank").save(tmp_path / "bank"))
    assert list(part.plans) == ["bank"] and part.design.task.names == ()
    content = b"".join(file.read_bytes() for file in (tmp_path / "bank").iterdir())
    for secret in (b"minutes", b"prepaid", b"churn", b"stays", b"coordinator/"):
        assert secret not in content
    telco = run.model.part("telco")
    same = new["telco"].set_index("customer").loc[new["bank"]["customer"]].reset_index()
    uploaded = {"bank": part.predict(new["bank"].iloc[:, ::-1]), "telco": telco.predict(same)}
    torch.testing.assert_close(put_together(run.model, uploaded), run.model.logits(new), rtol=1e-6, atol=1e-6)
    with pytest.raises(DataError, match="lacks the column 'income'"):
        part.predict(new["bank"].drop(columns="income"))
    with pytest.raises(DataError, match="without column names"):
        part.predict(new["bank"].to_numpy())
    with pytest.raises(ConfigError, match="no party called 'shop'"):
        run.model.part("shop")


def test_the_part_of_a_pooled_model_is_predicted_with_the_model() -> None:
    run = train(joined(), "centralized")
    with pytest.raises(DataError, match="columns of bank, telco"):
        run.model.part("everyone").predict(torch.zeros(3, 8))


def test_a_part_answers_in_messages_that_fit(
    run: Run, new: dict[str, pd.DataFrame], monkeypatch: pytest.MonkeyPatch
) -> None:
    part, again = run.model.part("bank"), run.model.part("bank")
    whole = part.predict(new["bank"])
    monkeypatch.setattr(queries, "EVALUATION_CHUNK", 70)
    pieces = again.predict(new["bank"])
    assert [release.rows for release in again.ledger] == [70, 70, 70, 70, 20]
    for name, values in whole.items():
        torch.testing.assert_close(pieces[name], values)


def test_a_part_refuses_its_training_rows_after_noise_and_a_secure_sum(tmp_path: Path) -> None:
    federation = small()
    run = fit(federation, "vimadmm", privacy=NOISE, **FAST)
    mine = federation.parties[0]
    part = Part.load(run.model.part(mine.name).save(tmp_path / "part"))
    with pytest.raises(Refused, match="trained this run"):
        part.predict(mine.columns[federation.split.train[:3]])
    assert len(part.ledger) == 0
    part.predict(mine.columns[federation.split.test])
    part.trained = None
    with pytest.warns(UnknownTrainingRows):
        part.predict(mine.columns[federation.split.test])
    summed = fit(federation, "vimadmm_j", privacy={"secure_sum": {"use": True}}, **FAST)
    with pytest.raises(ConfigError, match="opens only together"):
        summed.model.part(mine.name).predict(mine.columns[:3])


def test_a_part_holds_no_settings_of_the_others(tmp_path: Path) -> None:
    federation = small()
    one, two = federation.parties[:2]
    run = fit(federation, "vimadmm", rounds=3, model={"hidden": 6, "embedding": 4, one.name: {"hidden": 29}})
    for party, there in ((one, True), (two, False)):
        part = Part.load(run.model.part(party.name).save(tmp_path / party.name))
        assert ('"hidden": 29' in (tmp_path / party.name / "party.json").read_text()) == there
        whole = run.model.part(party.name).predict(party.columns[:5])
        for name, values in part.predict(party.columns[:5]).items():
            assert torch.equal(values, whole[name])


def test_a_part_with_a_network_of_its_own_needs_it_again(tmp_path: Path) -> None:
    federation = small()
    mine = federation.parties[0]
    run = fit(federation, "vimadmm", encoders=normed_encoder, **FAST)
    run.model.part(mine.name).save(tmp_path / "part")
    with pytest.raises(RunError, match="pass it again as encoder="):
        Part.load(tmp_path / "part")
    part = Part.load(tmp_path / "part", encoder=normed_encoder(mine.name, tuple(mine.columns.shape[1:])))
    whole = run.model.part(mine.name).predict(mine.columns[:5])
    for name, values in part.predict(mine.columns[:5]).items():
        torch.testing.assert_close(values, whole[name])


# -- folders that are damaged or of something else ----------------------------------------------


def damaged(folder: Path, name: str, change: Any) -> None:
    about = json.loads((folder / name).read_text())
    change(about)
    (folder / name).write_text(json.dumps(about))


@pytest.mark.parametrize("file", [MODEL, LEDGER, COLUMNS, "model.json"])
@pytest.mark.parametrize("how", ["missing", "torn", "other"])
def test_a_damaged_model_is_refused_in_one_sentence(file: str, how: str, run: Run, tmp_path: Path) -> None:
    path = run.model.save(tmp_path / "model") / file
    run.model.path = None
    if how == "missing":
        path.unlink()
    elif how == "torn":
        path.write_bytes(path.read_bytes()[: len(path.read_bytes()) // 2 + 1])
    else:
        path.write_bytes(b'{"format": 1}\n' if file.endswith(("json", "jsonl")) else path.read_bytes()[::-1])
    with pytest.raises(RunError) as caught:
        Model.load(tmp_path / "model")
    assert "\n" not in str(caught.value)


def test_numbers_of_another_model_are_refused(run: Run, tmp_path: Path) -> None:
    run.model.save(tmp_path / "model")
    run.model.path = None
    other = fit(joined(), "vimadmm", **{**FAST, "model": {"hidden": 8, "embedding": 4}})
    shutil.copy(other.model.save(tmp_path / "other") / MODEL, tmp_path / "model" / MODEL)
    with pytest.raises(RunError, match=r"does not belong to its model\.json"):
        Model.load(tmp_path / "model")
    run.model.part("bank").save(tmp_path / "bank")
    other.model.part("bank").save(tmp_path / "other bank")
    shutil.copy(tmp_path / "other bank" / MODEL, tmp_path / "bank" / MODEL)
    with pytest.raises(RunError, match=r"does not belong to its party\.json"):
        Part.load(tmp_path / "bank")


def test_folders_of_something_else_are_refused(run: Run, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="is not a run folder"):
        Model.load(tmp_path / "nothing")
    with pytest.raises(RunError, match=r"has no run\.json"):
        Model.load(tmp_path)
    with pytest.raises(RunError, match=r"has no party\.json"):
        Part.load(tmp_path)
    part = run.model.part("bank").save(tmp_path / "part")
    with pytest.raises(RunError, match=r"is read with Part\.load"):
        Model.load(part)
    with pytest.raises(RunError, match="choose another folder"):
        run.model.save(part)
    damaged(part, "party.json", lambda about: about["part"].pop("shape"))
    with pytest.raises(RunError, match="is damaged"):
        Part.load(part)
    damaged(part, "party.json", lambda about: about["part"].update(format=99))
    with pytest.raises(RunError, match="format 99"):
        Part.load(part)
    damaged(part, "party.json", lambda about: (about.pop("part"), about.update(proposal={})))
    with pytest.raises(RunError, match="start the party once more"):
        Part.load(part)


def test_a_model_whose_parts_are_elsewhere_says_so(tmp_path: Path) -> None:
    """A network with its first weights would answer anything."""
    federation: Federation = small()
    run = fit(federation, "vimadmm", **FAST)
    for part in run.model.parts.values():
        part.tensors = {}
    run.save(tmp_path / "run")
    for model in (run.model, Model.load(tmp_path / "run")):
        with pytest.raises(RunError, match="it stays with that organisation"):
            model.predict(federation.select([0, 1]))
