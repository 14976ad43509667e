"""Bad messages from a party, and bad messages in the coordinator's name: refused, named, and without effect."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from colonnade.bench.noise import SeededNoise
from colonnade.config import build
from colonnade.engines.message import Outgoing
from colonnade.engines.nats import NatsLink
from colonnade.models.encoders import ModelSettings
from colonnade.run import Run
from colonnade.testing.trainings import timeless
from colonnade.wire.container import LIMIT
from colonnade.wire.messages import COORDINATOR
from colonnade.wire.notice import Notice
from tests.contracts.registry import make
from tests.deploy import lies
from tests.deploy.puppet import AGREEMENTS, LISTENER, ORDERS, POLICY, PROPOSALS, REPEATED, Puppet, Reaction
from tests.deploy.trials import DATA, METHOD, MODEL, PARTIES, ROUNDS, RUN, TRAINING, Deed, Ending, Stage
from tests.federations import small
from tests.nats_server import NatsServer, needs_nats
from tests.trainers import changed, open_trainer

pytestmark = needs_nats
LIAR = "party_1"
HERE = "tests.deploy.lies:"

# -- towards the coordinator --------------------------------------------------------------------


@pytest.fixture(scope="module")
def lied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A whole run in which one party lies in all ways before it says what it should, when joining and in round 3."""
    deeds = (
        Deed(LIAR, "before sending", "JOIN -1", HERE + "lie_about_consent"),
        Deed(LIAR, "before sending", "TRAIN 2", HERE + "remember"),
        Deed(LIAR, "before sending", "EVALUATE 3", HERE + "lie_about_uploads"),
        Deed(LIAR, "after sending", "EVALUATE 3", HERE + "say_it_again_differently"),
        Deed("party_0", "before a commit", 3, "wait"),  # so that the coordinator is still in round 3
    )
    with Stage(tmp_path_factory.mktemp("lied"), *deeds) as stage:
        stage.organisations.start()
        stage.wait_for(COORDINATOR, "repetition", round=3)
        stage.go()
        stage.play()
        yield stage


def refusals(stage: Stage) -> list[dict[str, Any]]:
    return stage.said(COORDINATOR, "refused")


EXPECTED = {
    **{f"consent: {name}": reason for name, (_, reason) in lies.CONSENTS.items()},
    **{f"upload: {name}": reason for name, (_, reason) in {**lies.UPLOADS, **lies.OPEN}.items()},
    "upload: a damaged envelope": lies.DAMAGED,
}


def told_apart(stage: Stage) -> dict[str, dict[str, Any]]:
    """The refusal of each lie, in order; on a busy machine one may be delivered, and refused, once more."""
    found: dict[str, dict[str, Any]] = {}
    left, before = refusals(stage), ""
    for lie, reason in EXPECTED.items():
        while left and reason not in left[0]["reason"] and before and before in left[0]["reason"]:
            left.pop(0)
        if left:
            found[lie], before = left.pop(0), reason
    assert all(before in refusal["reason"] for refusal in left)
    return found


@pytest.mark.parametrize("lie", EXPECTED)
def test_a_lie_is_refused_and_its_teller_named(lie: str, lied: Stage) -> None:
    refusal = told_apart(lied)[lie]
    assert refusal["party"] == LIAR
    assert EXPECTED[lie] in refusal["reason"]


def test_replays_and_second_versions_count_as_repetitions(lied: Stage) -> None:
    told = {(e["party"], e["round"]) for e in lied.said(COORDINATOR, "repetition")}
    assert told >= {(LIAR, 2), (LIAR, 3)}


def test_the_truth_after_all_lies_gives_the_undisturbed_run(lied: Stage, calm: Ending) -> None:
    assert lied.ending().differences(calm) == []


def test_a_run_that_was_refused_starts_when_the_reason_is_gone(calm: Ending, tmp_path: Path) -> None:
    """Everybody refuses; the refusals that the coordinator did not stay to read do not count against the next try."""
    with Stage(tmp_path, policy={"most_rounds": ROUNDS - 1}) as stage:
        stage.organisations.start()
        assert stage.wait_until_gone(COORDINATOR) == [2]
        assert "refuses: most_rounds: 6 rounds were asked for, the policy allows 5;" in stage.failure(COORDINATOR)
        for party in PARTIES:
            assert "most_rounds: 6 rounds were asked for" in stage.wait_for(party, "refusing")["reason"]
            stage.kill(party)
        stage.change(policy={})
        assert stage.play().differences(calm) == []


