"""The server dies, forgets or goes back in time; somebody's folder is old, gone, or not what the run began with.

Whatever can go on ends like the undisturbed run. Whatever cannot is refused with a sentence, and nothing is lost:
with the right folder or table back, the same command goes on to the same end.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from colonnade.wire.messages import COORDINATOR
from tests.deploy.trials import DATA, PARTIES, TRAINING, Deed, Ending, Stage, two_versions
from tests.nats_server import needs_nats

pytestmark = needs_nats
SLOW = {"party_0": 0.1}  # seconds per round: slow enough to be disturbed in the middle
VICTIM = "party_1"


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with Stage(tmp_path, pause=SLOW) as opened:
        opened.organisations.start()
        yield opened


def ends_like(stage: Stage, calm: Ending) -> None:
    assert stage.play().differences(calm) == []
    assert [m for who in (COORDINATOR, *PARTIES) for m in two_versions(stage.sent(who))] == []


def test_the_server_is_killed_and_started_again(stage: Stage, calm: Ending) -> None:
    for one_round in (2, 4):
        stage.wait_for("party_0", "answered", round=one_round)
        stage.server.restart(kill=True)
    ends_like(stage, calm)
    assert all(stage.said(who, "reconnected") for who in (COORDINATOR, *PARTIES))


@pytest.mark.parametrize("moment", ["between rounds", "while a party is at work"])
def test_the_server_goes_back_by_some_rounds(moment: str, calm: Ending, tmp_path: Path) -> None:
    """It gives old numbers to new messages, and may wait for an acknowledgement of one that is gone."""
    at_work = moment == "while a party is at work"
    deeds = [Deed(VICTIM, "before a commit", 5, "wait")] if at_work else []
    with Stage(tmp_path, *deeds, pause=SLOW) as stage:
        stage.organisations.start()
        stage.wait_for("party_0", "answered", round=2)
        stage.server.stop()
        stage.server.save()
        stage.server.start()
        stage.wait_for("party_0", "answered", round=5)
        stage.server.stop()
        stage.server.roll_back()
        stage.server.start()
        stage.go()
        ends_like(stage, calm)


def test_the_server_forgets_everything(stage: Stage, calm: Ending) -> None:
    stage.wait_for("party_0", "answered", round=3)
    stage.server.kill()
    stage.server.wipe()
    stage.server.start()
    ends_like(stage, calm)


class Folder:
    """An organisation's folder and copies of it."""

    def __init__(self, stage: Stage, name: str) -> None:
        self.stage, self.name, self.path = stage, name, stage.trial.place(name)

    def copy(self, label: str) -> None:
        """Kill the organisation and copy what it has stored."""
        self.stage.kill(self.name)
        shutil.copytree(self.path, self.stage.trial.folder / f"{self.name}.{label}")

    def put_back(self, label: str) -> None:
        """What was stored is as in the copy; what the organisation said stays."""
        self.stage.kill(self.name)
        for old in self.path.iterdir():
            if old.suffix != ".jsonl":
                old.unlink()
        for file in (self.stage.trial.folder / f"{self.name}.{label}").iterdir():
            if file.suffix != ".jsonl":
                shutil.copy2(file, self.path)


def test_an_old_copy_of_a_partys_store_is_refused(stage: Stage, calm: Ending) -> None:
    folder = Folder(stage, VICTIM)
    stage.wait_for(VICTIM, "answered", round=2)
    folder.copy("old")
    stage.organisations.start(VICTIM)
    stage.wait_for(VICTIM, "answered", round=5)
    folder.copy("newest")
    folder.put_back("old")
    stage.organisations.start(VICTIM)
    assert stage.wait_until_gone(COORDINATOR) == [2]
    told = stage.said(VICTIM, "refusing")[-1]["reason"]
    assert told.startswith(f"party '{VICTIM}' has carried out round ") and told.endswith(
        ": its store is an old copy; put the newest one back"
    )
    assert stage.failure(COORDINATOR) == f"Refused: party '{VICTIM}' refuses: {told}"
    folder.put_back("newest")
    ends_like(stage, calm)


def test_an_old_copy_of_the_coordinators_store_is_refused(stage: Stage, calm: Ending) -> None:
    folder = Folder(stage, COORDINATOR)
    stage.wait_for(COORDINATOR, "round", round=2)
    folder.copy("old")
    stage.organisations.start(COORDINATOR)
    stage.wait_for(COORDINATOR, "round", round=5)
    folder.copy("newest")
    folder.put_back("old")
    stage.organisations.start(COORDINATOR)
    assert stage.wait_until_gone(COORDINATOR) == [2]
    told = stage.failure(COORDINATOR)
    assert told.startswith("RunError: party 'party_") and told.endswith(
        " and the coordinator's store does not know it: it is an old copy; put the newest one back"
    )
    folder.put_back("newest")
    ends_like(stage, calm)


def test_a_party_whose_folder_is_gone_says_so(stage: Stage, calm: Ending) -> None:
    folder = Folder(stage, VICTIM)
    stage.wait_for(VICTIM, "answered", round=2)
    folder.copy("newest")
    for file in folder.path.glob("*[!l]"):
        file.unlink()
    stage.organisations.start(VICTIM)
    assert stage.wait_until_gone(COORDINATOR) == [2]
    assert stage.failure(COORDINATOR) == (
        f"Refused: party '{VICTIM}' refuses: party '{VICTIM}' has no record of this run; "
        "put its folder back or begin anew"
    )
    folder.put_back("newest")
    ends_like(stage, calm)


def test_another_table_is_refused(stage: Stage, calm: Ending) -> None:
    stage.wait_for(VICTIM, "answered", round=2)
    stage.kill(VICTIM)
    stage.change(data={**DATA, "seed": 1})
    stage.organisations.start(VICTIM)
    assert stage.wait_until_gone(VICTIM) == [2]
    assert stage.failure(VICTIM) == (
        f"RunError: the table of '{VICTIM}' is not the one that run 'test' began with; "
        "put it back, or begin a new run under another name"
    )
    stage.change(data=DATA)
    ends_like(stage, calm)


def test_another_configuration_is_refused(stage: Stage, calm: Ending) -> None:
    stage.wait_for(COORDINATOR, "round", round=2)
    stage.kill(COORDINATOR)
    stage.change(training={**TRAINING, "seed": 1})
    stage.organisations.start(COORDINATOR)
    assert stage.wait_until_gone(COORDINATOR) == [2]
    assert "holds run 'test' with other settings, rows or labels; continue it with the" in stage.failure(COORDINATOR)
    stage.change(training=TRAINING)
    ends_like(stage, calm)
