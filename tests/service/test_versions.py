"""Versions of a model: which one is in use, how that changes, when the next is due, and how two are compared."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from colonnade.cli.models import line_of_version
from colonnade.deploy.sections import Retraining
from colonnade.errors import ConfigError, Refused, RunError
from colonnade.predict import Prediction
from colonnade.service import comparing, label_holder, versions
from colonnade.service.comparing import Trained, compare
from colonnade.service.label_holder import LabelHolderDaemon, Training, _seconds
from colonnade.service.versions import change_models, go_back, list_versions, promote, read_models, used_folder
from colonnade.withdrawn import mark


def put(folder: Path, version: int, score: float = 0.9) -> None:
    """A version that was trained to the end."""
    place = versions.folder_of(folder, version)
    place.mkdir(parents=True)
    result = {"validation_score": score, "test_score": None, "validation_metric": "auc"}
    (place / "run.json").write_text(json.dumps({"format": 1, "result": result}))


def test_promote_and_go_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "read_record", lambda folder: json.loads((folder / "run.json").read_text()))
    for version in (1, 2, 3):
        put(tmp_path, version)
    with pytest.raises(RunError, match="no model in use yet"):
        change_models(tmp_path, lambda models: models)
        used_folder(tmp_path)
    for version in (1, 2, 3):
        promote(tmp_path, version)
    assert used_folder(tmp_path) == tmp_path / "v3"
    assert go_back(tmp_path).used == 2
    assert go_back(tmp_path).used == 1
    with pytest.raises(ConfigError, match="no other version was in use"):
        go_back(tmp_path)
    promote(tmp_path, 3)
    (tmp_path / "v1" / "run.json").unlink()  # lost since: one does not go back to it
    with pytest.raises(ConfigError, match="no other version was in use"):
        go_back(tmp_path)
    with pytest.raises(ConfigError, match=r"no finished version 7 in .*; finished: 2, 3"):
        promote(tmp_path, 7)
    with pytest.raises(ConfigError, match="in use already"):
        promote(tmp_path, 3)
    states = {v.version: v.state for v in list_versions(tmp_path)}
    assert states == {1: "not finished", 2: "finished", 3: "in use"}
    mark(tmp_path / "v2", [4, 9])
    marked = list_versions(tmp_path)[1]
    assert marked.withdrawn == 2 and line_of_version(marked).endswith(
        "trained with 2 rows of people who withdrew since"
    )


def test_a_folder_without_versions_is_itself(tmp_path: Path) -> None:
    assert used_folder(tmp_path) == tmp_path
    (tmp_path / "models.json").write_text("{}")
    with pytest.raises(RunError, match="cannot be read"):
        read_models(tmp_path)


def test_when_a_training_is_due(tmp_path: Path) -> None:
    daemon: Any = LabelHolderDaemon.__new__(LabelHolderDaemon)
    daemon.folder, daemon.pause = tmp_path, 3600.0
    assert daemon.due(0) == Training(1, "there is none")
    (tmp_path / "v1").mkdir()
    assert daemon.due(0) == Training(1, "it was begun")
    (tmp_path / "v1").rmdir()
    put(tmp_path, 1)
    assert daemon.due(0) == Training(1, "it was not compared yet")
    models = change_models(tmp_path, lambda models: models.promoted(1, "there is no other"))
    ended = _seconds(models.last)
    assert daemon.due(ended + 3599) is None
    assert daemon.due(ended + 3600) == Training(2, "the schedule says so")
    daemon.pause = None
    assert daemon.due(ended + 10**9) is None
    versions.ask_for_training(tmp_path)
    assert daemon.due(ended) == Training(2, "somebody asked for it")
    (tmp_path / "v2").mkdir()
    change_models(tmp_path, lambda m: replace(m.noted(2, "failed", "x"), failed=(2,), waiting=0))
    assert daemon.due(ended) is None
    versions.ask_for_training(tmp_path)
    assert daemon.due(ended) == Training(3, "somebody asked for it")


@pytest.mark.parametrize(("every", "seconds"), [("30m", 1800), ("2h", 7200), ("7d", 604800), ("1w", 604800)])
def test_the_schedule(every: str, seconds: float) -> None:
    assert Retraining(every=every).seconds == seconds
    assert Retraining().seconds is None


# -- comparing --------------------------------------------------------------------------------


def trained(version: int, score: float | None, **changes: Any) -> Any:
    task = SimpleNamespace(name="binary", names=("no", "yes"))
    result = {"diverged": False, "validation_score": score, "validation_metric": "auc"}
    privacy = SimpleNamespace(labels=SimpleNamespace(protects=False))
    method = SimpleNamespace(name="vimadmm")
    run = SimpleNamespace(
        result=result, task=task, privacy=privacy, method=method, metric="auc", id=f"m-v{version}", path=Path("v")
    )
    agreement = SimpleNamespace(proposal=SimpleNamespace(body={"alignment": "a"}))
    made = Trained(version, run, agreement, "same")  # type: ignore[arg-type]
    return replace(made, **changes)


UNDERTAKING: Any = SimpleNamespace(
    split=SimpleNamespace(validation=torch.tensor([1, 3])),
    former=(),
    labels=torch.tensor([0, 0, 0, 1]),
    weights=None,
    federation=lambda agreement: None,
)


def nobody(folder: Path, run: str, wish: Any) -> Prediction:
    raise AssertionError("nobody is asked")


@pytest.mark.parametrize(
    ("new", "used", "promoted", "needle"),
    [
        (trained(1, 0.5), None, True, "there is no other"),
        (trained(2, 0.9), trained(1, 0.9), True, "validation AUC 0.9, of version 1 0.9, on the same 2 rows"),
        (trained(2, 0.89), trained(1, 0.9), False, "worse: validation AUC 0.89, of version 1 0.9"),
        (trained(2, None), trained(1, 0.9), False, "version 2 has no validation score"),
        (trained(2, 0.9), trained(1, None), False, "version 1 has no validation score"),
    ],
)
def test_scores_on_the_same_rows(new: Any, used: Any, promoted: bool, needle: str) -> None:
    verdict = compare(new, used, UNDERTAKING, nobody)
    assert verdict.promote is promoted and needle in verdict.why


def test_what_cannot_be_compared() -> None:
    new, used = trained(2, 0.9), trained(1, 0.1)
    new.run.result["diverged"] = True
    assert compare(new, used, UNDERTAKING, nobody).promote is False
    new = trained(2, 0.9)
    new.run.task.names = ("no", "perhaps", "yes")
    assert "other classes" in compare(new, used, UNDERTAKING, nobody).why
    new = trained(2, 0.9)
    new.run.privacy.labels.protects = True
    assert "labels of version 2 are protected" in compare(new, used, UNDERTAKING, nobody).why
    new = trained(2, 0.1)
    new.agreement.proposal.body["alignment"] = "b"
    verdict = compare(new, trained(1, 0.9), UNDERTAKING, nobody)
    assert verdict.promote and "rows of another alignment" in verdict.why


def test_other_labels_ask_both_models_about_the_new_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    from colonnade.tasks import find_task

    new, used = trained(2, 0.99, data="other"), trained(1, 0.2)
    new.run.task = used.run.task = find_task("binary")(1)
    monkeypatch.setattr(comparing, "fingerprint", lambda federation: "other")
    asked = []

    def ask(folder: Path, run: str, wish: Any) -> Prediction:
        asked.append((run, wish.rows.tolist(), wish.alignment))
        right = {"m-v1": [-1.0, 1.0], "m-v2": [1.0, -1.0]}[run]
        return Prediction(torch.tensor(right)[:, None])

    verdict = compare(new, used, UNDERTAKING, ask)
    assert asked == [("m-v2", [1, 3], "a"), ("m-v1", [1, 3], "a")]
    assert not verdict.promote and "worse: validation AUC 0, of version 1 1, on the same 2 rows" in verdict.why

    def refused(folder: Path, run: str, wish: Any) -> Prediction:
        raise RunError("telco did not answer")

    verdict = compare(new, used, UNDERTAKING, refused)
    assert not verdict.promote and "cannot be compared with version 1: telco did not answer" in verdict.why
    monkeypatch.setattr(comparing, "fingerprint", lambda federation: "changed")
    assert "table changed" in compare(new, used, UNDERTAKING, ask).why


def test_a_version_that_somebody_withdrew_from_is_trained_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = LabelHolderDaemon.__new__(LabelHolderDaemon)
    daemon.folder, daemon.name, daemon.config, daemon.overrides = tmp_path, "churn", Path("c.toml"), []
    daemon._notify = lambda event, **facts: None
    people = [frozenset[str](), frozenset({"a"})]
    monkeypatch.setattr(LabelHolderDaemon, "_people", lambda self: people.pop(0))
    monkeypatch.setattr(label_holder, "read_coordinator", lambda *_: None)
    monkeypatch.setattr(label_holder, "see_to_rows", lambda *_: None)
    monkeypatch.setattr(label_holder, "ask_parties", lambda *_: {})

    def refused(*_: object) -> None:
        raise Refused("party 'telco' refuses: request 3 asks about row 7 of a person who withdrew")

    monkeypatch.setattr(label_holder, "run_coordinator", refused)
    assert not daemon.train(Training(1, "there is none")).promote
    assert read_models(tmp_path).failed == (1,) and read_models(tmp_path).waiting == 1
    people[:] = [frozenset({"a"}), frozenset({"a"})]
    daemon.train(Training(2, "somebody asked for it"))
    assert read_models(tmp_path).failed == (1, 2) and read_models(tmp_path).waiting == 0, "nobody else withdrew"
