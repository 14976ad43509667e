"""A run of other parties than the one that it comes from, where the label holder kept what every party sent.

What `extend.py` (a party joins) and `leave.py` (one leaves) have in common: the method fits its stacks again to scores
that are there already, and the result is judged on the same rows. Nobody trains or sends anything here.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from colonnade.checkpoint import describe, fingerprint
from colonnade.engines.base import DEPLOYED
from colonnade.errors import ConfigError, RunError
from colonnade.federation import Federation
from colonnade.fit import Trainer
from colonnade.methods.base import Extends, State, is_model
from colonnade.methods.without import outputs
from colonnade.model import Model
from colonnade.part import open_parts
from colonnade.privacy.ledger import Ledger
from colonnade.privacy.mechanism import Protection
from colonnade.record import RECORD, STORE, About, PartyAbout, Result, Sections
from colonnade.run import Run
from colonnade.wire.traffic import Traffic


def check_kept(run: Run, what: str, instead: str, between: str) -> None:
    """Refuse a run whose parties cannot come or go, whoever they are.

    Args:
        run: which one.
        what: "join" or "leave".
        instead: what to train, where parties were trained together.
        between: what to do about a run of separate organisations.

    Raises:
        ConfigError: its method has no such models, or it is one of separate organisations.
        RunError: it kept no scores.
    """
    if not isinstance(run.method, Extends):
        raise ConfigError(
            f"nobody can {what} a model of {run.method.name}, whose parties were trained together: train it again with "
            f"{instead}, or use one_message"
        )
    if run.about["engine"] == DEPLOYED:
        raise ConfigError(f"this run is one of separate organisations, whose parties agreed to it as it is: {between}")
    if not run.kept:
        raise RunError(
            f"this run kept no scores of its parties, without which none can {what}: train it again with this version"
        )


def free_folder(out: str | Path | None) -> Path | None:
    """The folder of the new run, which holds none yet."""
    folder = None if out is None else Path(out)
    if folder is not None and any((folder / name).exists() for name in (RECORD, STORE)):
        raise RunError(f"{folder} already holds a run; choose another folder")
    return folder


def check_data(run: Run, federation: Federation, more: str = "") -> None:
    """Refuse data of the run's parties that are not those it was trained on; `more` says what else it may be."""
    counts = run.about["rows"]
    rows = counts["train"] + counts["validation"] + counts["test"]
    if federation.partial or run.about.get("data") != fingerprint(federation.only(tuple(run.model.parts))):
        held = "" if federation.rows == rows else f" (it has {rows:,} rows, these are {federation.rows:,})"
        raise RunError(f"rows, labels, split or columns are not those that the run was trained on{held}{more}")


def now() -> str:
    """Date and time in UTC, for the record."""
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


class Ended(NamedTuple):
    """How a run came to its end."""

    stop: str
    seconds: float


@dataclass(frozen=True)
class Regrouping:
    """What a run becomes when its parties change."""

    before: Run
    trainer: Trainer  # opened on the same rows, labels and split: it judges
    federation: Federation  # of the parties that there are now

    def run(
        self, model: Model, kept: Sequence[State], ended: Ended, about: About, traffic: Traffic, config: Sections | None
    ) -> Run:
        """The run, from a model whose coordinator's part is still to be fitted.

        Args:
            model: the parts of all parties that there are now.
            kept: what the trainings kept in which they sent their scores.
            ended: why it is as it is, and after how many seconds of training.
            about: the facts of the new run.
            traffic: the bytes of what it was made from.
            config: the sections of the configuration that describes it, if there is one.
        """
        state = self._fitted(model, kept)
        model.state = {name: value for name, value in state.items() if is_model(name)}
        result, old = self._judged(model, state, ended), self.before
        made = Run(model, old.training, about, old.history, traffic, result, config or old.config)
        made.kept = {name: value for name, value in state.items() if not is_model(name)}
        made.tested = self.trainer.tested
        return made

    def about(self, model: Model, parties: Sequence[PartyAbout]) -> About:
        """The facts of the run with these parties; the machine is the one at hand."""
        described = {party["name"]: party for party in parties}
        engine = open_parts(model.design, [model.parts[name] for name in model.parts], Ledger(), Protection())
        return {
            **self.before.about,
            "federation": self.federation.name,
            "parties": [described[name] for name in self.federation.names],
            "groups": [list(group.parties) for group in engine.schema.groups],
            "data": fingerprint(self.federation),
            "ways": list(engine.ways),
            "machine": describe(self.trainer)["about"]["machine"],
        }

    def _fitted(self, model: Model, kept: Sequence[State]) -> dict[str, Tensor]:
        """The coordinator's state with the stacks of these parties."""
        c, method = self.trainer.coordinator, self.before.method
        parts = [model.parts[name] for name in self.federation.names]
        schema = open_parts(model.design, parts, Ledger(), Protection()).schema
        schema = replace(schema, rows=self.federation.rows, train=c.schema.train)
        assert isinstance(method, Extends)
        assert c.home is not None
        with torch.no_grad():
            fitted = method.join(schema, kept, c.home)
        scale = {name: value for name, value in c.state.items() if name.startswith("target.")}
        return {**scale, **fitted}

    def _judged(self, model: Model, state: dict[str, Tensor], ended: Ended) -> Result:
        """How good the model is on validation and test rows, of which all scores are known."""
        c, split, old = self.trainer.coordinator, self.federation.split, self.before.result
        result: Result = {
            "rounds": old["rounds"], "stop": ended.stop, "diverged": False, "best_round": old["best_round"],
            "validation_score": None, "test_score": None, "seconds": ended.seconds,
        }  # fmt: skip
        if "validation_metric" in old:
            result["validation_metric"] = old["validation_metric"]
        logits = {part: self._outputs(state, rows) for part, rows in (("val", split.validation), ("test", split.test))}
        if logits["val"] is not None:
            result["validation_score"] = c.judge(logits["val"])
            result["validation_metrics"] = c.judge.all(logits["val"])
            c.decision = model.decision = c.decide(logits["val"])
        if logits["test"] is not None:
            result.update(self.trainer.measured(logits["test"]))  # type: ignore[typeddict-item]
        return result

    def _outputs(self, state: dict[str, Tensor], rows: Tensor) -> Tensor | None:
        method = self.before.method
        told = method.recall(state, rows) if isinstance(method, Extends) and len(rows) else None
        return None if told is None else outputs(method, state, told)
