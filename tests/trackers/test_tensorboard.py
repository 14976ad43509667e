"""TensorBoard, by the real library: what a training wrote is read back; and what never leaves through a tracker."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest

from colonnade.errors import ConfigError, DataError, TrackingEnded
from colonnade.fit import fit
from colonnade.trackers import TensorBoard, tracker
from colonnade.trackers.base import results_of, settings_of
from tests.cli.conftest import SMALL, Call, cli
from tests.federations import small

__all__ = ["cli"]  # the fixture
NOISE = {"mechanism": "gaussian", "clip": 1.0, "sigma": 5.0, "evaluation": "simulated"}


def read(folder: Path) -> tuple[dict[str, list[tuple[int, float]]], dict[str, str]]:
    """Scalars by name, and texts."""
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    found = reader.EventAccumulator(str(folder))
    found.Reload()
    tags = found.Tags()
    scalars = {name: [(e.step, e.value) for e in found.Scalars(name)] for name in tags["scalars"]}
    texts = {name: found.Tensors(name)[0].tensor_proto.string_val[0].decode() for name in tags["tensors"]}
    return scalars, texts


def test_figures_of_every_round_are_read_back(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    board = TensorBoard(tmp_path / "board")
    run = fit(small(), "vimadmm", rounds=4, evaluate_every=2, privacy=NOISE, callbacks=[board], progress=False)
    scalars, texts = read(tmp_path / "board")
    scores = [(h["round"], h["score"]) for h in run.history if "score" in h]
    assert scalars["validation accuracy"] == [(at, pytest.approx(score)) for at, score in scores]
    assert [at for at, _ in scalars["bytes"]] == [1, 2, 3, 4] and [at for at, _ in scalars["epsilon"]] == [1, 2, 3, 4]
    moved = [value for _, value in scalars["bytes"]]
    assert moved == sorted(moved) and 0 < moved[-1] <= run.traffic.up + run.traffic.down
    assert "exact accountant, unit PARTY" in texts["what epsilon is/text_summary"]
    assert scalars["end/test accuracy"][0][1] == pytest.approx(run.result["test_score"])
    settings = texts["settings/text_summary"]
    assert "| method.name | vimadmm |" in settings and "| privacy.sigma | 5.0 |" in settings
    assert "training.seed" not in settings  # the simulated noise is drawn from it


def test_the_command_line_writes_a_board(tmp_path: Path, cli: Call) -> None:
    pytest.importorskip("tensorboard")
    (tmp_path / "small.toml").write_text(SMALL)
    board = tmp_path / "board"
    done = cli("train", tmp_path / "small.toml", "--out", tmp_path / "run", "--track", f"tensorboard:{board}")
    assert done.code == 0, done.err
    assert [at for at, _ in read(board)[0]["validation accuracy"]] == [2, 4, 6]
    bad = cli("train", tmp_path / "small.toml", "--track", "tensorbord:x")
    assert bad.code == 2 and "needed one of tensorboard:FOLDER, mlflow:ADDRESS" in bad.err


def test_a_tracker_that_fails_ends_no_training(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    (tmp_path / "taken").write_text("a file, not a folder")
    with pytest.warns(TrackingEnded, match=r"TensorBoard failed and gets no more figures \(.*\); the training goes on"):
        run = fit(small(), "vimadmm", rounds=3, callbacks=[TensorBoard(tmp_path / "taken")], progress=False)
    assert run.result["rounds"] == 3


def test_a_library_that_is_missing_is_said_before_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
    for library in ("tensorboard", "mlflow", "wandb"):
        monkeypatch.setitem(__import__("sys").modules, library, None)
        with pytest.raises(DataError, match=rf"pip install colonnade\[{library}\]"):
            tracker(f"{library}:somewhere")
    for bad in ("tensorboard", "mlflow:", "csv:x"):
        with pytest.raises(ConfigError, match="needed one of tensorboard:FOLDER"):
            tracker(bad)


def test_names_of_others_do_not_leave() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = fit(
            small(), "vimadmm", rounds=2, progress=False, model={"hidden": 9, "party_1": {"hidden": 8}},
            config={"data": {"tables": {"secret_party": "/secret/file.csv"}, "labels": "secret_label"}},
        )  # fmt: skip
    record = run.record()
    record["training"] = {**record["training"], "class_weights": {"secret_class": 2.0}, "seed": 7}
    record["method"]["settings"] |= {"guest": "secret_party", "weights": {"secret_column": 1.0}, "rho": float("nan")}
    told = settings_of(record)
    assert told["model.hidden"] == 9 and told["training.seed"] == 7 and told["training.schedule.batch"] > 0
    assert "secret" not in json.dumps(told) and "party_1" not in json.dumps(told) and "method.rho" not in told
    assert set(results_of(record)) >= {"rounds", "bytes", "test accuracy", "kept round"}
