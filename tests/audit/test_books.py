"""What a ledger may say of the coordinator's messages follows from how the labels were protected."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest

from colonnade.audit.attacks import attack
from colonnade.audit.books import AuditedRun, Books, check_books
from colonnade.audit.examine import open_again
from colonnade.audit.transcript import record
from colonnade.fit import fit
from colonnade.methods import LinearADMM
from colonnade.privacy.events import PlainEvent, Unit
from colonnade.privacy.labels.settings import LabelSettings
from colonnade.privacy.ledger import Ledger
from colonnade.privacy.settings import PrivacySettings
from colonnade.run import Run
from colonnade.wire.messages import COORDINATOR
from tests.audit.trainings import open_training
from tests.contracts.registry import make
from tests.federations import small


def trained(mechanism: Literal["none", "alibi", "randomised_response"]) -> Run:
    labels = LabelSettings(mechanism=mechanism, epsilon=None if mechanism == "none" else 2.0)
    return fit(small(), make("vimadmm_j"), rounds=2, evaluate_every=0, privacy=PrivacySettings(labels=labels))


def books(run: Run) -> Books:
    trainer = open_again(run, small())
    mechanism = trainer.engine.parties()[0].gate.protection.training
    return check_books(run, AuditedRun(trainer.coordinator.schedule, small().split, mechanism))


@pytest.mark.parametrize("mechanism", ["none", "alibi", "randomised_response"])
def test_replies_behind_any_label_mechanism_are_known(
    mechanism: Literal["none", "alibi", "randomised_response"],
) -> None:
    assert books(trained(mechanism)).problems == ()


def test_a_reply_from_plain_labels_is_found_in_a_run_that_protects_them() -> None:
    run = trained("alibi")
    plain = PlainEvent(unit=Unit.LABEL)
    run.model.ledger = Ledger(replace(r, event=plain) if r.owner == COORDINATOR and r.rows else r for r in run.ledger)
    assert any("the coordinator passed the mechanism 'none'" in problem for problem in books(run).problems)


def test_noise_in_a_model_is_no_noise_of_the_gate_to_play_against() -> None:
    """Uploads carry it already, and its sigma is in no unit that the game knows."""
    found = attack(record(open_training(small(), LinearADMM(noise=0.5), rounds=2)))
    told = [finding for finding in found if finding.attack.startswith("membership of a party")]
    assert [finding.attack for finding in told] == ["membership of a party, without noise"]
    assert all("norm C" not in finding.what_it_means for finding in told)


@pytest.mark.parametrize(("audience", "problems"), [("party_0", 0), ("party_1", 1), ("*", 1)])
def test_true_labels_may_go_to_the_label_holders_own_party_only(audience: str, problems: int) -> None:
    privacy = PrivacySettings(labels=LabelSettings(mechanism="randomised_response", epsilon=2.0))
    ridge = {"encoder": "ridge"}
    run = fit(small(), "one_message", guest="party_0", model=ridge, evaluate_every=0, privacy=privacy)
    assert books(run).problems == ()
    true = next(entry for entry in run.ledger if entry.owner == COORDINATOR and entry.audience == "party_0")
    assert isinstance(true.event, PlainEvent)
    run.ledger.record(replace(true, audience=audience, digest="0" * 64))
    assert len([told for told in books(run).problems if "that no accountant knows" in told]) == problems
