"""At the label holder: a run that takes over the parts of a finished one, because a party joins or leaves.

Everybody agrees to it as to any run. Only the parties that are new are asked, and train; of the others the label holder
kept what they sent. Rows have other numbers than they had, because an alignment is numbered anew with other parties, so
they are found again by their ids: the rows that trained, validated and tested are the same people.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from colonnade.align.files import Alignment, read_as_of
from colonnade.checkpoint import fingerprint
from colonnade.config import build
from colonnade.deploy.agreement import Agreement
from colonnade.deploy.settings import CoordinatorConfig, coordinator_of
from colonnade.deploy.taken_run import Former, TakenRun
from colonnade.deploy.undertaking import Undertaking, in_full
from colonnade.deploy.undertaking_files import DEPLOYMENT, read_undertaking
from colonnade.engines.base import DEPLOYED
from colonnade.engines.taken_over import TakenOver
from colonnade.errors import ConfigError, RunError
from colonnade.methods.base import Extends, State
from colonnade.models.encoders import ModelSettings
from colonnade.privacy.labels import Labels, NoisyLabels
from colonnade.privacy.labels.settings import open_labels
from colonnade.record import RECORD, STORE
from colonnade.row_split import RowSplit
from colonnade.run import Run
from colonnade.store import Store

SAME = ("method", "training", "task", "outputs", "label_exposure", "privacy", "mechanism")  # of a proposal's text


def read_taken(read: CoordinatorConfig, alignment: Alignment, undertaking: Undertaking) -> Undertaking:
    """The same undertaking with the parts of the run that its configuration names, if it names one.

    Raises:
        ConfigError: parts of such a run cannot be taken over, or not so.
        RunError: the run kept no scores, or its files are not those that it was trained on.
    """
    folder = read.coordinator.takes_over
    if folder is None:
        return undertaking
    if folder.resolve() == read.coordinator.folder.resolve():
        raise ConfigError(f"takes_over names {str(folder)!r}, the folder of this run; name that of a finished one")
    run = _finished(folder)
    check_taken(run)
    with closing(Store(folder / STORE)) as store:
        about = store.about()
    before = _config(folder, run)
    rows = read_as_of(before.coordinator.alignment, str(about["agreement"]["proposal"]["alignment"]))
    then = read_taken(before, rows, read_undertaking(before, rows))  # which may have taken parts over itself
    training = read.training.in_rounds(read.method, then.split.train, undertaking.parties)  # as many rows as then
    now = replace(undertaking, training=training)
    return take_over(run, about, then, now, places(rows, alignment, len(undertaking.labels)))


def _finished(folder: Path) -> Run:
    """The run of a folder that `takes_over` names, also where the run that is taken over names it."""
    if not (folder / RECORD).exists():
        raise RunError(
            f"takes_over: {str(folder)!r} has no finished run of a label holder; it is needed as long as another run "
            "takes it over, or takes over one that did: put the folder back"
        )
    return Run.load(folder)


def check_taken(run: Run) -> None:
    """Refuse a run whose parts cannot be taken over.

    Raises:
        ConfigError: its parties were trained together, or it is a simulation.
        RunError: it kept no scores.
    """
    if run.about["engine"] != DEPLOYED:
        raise ConfigError(
            "takes_over names a simulation, whose parts are here and nowhere else: use colonnade extend or leave"
        )
    if not isinstance(run.method, Extends):
        raise ConfigError(
            f"takes_over: a model of {run.method.name} was trained by all parties together, so that none can join or "
            "leave; leave takes_over out, and everybody trains again"
        )
    if not run.kept:
        raise RunError(
            "takes_over: this run kept no scores of its parties, because an earlier version trained it; leave "
            "takes_over out, and everybody trains again"
        )


def _config(folder: Path, run: Run) -> CoordinatorConfig:
    """The configuration that a run was trained with, whatever has become of its file."""
    try:
        said = json.loads((folder / DEPLOYMENT).read_text(encoding="utf-8"))
        path = Path(said["config"])
    except (OSError, ValueError, KeyError, TypeError):
        raise RunError(f"{folder} has no {DEPLOYMENT} that can be read; restore it from a copy") from None
    if run.config is None:
        raise RunError(f"{folder} does not say how it was trained; leave takes_over out, and everybody trains again")
    tables = {name: dict(section) for name, section in run.config.items()}
    tables["coordinator"] = {**tables["coordinator"], "folder": str(folder.resolve())}
    return coordinator_of(tables, path)


def places(then: Alignment, now: Alignment, rows: int) -> Tensor:
    """(N,) which row each of the first `rows` of an alignment was in a former one; -1: none."""
    was = dict(zip(then.ids, then.rows.tolist(), strict=True))
    found = np.full(rows, -1, dtype=np.int64)
    for row, id in zip(now.rows.tolist(), now.ids, strict=True):
        if row < rows:
            found[row] = was.get(id, -1)
    return torch.from_numpy(found)


def take_over(run: Run, about: Mapping[str, Any], then: Undertaking, now: Undertaking, places: Tensor) -> Undertaking:
    """What the label holder undertakes now, with the rows that trained then and the scores that came then.

    Args:
        run: the former one, finished.
        about: what its store says of it: the agreement, and the key of its label noise.
        then: what was undertaken then, read again from the label holder's files.
        now: what is undertaken now; its own split is not used.
        places: (N,) which row each row was then; -1: none.

    Raises:
        ConfigError: settings or parties do not fit.
        RunError: rows or labels are not those of then.
    """
    check_taken(run)
    agreement = Agreement.from_json(about["agreement"])
    proposal = agreement.proposal
    former = Former(str(proposal.body["run"]), proposal.digest, proposal.parties)
    _check_parties(former, now)
    split = _split(then.split, now, places)
    _check_people(former, split, now)
    _check_settings(former, proposal.body, replace(now, split=split))
    if about["data"] != fingerprint(then.federation(agreement)):
        raise RunError(
            f"the labels, row weights or split of run {former.run!r} are not those that it was trained with; put the "
            "label holder's table of then back"
        )
    _check_labels(former, then, now, places, split)
    kept = _kept(run, places, split, now.may_evaluate)
    asked = tuple(name for name in now.parties if name not in former.parties)
    labels = _drawn(then, now, int(about["label_key"], 16), places)
    return replace(now, split=split, taken=TakenRun(former, TakenOver(asked, kept, places, labels), run.about))


def _check_parties(former: Former, now: Undertaking) -> None:
    stay = [name for name in now.parties if name in former.parties]
    if not stay:
        raise ConfigError(
            f"takes_over: none of {', '.join(now.parties)} was in run {former.run!r} ({', '.join(former.parties)}); "
            "leave takes_over out"
        )
    if set(stay) == set(former.parties) and len(stay) == len(now.parties):
        raise ConfigError(
            f"takes_over: the parties are those of run {former.run!r}, so that nobody joins or leaves; leave "
            "takes_over out, and everybody trains again"
        )
    if now.absence.then == "continue":
        raise ConfigError(
            "takes_over: nothing can be fitted without a party that joins; needed absence.then = 'wait' or 'stop'"
        )


def _check_settings(former: Former, body: Mapping[str, Any], now: Undertaking) -> None:
    """All that shaped the former run is as it was; only newcomers may have local models of other kinds."""
    said = json.loads(json.dumps(replace(now, privacy=in_full(now)).body("")))
    if other := [name for name in SAME if said.get(name) != body.get(name)]:
        raise ConfigError(
            f"takes_over: {', '.join(other)} of the proposal would be other than in run {former.run!r}, whose parts "
            "stay as they are; put the settings back to what they were"
        )
    stay = [name for name in now.parties if name in former.parties]
    if now.model.only(stay) != build(ModelSettings, body["model"], "model").only(stay):
        raise ConfigError(
            f"takes_over: [model] is not that of run {former.run!r}, whose parts stay as they are; put it back, and "
            "say what is different about a newcomer in a section of its own ([model.NAME])"
        )


def _split(then: RowSplit, now: Undertaking, places: Tensor) -> RowSplit:
    """The rows of then by their numbers of now, in the order they had."""
    number = torch.full((int(max(int(places.max()), *(int(p.max()) for p in _parts(then) if len(p)))) + 1,), -1)
    there = (places >= 0).nonzero()[:, 0]
    number[places[there]] = there
    found = [number[part] for part in _parts(then)]
    missing = int(sum((part < 0).sum() for part in found))
    if missing:
        raise RunError(
            f"{missing:,} of {sum(map(len, found)):,} rows of the former run are not among those that are aligned now, "
            "because a party that joins lacks them or somebody withdrew. To go on with the rows that it has, align "
            "with keep = 'partial' and train_on = 'all'; without people who withdrew, leave takes_over out"
        )
    train, validation, test = found
    if now.held is not None:  # whoever lacks a row cannot be judged by it
        whole = now.held.all(dim=1)
        validation, test = validation[whole[validation]], test[whole[test]]
        for name, before, left in (("validation", then.validation, validation), ("test", then.test, test)):
            if len(before) and not len(left):
                raise RunError(f"the parties that join hold none of the {len(before):,} {name} rows of the former run")
    return RowSplit(train, validation, test, then.stratified)


def _parts(split: RowSplit) -> tuple[Tensor, Tensor, Tensor]:
    return split.train, split.validation, split.test


def _check_people(former: Former, split: RowSplit, now: Undertaking) -> None:
    """Nobody of then withdrew since: parts that stay as they are have learned from them."""
    gone = int(torch.isin(torch.cat(_parts(split)), torch.tensor(now.withdrawn, dtype=torch.int64)).sum())
    if gone:
        raise RunError(
            f"takes_over: {gone:,} of the people of run {former.run!r} withdrew, and its parts learned with them; "
            "leave takes_over out, and everybody trains again without them"
        )


def _check_labels(former: Former, then: Undertaking, now: Undertaking, places: Tensor, split: RowSplit) -> None:
    """Labels and weights of the rows that are used are what they were."""
    rows = torch.cat(_parts(split))
    was, same = places[rows], then.task.outputs == now.task.outputs and then.task.names == now.task.names
    if not same or not torch.equal(then.labels[was], now.labels[rows]):
        raise RunError(
            f"takes_over: labels of rows of run {former.run!r} are not what they were; put the table back, or leave "
            "takes_over out, and everybody trains again"
        )
    weights = [None if u.weights is None else u.weights[at] for u, at in ((then, was), (now, rows))]
    if (weights[0] is None) != (weights[1] is None) or (
        weights[0] is not None and weights[1] is not None and not torch.equal(weights[0], weights[1])
    ):
        raise RunError(f"takes_over: weights of rows of run {former.run!r} are not what they were; put them back")


def _kept(run: Run, places: Tensor, split: RowSplit, evaluates: bool) -> State:
    """What the former run kept of its parties; all that is needed of them must be there."""
    method, kept = run.method, dict(run.kept)
    assert isinstance(method, Extends)
    judged = places[torch.cat([split.validation, split.test])]
    if evaluates and len(judged) and method.recall(kept, judged) is None:
        raise RunError(
            "takes_over: the former run ended before its test rows were evaluated, so that scores of them are missing; "
            "leave takes_over out, and everybody trains again"
        )
    return kept


def _drawn(then: Undertaking, now: Undertaking, key: int, places: Tensor) -> Labels | None:
    """Noisy labels as they were drawn then: other draws would cost their epsilon a second time."""
    settings = then.privacy.labels
    if not settings.protects:
        return None
    drawn = None if then.taken is None else then.taken.over.labels
    if drawn is None:
        drawn = open_labels(then.labels, then.task, then.split.train, settings, key, then.split.validation)
    assert isinstance(drawn, NoisyLabels)
    found = torch.where(places >= 0, drawn.place.cpu()[places.clamp(min=0)], -1)
    return replace(drawn, task=now.task, place=found)
