"""Unit ROW between organisations: draws and noise of each party's own, counted once, whoever is killed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from colonnade.cli.privacy_explain import promise_of
from colonnade.config import build
from colonnade.deploy.agreement import Proposal
from colonnade.deploy.by_row import row_event, row_protection, steps_of
from colonnade.deploy.membership import Membership
from colonnade.deploy.party_setup import Columns, PartySetup
from colonnade.deploy.undertaking import Undertaking
from colonnade.errors import ConfigError
from colonnade.methods import LocalOnly
from colonnade.models.encoders import ModelSettings
from colonnade.privacy.ledger import Entry
from colonnade.privacy.sampled import SampledGaussianEvent, sampled_epsilon
from colonnade.privacy.settings import PrivacySettings
from colonnade.report.officer import verdict
from colonnade.report.officer_source import of_party, of_run
from colonnade.report.privacy import statement_of_run
from colonnade.run import Run, Training
from colonnade.store import Store
from colonnade.wire.messages import COORDINATOR, Purpose
from tests.deploy.test_privacy import KILLS, stage
from tests.deploy.trials import PARTIES, ROUNDS, two_versions
from tests.federations import small
from tests.nats_server import needs_nats

METHOD = {"name": "local_only", "local_steps": 2}
ROWS = {"unit": "row", "epsilon": 4.0}
MODEL = {"encoder": "tanh", "embedding": 4}
PRIVATE: dict[str, Any] = {"method": METHOD, "model": MODEL, "privacy": ROWS}


def steps_taken(folder: Path) -> int:
    """By the model that a party's store holds."""
    store = Store(folder / "party.db")
    try:
        saved = store.snapshot()
        assert saved is not None
        return int(saved.tensors["cohort.memory.row_steps"][0])
    finally:
        store.close()


@needs_nats
def test_training_is_counted_once_whoever_is_killed(tmp_path: Path) -> None:
    with stage(tmp_path, *KILLS, **PRIVATE) as s:
        ending = s.play()
        assert s.kills == len(KILLS)
    assert [m for who in (COORDINATOR, *PARTIES) for m in two_versions(s.sent(who))] == []
    for party in PARTIES:
        events = [Entry.from_json(e) for e in ending.ledgers[party]]
        training = [e for e in events if e.purpose is Purpose.TRAIN]
        assert len(training) == 1 and training[0] is events[0]  # before anything that the model says
        event = training[0].event
        assert isinstance(event, SampledGaussianEvent)
        assert (event.steps, event.at_parties, event.simulated) == (2 * ROUNDS, len(PARTIES), False)
        assert sampled_epsilon([event], 1e-5) <= 4.0
        assert steps_taken(s.trial.place(party)) <= event.steps
    run = Run.load(s.trial.place(COORDINATOR))
    assert run.result["test_score"] is not None
    told = statement_of_run(run)
    assert told.to_json()["unit"] == "ROW" and "epsilon 4 (delta 1e-05, unit ROW" in told.lines()[0]
    at_holder, at_party = of_run(s.trial.place(COORDINATOR), "party_1"), of_party(s.trial.place("party_1"))
    for source in (at_holder, at_party):  # what left for evaluation is on both pages, and nothing of training is
        assert {flow.purpose for flow in source.flows} == {"EVALUATE"}
        assert "unit ROW" in " ".join(verdict(source)) and "unit PARTY" not in " ".join(verdict(source))
    assert [f.messages for f in at_holder.flows] == [f.messages for f in at_party.flows]
    own = " ".join(promise_of(s.trial.place("party_1")).lines())
    assert "Rows: epsilon 3.9" in own and "3 parties, 12 steps each at most" in own
    assert "releases for EVALUATE, which left without noise" in own and "Not covered: validation and test rows" in own


def proposed(**privacy: Any) -> Proposal:
    """A proposal as it arrives at a party; sigma is what the label holder calibrated, unless it says otherwise."""
    data = small(widths=(5, 4, 5), rows=90)
    training = build(Training, {"rounds": 6, "schedule": {"batch": 20}}, "training")
    settings = build(PrivacySettings, {**ROWS, **privacy}, "privacy")
    undertaking = Undertaking(
        data.names, data.labels, data.task, data.split, LocalOnly(local_steps=2), ModelSettings(), training,
        privacy=settings,
    )  # fmt: skip
    return Proposal(undertaking.body("test"), data.split.train, {})


def test_a_party_computes_the_cost_itself() -> None:
    plan = steps_of(proposed())
    assert (plan.steps, plan.parties, plan.batch) == (12, 3, 20)
    sigma = proposed().privacy().sigma_by_row(plan)
    event = row_event(proposed(sigma=sigma))
    assert isinstance(event, SampledGaussianEvent) and 3.9 < sampled_epsilon([event], 1e-5) <= 4.0
    with pytest.raises(ConfigError, match=r"12 steps at each of 3 parties with sigma .* would cost epsilon"):
        row_event(proposed(sigma=0.9 * sigma))
    assert row_protection(proposed(sigma=sigma)).noised


def test_columns_become_numbers_by_rows_that_do_not_train() -> None:
    seen: list[Tensor] = []

    def columns(rows: Tensor, of: int, left_out: Tensor | None = None) -> Columns:
        seen.append(rows)
        return Columns(torch.zeros(of, 5), torch.ones(of, dtype=torch.bool), scaled=True)

    nobody = torch.empty(0, dtype=torch.int64)
    member: Any = SimpleNamespace(setup=PartySetup(columns), me="party_0", left_out=nobody, _part=None)
    proposal = proposed()
    Membership._read_columns(member, proposal)
    assert len(seen[0]) and not set(seen[0].tolist()) & set(proposal.train.tolist())
    Membership._read_columns(member, proposed(unit="party", epsilon=None, mechanism="none"))
    assert seen[1].tolist() == proposal.train.tolist()
    member.left_out = seen[0][:1]  # a person who withdrew
    Membership._read_columns(member, proposal)
    assert seen[2].tolist() == seen[0][1:].tolist()


def test_other_methods_are_refused() -> None:
    proposal = proposed()
    body = {**proposal.body, "method": {"name": "vimadmm_j", "settings": {}}}
    with pytest.raises(ConfigError, match="vimadmm_j uploads: use local_only"):
        row_event(Proposal(body, proposal.train, {}))
