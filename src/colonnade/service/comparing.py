"""Is a new version not worse than the one in use? Both on the same validation rows, by the same metric.

Where labels, split and alignment are those of the version in use, both have been measured on the same rows already.
Else both are asked about the validation rows of the new one, which is a prediction at every party.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from colonnade.checkpoint import fingerprint
from colonnade.deploy.agreement import Agreement
from colonnade.deploy.predict import Wish
from colonnade.deploy.undertaking import Undertaking
from colonnade.errors import ColonnadeError, RunError
from colonnade.evaluate.metrics import METRICS, Metric
from colonnade.predict import Prediction
from colonnade.run import STORE, Run
from colonnade.store import Store

Ask = Callable[[Path, str, Wish], Prediction]  # folder and name of a run, and what to predict


@dataclass(frozen=True)
class Verdict:
    """Whether a new version is put to use, and why."""

    promote: bool
    why: str


@dataclass(frozen=True)
class Trained:
    """A version as it is compared."""

    version: int
    run: Run
    agreement: Agreement
    data: str  # fingerprint of labels and split

    @classmethod
    def load(cls, version: int, folder: Path) -> Trained:
        """From its folder."""
        store = Store(folder / STORE)
        try:
            about = store.about()
        finally:
            store.close()
        return cls(version, Run.load(folder), Agreement.from_json(about["agreement"]), str(about["data"]))

    @property
    def alignment(self) -> str:
        """The alignment whose row numbers it knows."""
        return str(self.agreement.proposal.body.get("alignment", ""))


def compare(new: Trained, used: Trained | None, undertaking: Undertaking, ask: Ask) -> Verdict:
    """Hold a new version against the one in use; what cannot be compared is not put to use, but for a person's word."""
    if new.run.result["diverged"]:
        return Verdict(False, "its training diverged")
    if used is None:
        return Verdict(True, "there is no other")
    if used.alignment not in (new.alignment, *undertaking.former):
        return Verdict(True, f"version {used.version} knows rows of another alignment only, and cannot answer any more")
    undecided = f"it cannot be compared with version {used.version}: {{}}; --promote decides"
    why_not = _incomparable(new, used)
    if why_not:
        return Verdict(False, undecided.format(why_not))
    try:
        return _judged(new, used, undertaking, ask)
    except ColonnadeError as error:
        return Verdict(False, undecided.format(error))


def _judged(new: Trained, used: Trained, undertaking: Undertaking, ask: Ask) -> Verdict:
    metric, rows = METRICS[new.run.result.get("validation_metric") or new.run.metric], len(undertaking.split.validation)
    here, there = _measured(new, used, metric, undertaking, ask)
    if math.isnan(here) or math.isnan(there):
        raise RunError(f"{metric.title} is not defined on these {rows} rows")
    not_worse = metric.sign() * (here - there) >= 0
    told = f"validation {metric.title} {here:.4g}, of version {used.version} {there:.4g}, on the same {rows} rows"
    return Verdict(not_worse, told if not_worse else f"worse: {told}")


def _incomparable(new: Trained, used: Trained) -> str:
    for trained in (new, used):
        if trained.run.result["validation_score"] is None:
            return f"version {trained.version} has no validation score (with noise nothing is evaluated)"
        if trained.run.privacy.labels.protects:
            return f"the labels of version {trained.version} are protected, and its validation score is of noisy ones"
    if (new.run.task.name, list(new.run.task.names)) != (used.run.task.name, list(used.run.task.names)):
        return "it has other classes"
    return ""


def _measured(new: Trained, used: Trained, metric: Metric, undertaking: Undertaking, ask: Ask) -> tuple[float, float]:
    scores = [trained.run.result for trained in (new, used)]
    same_metric = scores[0].get("validation_metric") == scores[1].get("validation_metric")
    if new.data == used.data and same_metric and new.run.method.name == used.run.method.name:
        return float(scores[0]["validation_score"] or 0.0), float(scores[1]["validation_score"] or 0.0)
    if fingerprint(undertaking.federation(new.agreement)) != new.data:
        raise RunError("the label holder's table changed since it was trained")
    rows = undertaking.split.validation
    weights = None if undertaking.weights is None else undertaking.weights[rows]
    found, wish = [], Wish(rows, alignment=new.alignment, former=undertaking.former, served=False)
    for trained in (new, used):
        answered = ask(trained.run.path or Path(), trained.run.id, wish)
        truth = undertaking.labels[rows]
        found.append(metric(new.run.task, answered.logits.to(torch.float64), truth, weights))
    return found[0], found[1]
