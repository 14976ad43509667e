"""Runs that take over parts of others: tasks, local models and stacks of every kind; and noise of then."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from sklearn.ensemble import HistGradientBoostingRegressor

from colonnade.deploy.party import PartyProcess
from colonnade.deploy.party_setup import PartySetup
from colonnade.deploy.policy import Policy
from colonnade.errors import Refused
from colonnade.part import Part
from colonnade.wire.messages import Purpose, Query, Request
from tests.deploy.former import EVERYBODY, NOISE, ONE, TINY, everybody, rooms, train_both, wanted_of
from tests.deploy.memory import Room

KINDS: dict[str, dict[str, Any]] = {
    "numbers": {"data": {"task": "regression"}},
    "counts": {"data": {"task": "count"}},
    "classes": {"data": {"task": "multiclass"}},
    "linear": {"model": {"encoder": "ridge"}},
}


@pytest.mark.parametrize("kind", list(KINDS))
def test_every_task_with_rows_of_other_numbers(kind: str, tmp_path: Path) -> None:
    order = torch.randperm(250, generator=torch.Generator().manual_seed(4))
    before, after = rooms(tmp_path, order=order, **KINDS[kind])
    run, told = train_both(before, after, 60)
    wanted = wanted_of(after.trial)
    name = next(iter(wanted.metrics))
    assert run.metrics[name]["test"] == pytest.approx(wanted.metrics[name]["test"], abs=1e-9)
    asked = everybody(after.trial.data["task"]).select(order[:60])
    torch.testing.assert_close(told, wanted.logits(asked), rtol=0, atol=1e-6)


def bringing(room: Room, **changes: Any) -> None:
    """Every party of a room has this in its setup."""
    kind: Any = type(room.trial)

    @dataclass(frozen=True)
    class Changed(kind):
        def setup(self, name: str) -> PartySetup:
            return replace(super().setup(name), **changes)

    room.trial = Changed(**{name: getattr(room.trial, name) for name in kind.__dataclass_fields__})


def test_estimators_of_the_parties_own(tmp_path: Path) -> None:
    own = {name: HistGradientBoostingRegressor(max_iter=8, min_samples_leaf=5, random_state=0) for name in EVERYBODY}
    before, after = rooms(tmp_path)
    for room in (before, after):
        bringing(room, encoders=own)
    _, told = train_both(before, after, 60)
    wanted = wanted_of(after.trial, encoders=own)
    torch.testing.assert_close(told, wanted.logits(everybody().select(torch.arange(60))), rtol=0, atol=1e-9)


def test_with_trees_on_top(tmp_path: Path) -> None:
    """The guest's columns are kept beside the scores, and grow the trees again."""
    top = {"stack": "trees", "guest": "party_0"}
    before, after = rooms(tmp_path, method={**ONE, **top})
    for room in (before, after):
        bringing(room, policy=Policy(shows_columns=True))
    run, told = train_both(before, after, 60)
    wanted = wanted_of(after.trial, **top)
    assert run.metrics == wanted.metrics
    torch.testing.assert_close(told, wanted.logits(everybody().select(torch.arange(60))), rtol=0, atol=1e-9)


def test_rows_that_trained_with_noise_stay_so_whatever_becomes_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Left out of the alignment that the parts are taken over with, and put back by an extension, they are new."""
    before, after = rooms(tmp_path, model=TINY, privacy=NOISE, training={"evaluate_every": 0})
    there, serve = {}, PartyProcess.serve

    def noted(process: PartyProcess) -> None:
        there[process.member.run, process.member.me] = process.member
        serve(process)

    monkeypatch.setattr(PartyProcess, "serve", noted)
    with before:
        before.train()
    with after:
        after.train()
    member = there["second", "party_0"]
    trained = Part.load(before.trial.place("party_0")).trained
    assert trained is not None and member.agreement is not None
    kept = Part.load(after.trial.place("party_0")).trained
    assert kept is not None and kept.to_bytes("x") == trained.to_bytes("x"), "as it was: it did not train again"
    proposal = member.agreement.proposal
    gone = proposal.train[:5]
    member.agreement = replace(member.agreement, proposal=replace(proposal, train=proposal.train[5:]))
    asked = Query(Purpose.PREDICT, EVERYBODY, gone)
    with pytest.raises(Refused, match="5 of the rows"):
        member.check_request(Request(9, (asked,)))
