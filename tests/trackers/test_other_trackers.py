"""MLflow and Weights & Biases, by the real libraries, where they are installed: they are large, and not in `dev`.

Nothing here needs torch, so that an environment with nothing but one of them and pytest can run it:
`pip install mlflow wandb pytest pydantic && PYTHONPATH=src pytest tests/trackers/test_other_trackers.py --noconftest`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from colonnade.progress import Progress
from colonnade.trackers import MLflow, Tracker, WandB

RECORD = Path(__file__).parents[1] / "golden" / "format1" / "multiclass" / "run.json"
pytestmark = pytest.mark.filterwarnings("default")  # of libraries that are not ours


def follow(tracker: Tracker) -> dict[str, Any]:
    """A training of three rounds, evaluated after the second and at the end; the record that it ends with."""
    record = json.loads(RECORD.read_text())
    spent: Any = SimpleNamespace(largest=0.5, legend="epsilon so far: exact accountant, unit PARTY")
    tracker.on_round(Progress(1, 3, None, None, 100, 0.1, spent))
    tracker.on_round(Progress(2, 3, None, None, 200, 0.2, spent))
    tracker.on_round(Progress(3, 3, 0.75, 0.75, 300, 0.3, spent, scored=2))
    tracker.on_round(Progress(3, 3, 0.875, 0.875, 300, 0.3, spent, scored=3))
    tracker.on_end(SimpleNamespace(record=lambda: record))  # type: ignore[arg-type]
    return record  # type: ignore[no-any-return]


def test_mlflow(tmp_path: Path) -> None:
    pytest.importorskip("mlflow", reason="mlflow is not installed; it is large, and an extra of its own")
    from mlflow.tracking import MlflowClient

    address = f"sqlite:///{tmp_path / 'mlflow.db'}"
    record = follow(MLflow(address))
    follow(MLflow(address))  # the experiment is there already
    client = MlflowClient(tracking_uri=address)
    experiment = client.get_experiment_by_name("colonnade")
    first, second = client.search_runs([experiment.experiment_id])
    assert first.info.status == second.info.status == "FINISHED"
    history = client.get_metric_history(first.info.run_id, "validation accuracy")
    assert [(one.step, one.value) for one in history] == [(2, 0.75), (3, 0.875)]
    assert [one.step for one in client.get_metric_history(first.info.run_id, "bytes")] == [1, 2, 3]
    assert first.data.metrics["end/rounds"] == record["result"]["rounds"]
    assert first.data.params["method.name"] == record["method"]["name"]
    assert "unit PARTY" in first.data.tags["epsilon is"]


def test_wandb_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb", reason="wandb is not installed; it is an extra of its own")
    monkeypatch.setenv("WANDB_MODE", "offline")
    record = follow(WandB("colonnade", tmp_path))
    (file,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    content = file.read_bytes()
    assert b"validation accuracy" in content and b"0.875" in content and b"unit PARTY" in content
    assert record["method"]["name"].encode() in content
    host = os.uname().nodename.encode()
    assert host not in content and str(Path(__file__).parent).encode() not in content  # nothing of this machine
