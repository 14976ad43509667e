"""Callbacks that write a training's figures to what people already use: TensorBoard, MLflow, Weights & Biases.

Figures of every round and the settings leave through them, and nothing else: no column, no id, no label, no class name,
no path and no key. A tracker that fails is told once and left alone; the training goes on.
"""

from __future__ import annotations

from pathlib import Path

from colonnade.errors import ConfigError
from colonnade.trackers.base import Tracker
from colonnade.trackers.mlflow import MLflow
from colonnade.trackers.tensorboard import TensorBoard
from colonnade.trackers.wandb import WandB

__all__ = ["MLflow", "TensorBoard", "Tracker", "WandB", "tracker"]
EXAMPLES = "tensorboard:FOLDER, mlflow:ADDRESS (sqlite:///mlflow.db, https://...), wandb:PROJECT"


def tracker(text: str) -> Tracker:
    """A tracker as the command line says it: `tensorboard:FOLDER`, `mlflow:ADDRESS` or `wandb:PROJECT`.

    Raises:
        ConfigError: it is none of these, or its library is not installed.
    """
    kind, _, where = text.partition(":")
    if not where or kind not in ("tensorboard", "mlflow", "wandb"):
        raise ConfigError(f"--track {text[:100]!r}: needed one of {EXAMPLES}")
    made: Tracker
    made = TensorBoard(Path(where)) if kind == "tensorboard" else MLflow(where) if kind == "mlflow" else WandB(where)
    made.check()
    return made