@pytest.mark.parametrize("kept", [False, True])
def test_the_largest_message_arrives(tmp_path: Path, kept: bool) -> None:
    """nats-server acknowledges larger ones for a stream, too, but cannot read them back from its disk."""
    with NatsServer(tmp_path, ("first",)) as server:
        ends = {
            name: NatsLink(server.credentials(name), RUN, lambda *_, **__: None, keeps_answers=kept).open()
            for name in ("coordinator", "first")
        }
        try:
            ends["coordinator"].lay(["first"])
            ends["coordinator"].listen()
            frame = len(Notice(RUN, 1, "BLOB", "first", {}, {"all": bytes(8)}).payload)
            largest = Notice(RUN, 1, "BLOB", "first", {}, {"all": bytes(LIMIT - frame - 8)})
            assert LIMIT - 64 < len(largest.payload) <= LIMIT
            ends["first"].send(Outgoing(COORDINATOR, largest))
            incoming = ends["coordinator"].next(20)
            assert incoming is not None and incoming.data == largest.payload
        finally:
            for link in ends.values():
                link.close()


# -- towards a party ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def misled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[dict[str, Reaction], Run, Stage]]:
    """A whole run in which the coordinator's certificate is abused at each step before it is used as it should be."""
    folder, told = tmp_path_factory.mktemp("misled"), dict[str, Reaction]()
    with Stage(folder, policy=POLICY) as stage:
        puppet = Puppet(stage, folder)
        try:
            stage.organisations.start(LISTENER)
            stage.wait_for(LISTENER, "listening")
            for lie, (words, reason) in PROPOSALS.items():
                told[lie] = puppet.notify(words(puppet), reason)
            told["garbage, to one party"] = puppet.notify(b"garbage", TOLD["garbage, to one party"], LISTENER)
            puppet.drain()
            consent = puppet.joined()
            for lie, (offer, reason) in AGREEMENTS.items():
                told[lie] = puppet.notify(offer(puppet, consent), reason)
            puppet.drain()
            puppet.agree()
            for lie, (order, reason) in ORDERS.items():
                told[f"order: {lie}"] = puppet.notify(order(puppet, puppet.next_request()), reason)
            told[REPEATED] = puppet.notify(puppet.encrypt(puppet.next_request().but(number=1), 1), "repeating")
            puppet.drain()
            yield told, puppet.finish(), stage
        finally:
            puppet.close()


TOLD = {
    **{lie: reason for lie, (_, reason) in PROPOSALS.items()},
    **{lie: reason for lie, (_, reason) in AGREEMENTS.items()},
    **{f"order: {lie}": reason for lie, (_, reason) in ORDERS.items()},
    "garbage, to one party": "truncated or not a message at all",
}


@pytest.mark.parametrize("lie", TOLD)
def test_a_party_refuses_and_stays_as_it_was(lie: str, misled: tuple[dict[str, Reaction], Run, Stage]) -> None:
    reaction = misled[0][lie]
    assert reaction.event in ("refused", "refusing")
    assert TOLD[lie] in reaction.reason
    assert not reaction.changed


def test_a_request_that_was_carried_out_changes_nothing(misled: tuple[dict[str, Reaction], Run, Stage]) -> None:
    assert misled[0][REPEATED] == Reaction("repeating", "", False)


def test_the_party_ends_as_if_nobody_had_lied(misled: tuple[dict[str, Reaction], Run, Stage]) -> None:
    _, run, stage = misled
    whole = small(**DATA)
    alone = replace(whole, parties=tuple(p for p in whole.parties if p.name == LISTENER))
    expected = open_trainer(
        alone, make(METHOD["name"], local_steps=2), model=build(ModelSettings, MODEL, "model"),
        mechanism=SeededNoise(0.05), engine="loop", **TRAINING,
    ).train()  # fmt: skip
    assert run.fingerprint() == changed(expected, models={}).fingerprint()
    assert run.result["test_score"] == expected.result["test_score"]
    assert stage.ledger(LISTENER) == [timeless(r) for r in expected.ledger if r.owner == LISTENER]
