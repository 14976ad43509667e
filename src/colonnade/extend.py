"""A party joins a finished model: it alone trains and sends something; the label holder fits its stacks again.

    newcomer       fits the labels that were released in the training, in the same folds         (an ordinary training
                   and sends its scores of training, validation and test rows                     of the newcomer alone)
    label holder   has the others' scores of these rows from their training, and fits the stacks of all subsets again

So nobody who was there is asked for anything, and what they hold stays as it is to the last bit. Labels behind noise
are the ones that were drawn in the training: to hand out others would cost the label epsilon a second time. A party
that leaves needs no training at all: the model has a stack without it.

The result is a run of its own, beside the old one. Its ledger, traffic and label exposure are those of both trainings
together, and its record says who joined when, and what was released for it.
"""

from __future__ import annotations

import datetime
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from colonnade.checkpoint import describe, fingerprint
from colonnade.config import Settings, build
from colonnade.engines.base import DEPLOYED, Encoders
from colonnade.engines.coordinator import is_model
from colonnade.errors import ConfigError, DoubtfulScore, RunError
from colonnade.federation import Federation
from colonnade.fit import Trainer
from colonnade.methods.base import Extends, Method
from colonnade.methods.without import outputs
from colonnade.model import Model
from colonnade.models.encoders import ModelSettings, PartySettings
from colonnade.part import open_parts
from colonnade.privacy.ledger import Ledger
from colonnade.privacy.mechanism import Protection
from colonnade.privacy.training_rows import TrainingRows, noised
from colonnade.progress import Watcher
from colonnade.record import RECORD, STORE, About, Joined, Result, Sections
from colonnade.run import Run
from colonnade.wire.messages import COORDINATOR
from colonnade.wire.traffic import RoundTraffic, Traffic

NEWCOMER = {"guest": "", "stack": "linear"}  # settings of a method as a newcomer meets it, which is not the guest


def extend(
    run: Run | str | Path,
    federation: Federation,
    *,
    model: Mapping[str, Any] | None = None,
    encoders: Encoders = None,
    out: str | Path | None = None,
    watch: Watcher | None = None,
    config: Sections | None = None,
) -> Run:
    """Add the one party of a federation that a run does not have, and return the run with it.

    Args:
        run: finished, of a method that parties can join (`one_message`); or its folder.
        federation: the data of the run, rows, labels and split unchanged, with the newcomer.
        model: what is different about the newcomer's local model, e.g. `{"encoder": "trees"}`; None: nothing.
        encoders: local models of one's own: those of the run again, and the newcomer's if it has one.
        out: a folder for the new run; the old one stays as it is.
        watch: as for `fit`, while the newcomer trains.
        config: the sections of the configuration that describes the new run, if there is one.

    Raises:
        ConfigError: the method has no such models, or not exactly one party is new.
        RunError: the data are not those of the run, it kept no scores, or there is a run in `out` already.
    """
    run = run if isinstance(run, Run) else Run.load(run, encoders)
    folder = None if out is None else Path(out)
    if folder is not None and any((folder / name).exists() for name in (RECORD, STORE)):
        raise RunError(f"{folder} already holds a run; choose another folder")
    newcomer = _newcomer(run, federation)
    settings = _settings(run.model_settings, newcomer, model)
    method, trained = _alone(run.method), run.training.on_parties([newcomer])
    whole, theirs = federation.only([newcomer]), _own(encoders, newcomer)
    trainer = Trainer.open(whole, method, trained, settings.only([newcomer]), theirs, None, privacy=run.privacy)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DoubtfulScore)  # of the newcomer alone, which nobody predicts with
        alone = trainer.train(watch=watch)
    if alone.result["diverged"]:
        raise RunError(f"the training of {newcomer!r} failed ({alone.result['stop']}); nothing was changed")
    extended = _Extension(run, alone, trainer, federation, newcomer).run(settings, encoders, config)
    if folder is not None:
        extended.save(folder)
    return extended


