"""Weights & Biases: a run of a project, with nothing of this machine but the figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from colonnade.extras import need
from colonnade.trackers.base import Setting, Tracker

# The library would also send the console, the code, the git remote, the host's name and what the machine does.
SILENT = {
    "console": "off", "disable_git": True, "disable_code": True, "x_disable_stats": True, "x_disable_meta": True,
    "silent": True, "host": "",
}  # fmt: skip


@dataclass
class WandB(Tracker):
    """Figures by round, settings as the run's config. `WANDB_MODE=offline` keeps all of it on this machine."""

    project: str
    folder: Path | None = None  # where the library keeps its files; None: where it likes
    _run: Any = field(default=None, init=False, repr=False)

    def check(self) -> None:
        """Say now if the library is not installed."""
        need("wandb", extra="wandb", purpose="--track wandb")

    def open(self) -> None:
        """Begin a run of the project; who is logged in, the library knows."""
        wandb = need("wandb", extra="wandb", purpose="Weights & Biases")
        place = None if self.folder is None else str(self.folder)
        self._run = wandb.init(project=self.project, dir=place, settings=wandb.Settings(**SILENT))
        self._run.define_metric("*", step_metric="round")  # scores come after later rounds than they are of

    def write(self, values: Mapping[str, float], step: int, texts: Mapping[str, str]) -> None:
        """Figures of a round."""
        self._run.log({**values, "round": step})
        for name, text in texts.items():
            self._run.summary[f"{name} is"] = text

    def finish(self, results: Mapping[str, float], settings: Mapping[str, Setting], stop: str) -> None:
        """Results, config, and the end."""
        for name, value in results.items():
            self._run.summary[f"end/{name}"] = value
        self._run.summary["end"] = stop
        self._run.config.update(dict(settings))
        self._run.finish()
