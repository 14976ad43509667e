"""A party joins a finished model: it alone trains and sends something; the label holder fits its stacks again.

    newcomer       fits the labels that were released in the training, in the same folds         (an ordinary training
                   and sends its scores of training, validation and test rows                     of the newcomer alone)
    label holder   has the others' scores of these rows from their training, and fits the stacks of all subsets again

So nobody who was there is asked for anything, and what they hold stays as it is to the last bit. Labels behind noise
are the ones that were drawn in the training: to hand out others would cost the label epsilon a second time.

The result is a run of its own, beside the old one. Its ledger, traffic and label exposure are those of both trainings
together, and its record says who joined when, and what was released for it.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from colonnade.checkpoint import describe
from colonnade.config import Settings, build
from colonnade.engines.base import Encoders
from colonnade.errors import ConfigError, DoubtfulScore, RunError
from colonnade.federation import Federation
from colonnade.fit import Trainer
from colonnade.methods.base import Method
from colonnade.model import Model
from colonnade.models.encoders import ModelSettings, PartySettings
from colonnade.privacy.ledger import Ledger
from colonnade.privacy.training_rows import TrainingRows, noised
from colonnade.progress import Watcher
from colonnade.record import Joined, Sections
from colonnade.regroup import Ended, Regrouping, check_data, check_kept, free_folder, now
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
    folder = free_folder(out)
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
    check_kept(
        run,
        "join",
        "all of them",
        "propose a run to all of them and the newcomer that takes the parts of this one over ([coordinator] "
        f'takes_over = {str(run.path or "its folder")!r}; documentation, page "Parties come and go")',
    )


def _newcomer(run: Run, federation: Federation) -> str:
    """The party that joins, where everything else is as it was."""
    check_joinable(run)
    there = tuple(run.model.parts)
    new, missing = [p for p in federation.names if p not in there], [p for p in there if p not in federation.names]
    if len(new) != 1 or missing:
        told = f"{', '.join(new) or 'none'} new" + (f", {', '.join(missing)} missing" if missing else "")
        raise ConfigError(f"needed the parties of the run ({', '.join(there)}) and one more; got: {told}")
    check_data(run, federation, f"; a party that joins must hold every row of it, and {new[0]!r} may lack some")
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
        old, new = self.before, self.alone
        regrouping, model = Regrouping(old, self.trainer, self.federation), self._model(settings, encoders)
        ended = Ended(f"{self.newcomer} joined", old.result["seconds"] + new.result["seconds"])
        about = regrouping.about(model, [*old.about["parties"], *describe(self.trainer)["about"]["parties"]])
        about["joined"] = [*old.about.get("joined", []), self._joined()]
        return regrouping.run(model, [old.kept, new.kept], ended, about, self._traffic(), config)

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

    def _joined(self) -> Joined:
        """Who joined, and what was released for it."""
        labels = [e for e in self.alone.ledger if e.owner == COORDINATOR and e.rows]
        return {
            "party": self.newcomer,
            "when": now(),
            "run": self.before.id,
            "present": list(self.before.model.parts),
            "labels": labels[0].mechanism if labels else "none",
            "rows": len(self.federation.split.train),
        }


def _add(total: RoundTraffic, one: RoundTraffic, places: list[int]) -> None:
    total.up[places] += one.up
    total.down[places] += one.down
    total.multicast_down += one.multicast_down
    total.evaluation_up += one.evaluation_up
    total.evaluation_down += one.evaluation_down