def check_joinable(run: Run) -> None:
    """Refuse a run that nobody can join, whoever it is.

    Raises:
        ConfigError: its method has no such models, or it is one of separate organisations.
        RunError: it kept no scores.
    """
    if not isinstance(run.method, Extends):
        raise ConfigError(
            f"nobody can join a model of {run.method.name}, whose parties were trained together: train it again with "
            "all of them, or use one_message"
        )
    if run.about["engine"] == DEPLOYED:
        raise ConfigError(
            "this run is one of separate organisations, whose parties agreed to it as it is: joining is possible in "
            "simulations only; propose a new run to all of them and the newcomer"
        )
    if not run.kept:
        raise RunError("this run kept no scores of its parties, which joining needs: train it again with this version")


def _newcomer(run: Run, federation: Federation) -> str:
    """The party that joins, where everything else is as it was."""
    check_joinable(run)
    there = tuple(run.model.parts)
    new, missing = [p for p in federation.names if p not in there], [p for p in there if p not in federation.names]
    if len(new) != 1 or missing:
        told = f"{', '.join(new) or 'none'} new" + (f", {', '.join(missing)} missing" if missing else "")
        raise ConfigError(f"needed the parties of the run ({', '.join(there)}) and one more; got: {told}")
    counts = run.about["rows"]
    rows = counts["train"] + counts["validation"] + counts["test"]
    if federation.partial or run.about.get("data") != fingerprint(federation.only(there)):
        held = "" if federation.rows == rows else f" (it has {rows:,} rows, these are {federation.rows:,})"
        raise RunError(
            f"rows, labels, split or columns are not those that the run was trained on{held}; a party that joins must "
            f"hold every row of it, and {new[0]!r} may lack some"
        )
    return new[0]


def _settings(former: ModelSettings, newcomer: str, model: Mapping[str, Any] | None) -> ModelSettings:
    """The local models of the run, and what is different about the newcomer's."""
    if model is None:
        return former
    own = build(PartySettings, model, f"model.{newcomer}")
    common = {name: getattr(former, name) for name in type(former).model_fields}
    return ModelSettings(**common, **{**former.parties, newcomer: own})


def _alone(method: Method) -> Method:
    """The method as the newcomer meets it: the guest, if there is one, is not among those who train now."""
    if not isinstance(method, Settings):
        return method
    known = {name: value for name, value in NEWCOMER.items() if hasattr(method, name)}
    alone: Method = method.model_copy(update=known)
    return alone


def _own(encoders: Encoders, party: str) -> Encoders:
    if not isinstance(encoders, Mapping):
        return encoders
    return {party: encoders[party]} if party in encoders else None


