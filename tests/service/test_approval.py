"""Approval by a person: a proposal waits, is approved or refused with a signature, and all see who is waited for."""

from __future__ import annotations

import json
import math
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from colonnade.config import build
from colonnade.deploy import coordinator as coordinator_module
from colonnade.deploy.approval import why_a_person
from colonnade.deploy.decision import Decision, decide, decided, person
from colonnade.deploy.membership import PartySetup
from colonnade.deploy.policy import Policy
from colonnade.deploy.withdrawal.waiting import admit
from colonnade.errors import ConfigError, IdentityError, Refused, RunError
from colonnade.identity.credentials import Credentials
from colonnade.privacy.events import Unit
from colonnade.privacy.together import Together
from colonnade.run import Run
from colonnade.service.listing import decide_about, list_runs
from colonnade.wire.messages import COORDINATOR
from colonnade.withdrawn import read_withdrawn
from tests.cli.conftest import Call, cli
from tests.deploy.memory import Room, SmallTrial
from tests.deploy.trials import DATA, METHOD, MODEL, PARTIES, PATIENCE, TRAINING

__all__ = ["cli"]  # the fixture
ASKED = "party_1"


@dataclass(frozen=True)
class AskingTrial(SmallTrial):
    """One party's policy asks for a person."""

    policy: dict[str, Any] = field(default_factory=lambda: {"approval": True})

    def setup(self, name: str) -> PartySetup:
        policy = self.policy if name == ASKED else {}
        return replace(super().setup(name), policy=build(Policy, policy, "policy"))


@dataclass
class Story:
    """A label holder that trains in a thread of its own, and how that ended."""

    room: Room
    run: Run | None = None
    error: BaseException | None = None

    def begin(self) -> threading.Thread:
        def train() -> None:
            try:
                self.run = self.room.train()
            except BaseException as error:
                self.error = error

        thread = threading.Thread(target=train, daemon=True)
        thread.start()
        return thread

    @property
    def place(self) -> Path:
        return self.room.trial.place(ASKED)

    @property
    def me(self) -> Credentials:
        return Credentials.load(self.room.trial.connections[ASKED])


def until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def story(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Story]:
    """A training of three that waits for a person at one of them."""
    monkeypatch.setattr(coordinator_module, "ASK_AGAIN", 0.2)
    settings = {"data": DATA, "method": METHOD, "model": MODEL, "training": TRAINING}
    room = Room.of(tmp_path / "room", PARTIES, **settings)
    room = replace(room, trial=AskingTrial(**vars(room.trial)))
    with room:
        yield Story(room)


def test_a_proposal_waits_until_a_person_approves(story: Story, cli: Call) -> None:
    training = story.begin()
    until(lambda: any(ASKED in event.get("note", "") for event in story.room.said(COORDINATOR, "waiting")))
    (listed,) = list_runs(story.place, story.me)
    assert (listed.run, listed.state, listed.facts["rounds"]) == ("test", "waits for approval", TRAINING["rounds"])
    assert all(text.endswith("without noise") for text in listed.leaves)
    assert story.room.said(ASKED, "joined") == []
    assert len(story.room.said(ASKED, "approval needed")) == len(story.room.said(ASKED, "proposal")) == 1
    config = party_file(story)
    told = cli("runs", config)
    assert "test: waits for approval" in told.out and "6 rounds" in told.out and "no epsilon" in told.out
    assert "labels: this party can read the training labels" in " ".join(told.out.split())
    done = cli("approve", "test", "--config", config, "--json")
    assert done.json["decision"] == "approved"
    training.join(PATIENCE)
    assert story.run is not None and story.error is None
    (listed,) = list_runs(story.place, story.me)
    assert (listed.state, listed.round) == ("finished", TRAINING["rounds"])
    kept = decided(story.place, listed.digest, story.me)
    assert kept is not None and kept.approved and kept.time and kept.by == person() == done.json["by"]
    record = json.loads((story.place / "party.json").read_text())
    assert record["decision"] == json.loads((story.place / "proposal.json").read_text())["decision"] == kept.kept()
    told = f"approved by {kept.by} at {kept.time}"
    assert told == listed.decided and told in cli("runs", config).out and told in cli("status", config).out
    (signed,) = json.loads(cli("ledger", "export", story.place, "--format", "json").out)["decisions"]
    assert signed["body"]["by"] == kept.by and signed["signature"]
    late = cli("refuse", "test", "--because", "x", "--config", config)
    assert late.code == 2 and "was agreed on already" in late.err
    other = cli("approve", "tset", "--config", config)
    assert other.code == 2 and "no proposal of a run 'tset'" in other.err


def test_a_refusal_reaches_the_label_holder_with_its_reason(story: Story) -> None:
    training = story.begin()
    until(lambda: [listed for listed in list_runs(story.place, story.me) if listed.state == "waits for approval"])
    decide_about(story.place, story.me, Decision("test", "", False, "ask again\nafter the audit"))
    training.join(PATIENCE)
    assert isinstance(story.error, Refused)
    assert "party 'party_1' refuses: a person refused the run: ask again after the audit" in str(story.error)
    (listed,) = list_runs(story.place, story.me)
    assert listed.state == "refused" and "after the audit" in listed.reason
    with pytest.raises(ConfigError, match="another proposal of run 'test' by now"):
        decide_about(story.place, story.me, Decision("test", "0" * 64, True))  # what was shown is what is signed
    decide_about(story.place, story.me, Decision("test", "", True))  # people may change their minds
    again = Story(story.room)
    again.begin().join(PATIENCE)
    assert again.run is not None, again.error


