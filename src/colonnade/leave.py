"""A party leaves a finished model: nobody trains or sends anything; the label holder fits its stacks without it.

What remains is the model that a training without the party would have given, since parties know nothing of each other.
It is a run of its own, beside the old one: without the part, the scores and the settings of who left. Its ledger goes
on naming the party, because what it released in the training was released, and its record says who left when.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from colonnade.engines.base import Encoders
from colonnade.errors import ConfigError
from colonnade.federation import Federation
from colonnade.fit import Trainer
from colonnade.model import Model
from colonnade.privacy.ledger import Ledger
from colonnade.privacy.training_rows import TrainingRows, noised
from colonnade.record import Regrouped, Sections
from colonnade.regroup import Ended, Regrouping, check_data, check_kept, free_folder, now
from colonnade.run import Run
from colonnade.wire.messages import COORDINATOR, Purpose
from colonnade.wire.traffic import RoundTraffic, Traffic


def leave(
    run: Run | str | Path,
    party: str,
    federation: Federation,
    *,
    encoders: Encoders = None,
    out: str | Path | None = None,
) -> Run:
    """The run without one of its parties.

    Args:
        run: finished, of a method whose parties can leave (`one_message`); or its folder.
        party: who leaves.
        federation: the data of the run, unchanged, with everybody: by its labels the stacks are fitted and judged.
        encoders: local models of one's own: those of the run again.
        out: a folder for the new run; the old one stays as it is.

    Raises:
        ConfigError: the method has no such models, or the party cannot leave.
        RunError: the data are not those of the run, it kept no scores, or there is a run in `out` already.
    """
    run = run if isinstance(run, Run) else Run.load(run, encoders)
    folder = free_folder(out)
    check_leaving(run, party)
    if federation.guest == party:
        raise ConfigError(f"{party!r} has the labels, and nothing is left without them; propose another training")
    check_data(run, federation)
    left = _Without(run, party, federation, encoders).run()
    if folder is not None:
        left.save(folder)
    return left


def check_leaving(run: Run, party: str) -> None:
    """Refuse a run that the party cannot leave.

    Raises:
        ConfigError: the method has no such models, the run is one of separate organisations, or there is no such party.
        RunError: it kept no scores.
    """
    check_kept(
        run,
        "leave",
        "the others",
        "propose a run to the others that takes their parts of this one over ([coordinator] takes_over = "
        f'{str(run.path or "its folder")!r}; documentation, page "Parties come and go")',
    )
    there = tuple(run.model.parts)
    if party not in there:
        raise ConfigError(f"no party called {party!r}; parties: {', '.join(there)}")
    if len(there) == 1:
        raise ConfigError(f"{party!r} is the only party of the run; nothing is left without it")
    if getattr(run.method, "guest", None) == party:
        raise ConfigError(
            f"{party!r} is the guest, the label holder's own party, which fits its model to true labels; train again "
            "with the others"
        )


@dataclass(frozen=True)
class _Without:
    """A run, and who leaves it."""

    before: Run
    party: str
    everybody: Federation
    encoders: Encoders

    def run(self) -> Run:
        """The run of the others."""
        old, names = self.before, [name for name in self.before.model.parts if name != self.party]
        rest, theirs = self.everybody.only(names), _of(self.encoders, names)
        settings, training = old.model_settings.only(names), old.training.on_parties(names)
        trainer = Trainer.open(rest, old.method, training, settings, theirs, None, privacy=old.privacy)
        regrouping, model = Regrouping(old, trainer, rest), self._model(rest, trainer, theirs)
        about = regrouping.about(model, old.about["parties"])
        about["left"] = [*old.about.get("left", []), self._left(names)]
        ended = Ended(f"{self.party} left", old.result["seconds"])
        return regrouping.run(model, [old.kept], ended, about, self._traffic(), _without(old.config, self.party, names))

    def _model(self, rest: Federation, trainer: Trainer, encoders: Encoders) -> Model:
        """The others' parts as they are."""
        old, names = self.before.model, rest.names
        tokens = tuple(name for name in old.design.tokens if name in names)
        design = replace(old.design, id=trainer.id, parties=names, settings=trainer.model, tokens=tokens)
        models = {name: old.parts[name].tensors for name in names}
        shapes = {name: old.parts[name].shape for name in names}
        plans = {owner: plan for owner, plan in old.plans.items() if owner in names}
        ledger = Ledger(replace(entry, chain="") for entry in old.ledger)  # a chain of its own
        model = Model.assemble(design, {}, models, shapes, plans, encoders, ledger)
        model.rounds, model.from_tables = old.rounds, old.from_tables
        model.trained = TrainingRows.of(rest) if noised(ledger) else None
        return model

    # -- the record ---------------------------------------------------------------------------------

    def _left(self, names: list[str]) -> Regrouped:
        return {"party": self.party, "when": now(), "run": self.before.id, "present": names}

    def _traffic(self) -> Traffic:
        """The bytes of the others."""
        old = self.before.traffic
        place = old.parties.index(self.party)
        parties = tuple(name for name in old.parties if name != self.party)
        return Traffic(parties, [self._round(one, place, len(old.parties)) for one in old.rounds])

    def _round(self, one: RoundTraffic, place: int, parties: int) -> RoundTraffic:
        """A round without what went to and came from the party alone."""
        mine = [e for e in self.before.ledger if e.number == one.number and self.party in (e.owner, e.audience)]
        own = sum(e.size or 0 for e in mine if e.owner == COORDINATOR)
        judged = sum(e.size or 0 for e in mine if e.owner == self.party and e.purpose is Purpose.EVALUATE)
        return RoundTraffic(
            one.number,
            np.delete(one.up, place),
            np.delete(one.down, place),
            one.multicast_down - own,
            one.evaluation_up - judged,
            one.evaluation_down - one.evaluation_down // parties,
        )


def _of(encoders: Encoders, names: list[str]) -> Encoders:
    if not isinstance(encoders, Mapping):
        return encoders
    return {name: encoder for name, encoder in encoders.items() if name in names}


def _without(config: Sections | None, party: str, names: list[str]) -> Sections | None:
    """The configuration of the others; the tables of all go on saying which rows there are."""
    if config is None:
        return None
    data = {**config.get("data", {"set": "digits"}), "only": names}
    model = {key: value for key, value in config.get("model", {}).items() if key != party}
    return {**config, "data": data, **({"model": model} if model else {})}
