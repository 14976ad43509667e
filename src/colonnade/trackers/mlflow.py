"""MLflow: a run of an experiment, at an address such as sqlite:///mlflow.db or that of a tracking server."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from colonnade.extras import need
from colonnade.trackers.base import Setting, Tracker

STRANGE = re.compile(r"[^A-Za-z0-9_\-. /]")  # what MLflow does not take in a name


@dataclass
class MLflow(Tracker):
    """Metrics by round, settings as parameters; the client is this object's own, whatever else the process logs."""

    address: str
    experiment: str = "colonnade"
    _client: Any = field(default=None, init=False, repr=False)
    _run: str = field(default="", init=False, repr=False)

    def check(self) -> None:
        """Say now if the library is not installed."""
        need("mlflow", extra="mlflow", purpose="--track mlflow")

    def open(self) -> None:
        """Begin a run of the experiment."""
        tracking = need("mlflow.tracking", extra="mlflow", purpose="MLflow")
        self._client = tracking.MlflowClient(tracking_uri=self.address)
        known = self._client.get_experiment_by_name(self.experiment)
        experiment = self._client.create_experiment(self.experiment) if known is None else known.experiment_id
        self._run = self._client.create_run(experiment).info.run_id

    def write(self, values: Mapping[str, float], step: int, texts: Mapping[str, str]) -> None:
        """Metrics; texts as tags."""
        for name, value in values.items():
            self._client.log_metric(self._run, STRANGE.sub("_", name), value, step=step)
        for name, text in texts.items():
            self._client.set_tag(self._run, f"{name} is", text)

    def finish(self, results: Mapping[str, float], settings: Mapping[str, Setting], stop: str) -> None:
        """Results, parameters, and the end."""
        for name, value in results.items():
            self._client.log_metric(self._run, STRANGE.sub("_", f"end/{name}"), value)
        for name, setting in settings.items():
            self._client.log_param(self._run, STRANGE.sub("_", name), setting)
        self._client.set_tag(self._run, "end", stop)
        self._client.set_terminated(self._run)