def party_file(story: Story) -> Path:
    """A party.toml whose folder is that of the room."""
    connection = story.room.trial.connections[ASKED]
    lines = [f'{key} = "{getattr(connection, key)}"' for key in ("server", "authority", "certificate", "key")]
    path = story.room.trial.folder / "party.toml"
    party = f'[party]\nname = "{ASKED}"\ntable = "t.csv"\nid = "i"\nfolder = "{story.place}"\n[connection]\n'
    path.write_text(party + "\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("who", [ASKED, COORDINATOR])
def test_a_withdrawal_that_waits_is_shown_and_decided(tmp_path: Path, cli: Call, who: str) -> None:
    room = Room.of(tmp_path / "room", PARTIES, data=DATA, method=METHOD)
    story = Story(room)
    config = party_file(story) if who == ASKED else coordinator_file(story)
    people = config.parent / "withdrawn.json"
    admit(people, ["a", "b", "c"], "party_2", 2)
    shown = ("status", "forget") if who == COORDINATOR else ("status", "forget", "runs")
    for command in shown:
        assert "withdrawal:party_2: waits for approval: party_2 leaves out 3 people" in cli(command, config).out
        assert "people" in str(cli(command, config, "--json").json)
    refused = cli("refuse", "withdrawal:party_2", "--because", "ask us first", "--config", config)
    assert refused.code == 0 and "withdrawal:party_2: refused (ask us first)" in cli("status", config).out
    told = cli("approve", "withdrawal:party_2", "--config", config, "--json").json
    assert (told["decision"], told["people"]) == ("approved", 3) and told["by"]
    assert read_withdrawn(people).ids == {"a", "b", "c"} and "withdrawal:" not in cli("status", config).out
    again = cli("approve", "withdrawal:party_2", "--config", config)
    assert again.code == 2 and "open: none" in again.err


def coordinator_file(story: Story) -> Path:
    connection = story.room.trial.connections[COORDINATOR]
    lines = [f'{key} = "{getattr(connection, key)}"' for key in ("server", "authority", "certificate", "key")]
    path = story.room.trial.folder / "coordinator.toml"
    names = json.dumps(list(PARTIES))
    holder = f'[coordinator]\nrun = "test"\nparties = {names}\ntable = "t.csv"\nid = "i"\nlabel = "y"\n[connection]\n'
    path.write_text(holder + "\n".join(lines) + "\n")
    return path


# -- decisions --------------------------------------------------------------------------------


@pytest.fixture
def people(tmp_path: Path) -> dict[str, Credentials]:
    room = Room.of(tmp_path / "people", ("one", "two"), data=DATA, method=METHOD)
    return {name: Credentials.load(room.trial.connections[name]) for name in ("one", "two")}


def test_a_decision_holds_for_its_proposal_and_its_signer(tmp_path: Path, people: dict[str, Credentials]) -> None:
    digest, other = "a" * 64, "a" * 16 + "b" * 48
    assert decided(tmp_path, digest, people["one"]) is None
    decide(tmp_path, Decision("churn", digest, True, "", "2026-01-01T00:00:00Z"), people["one"])
    found = decided(tmp_path, digest, people["one"])
    assert found is not None and found.approved
    with pytest.raises(IdentityError, match="about something else"):
        decided(tmp_path, other, people["one"])  # the file's name has only the beginning
    decide(tmp_path, Decision("churn", digest, True), people["two"])
    with pytest.raises(IdentityError, match="only 'one' may sign this"):
        decided(tmp_path, digest, people["one"])
    decide(tmp_path, Decision("churn", digest, False), people["one"])
    path = tmp_path / "decision-aaaaaaaaaaaaaaaa.json"
    path.write_text(path.read_text().replace('"approved": false', '"approved": true'))
    with pytest.raises(IdentityError, match="does not hold"):
        decided(tmp_path, digest, people["one"])
    path.write_text("[]")
    assert decided(tmp_path, digest, people["one"]) is None
    path.write_text(json.dumps({"body": 1}))
    with pytest.raises(IdentityError, match="no signed decision"):
        decided(tmp_path, digest, people["one"])
    path.write_text("{")
    with pytest.raises(RunError, match="cannot be read"):
        decided(tmp_path, digest, people["one"])


@pytest.mark.parametrize(
    ("policy", "epsilon", "needle"),
    [
        ({}, math.inf, ""),
        ({"approval": True}, 0.1, "approval:"),
        ({"approval_above_epsilon": 2.0}, 2.0, ""),
        (
            {"approval_above_epsilon": 2.0},
            2.1,
            "epsilon 2.1 (exact accountant over 3 releases, delta 1e-05, unit PARTY, neighbours: absent)",
        ),
        ({"approval_above_epsilon": 2.0}, math.inf, "no bound at all (unit PARTY): 3 releases left without noise"),
        ({"approval_above_epsilon": 2.0}, math.nan, "approval above 2"),
    ],
)
def test_when_a_person_is_asked(policy: dict[str, Any], epsilon: float, needle: str) -> None:
    cost = Together(Unit.PARTY, epsilon, 1e-5, "absent", "exact", 3, "3 releases left without noise")
    why = why_a_person(build(Policy, policy, "policy"), cost)
    assert needle in why and bool(why) == bool(needle)


def test_a_folder_without_runs(tmp_path: Path, people: dict[str, Credentials]) -> None:
    assert list_runs(tmp_path / "gone", people["one"]) == []
    (tmp_path / "empty").mkdir()
    assert list_runs(tmp_path, people["one"]) == []
    with pytest.raises(ConfigError, match="open: none"):
        decide_about(tmp_path, people["one"], Decision("churn", "", True))
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "party.db").write_text("no database, whatever its name says" * 50)
    (listed,) = list_runs(tmp_path, people["one"])
    assert (listed.run, listed.state) == ("broken", "damaged")
    shutil.rmtree(tmp_path / "broken")