@dataclass(frozen=True)
class _Extension:
    """Two trainings on the same rows, to be put together: that of the run, and that of the newcomer alone."""

    before: Run
    alone: Run
    trainer: Trainer  # of the newcomer
    federation: Federation
    newcomer: str

    def run(self, settings: ModelSettings, encoders: Encoders, config: Sections | None) -> Run:
        """The run with all parties."""
        model = self._model(settings, encoders)
        state = self._joined(model)
        model.state = {name: value for name, value in state.items() if is_model(name)}
        result = self._result(model, state)
        old, seconds = self.before, self.before.result["seconds"] + self.alone.result["seconds"]
        result["seconds"] = seconds
        joined = Run(
            model, old.training, self._about(model), old.history, self._traffic(), result, config or old.config
        )
        joined.kept = {name: value for name, value in state.items() if not is_model(name)}
        joined.tested = self.trainer.tested
        return joined

    def _model(self, settings: ModelSettings, encoders: Encoders) -> Model:
        """Every part as it is, with a coordinator's part that is still to be fitted."""
        old, new, f = self.before.model, self.alone.model, self.federation
        tokens = {*old.design.tokens, *new.design.tokens}
        design = replace(
            old.design,
            id=new.design.id,
            parties=f.names,
            settings=settings,
            tokens=tuple(name for name in f.names if name in tokens),
        )
        parts = {**old.parts, **new.parts}
        models = {name: parts[name].tensors for name in f.names}
        shapes = {name: parts[name].shape for name in f.names}
        model = Model.assemble(design, {}, models, shapes, {**old.plans, **new.plans}, encoders, self._ledger())
        model.rounds, model.from_tables = old.rounds, old.from_tables
        model.trained = TrainingRows.of(f) if noised(model.ledger) else None
        return model

    def _joined(self, model: Model) -> dict[str, Tensor]:
        """The coordinator's state with the stacks of all parties."""
        c, method = self.trainer.coordinator, self.before.method
        parts = [model.parts[name] for name in self.federation.names]
        schema = open_parts(model.design, parts, Ledger(), Protection()).schema
        schema = replace(schema, rows=self.federation.rows, train=c.schema.train)
        assert isinstance(method, Extends)
        assert c.home is not None
        with torch.no_grad():
            fitted = method.join(schema, [self.before.kept, self.alone.kept], c.home)
        scale = {name: value for name, value in c.state.items() if name.startswith("target.")}
        return {**scale, **fitted}

    def _result(self, model: Model, state: dict[str, Tensor]) -> Result:
        """How good the model is on validation and test rows, of which all scores are known."""
        c, split = self.trainer.coordinator, self.federation.split
        result: Result = {
            **self.alone.result,
            "stop": f"{self.newcomer} joined",
            "rounds": self.before.result["rounds"],
        }
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

    # -- the record ---------------------------------------------------------------------------------

    def _ledger(self) -> Ledger:
        """What left everybody so far; a message to everyone was one to the newcomer, when it was alone."""
        new = [e if e.audience != "*" else replace(e, audience=self.newcomer) for e in self.alone.ledger]
        return Ledger(replace(e, chain="") for e in (*self.before.ledger, *new))  # a chain of its own

    def _traffic(self) -> Traffic:
        """The bytes of both trainings, round by round."""
        names, total = self.federation.names, Traffic(self.federation.names)
        numbers = sorted({r.number for run in (self.before, self.alone) for r in run.traffic.rounds})
        for number in numbers:
            merged = total.open(number)
            for traffic in (self.before.traffic, self.alone.traffic):
                places = [names.index(party) for party in traffic.parties]
                for one in traffic.rounds:
                    if one.number == number:
                        _add(merged, one, places)
        return total

    def _about(self, model: Model) -> About:
        """The facts of both; the machine is the one that trained last."""
        old, new = self.before.about, describe(self.trainer)["about"]
        parties = {party["name"]: party for party in (*old["parties"], *new["parties"])}
        labels = [e for e in self.alone.ledger if e.owner == COORDINATOR and e.rows]
        joined: Joined = {
            "party": self.newcomer,
            "when": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "run": self.before.id,
            "present": list(self.before.model.parts),
            "labels": labels[0].mechanism if labels else "none",
            "rows": len(self.federation.split.train),
        }
        engine = open_parts(model.design, [model.parts[name] for name in model.parts], Ledger(), Protection())
        return {
            **old,
            "federation": self.federation.name,
            "parties": [parties[name] for name in self.federation.names],
            "groups": [list(group.parties) for group in engine.schema.groups],
            "data": fingerprint(self.federation),
            "ways": list(engine.ways),
            "machine": new["machine"],
            "joined": [*old.get("joined", []), joined],
        }


def _add(total: RoundTraffic, one: RoundTraffic, places: list[int]) -> None:
    total.up[places] += one.up
    total.down[places] += one.down
    total.multicast_down += one.multicast_down
    total.evaluation_up += one.evaluation_up
    total.evaluation_down += one.evaluation_down
