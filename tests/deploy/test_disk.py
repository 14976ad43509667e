"""A disk that is full: one sentence, status 2, nothing sent that is not stored; with room, the same command goes on."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from colonnade.wire.messages import COORDINATOR
from tests.deploy.trials import Deed, Ending, Stage, two_versions
from tests.nats_server import needs_nats

pytestmark = needs_nats
VICTIM, EXCHANGE = "party_1", 3
NOT_STORED = "; nothing of this round was sent; see to the disk and start again"


@contextmanager
def small_disk(stage: Stage, name: str) -> Iterator[None]:
    """The organisation's folder is a file system of 8 MB; what it says is written elsewhere."""
    place, outside = stage.trial.place(name), stage.trial.folder / f"{name}.said"
    outside.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(place)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {done.stderr.strip()}")
    try:
        for log in ("said.jsonl", "sent.jsonl"):
            (outside / log).touch()
            (place / log).symlink_to(outside / log)
        yield
    finally:
        stage.organisations.stop()
        subprocess.run(["umount", str(place)], check=True)


def make_room(stage: Stage, name: str) -> None:
    (stage.trial.place(name) / "ballast").unlink()


def test_a_party_without_room(calm: Ending, tmp_path: Path) -> None:
    with (
        Stage(tmp_path, Deed(VICTIM, "before a commit", EXCHANGE, "fill the disk")) as stage,
        small_disk(stage, VICTIM),
    ):
        stage.organisations.start()
        assert stage.wait_until_gone(VICTIM) == [2]
        told = stage.failure(VICTIM)
        assert told.startswith("Unwritable: the store ") and told.endswith(f"(database or disk is full){NOT_STORED}")
        assert [message for message in stage.sent(VICTIM) if message["number"] == EXCHANGE] == []
        stage.wait_for(COORDINATOR, "waiting", round=EXCHANGE, parties=[VICTIM])
        stage.organisations.start(VICTIM)  # in vain
        assert stage.wait_until_gone(VICTIM) == [2]
        make_room(stage, VICTIM)
        assert stage.play().differences(calm) == []
        assert two_versions(stage.sent(VICTIM)) == []


@pytest.mark.parametrize("who", [VICTIM, COORDINATOR])
def test_no_room_for_the_agreement(who: str, calm: Ending, tmp_path: Path) -> None:
    deed = Deed(who, "before the agreement is stored", None, "fill the disk")
    with Stage(tmp_path, deed) as stage, small_disk(stage, who):
        stage.organisations.start()
        assert stage.wait_until_gone(who) == [2]
        assert stage.failure(who).endswith(f"(database or disk is full){NOT_STORED}")
        make_room(stage, who)
        assert stage.play().differences(calm) == []


def test_a_coordinator_without_room(calm: Ending, tmp_path: Path) -> None:
    deed = Deed(COORDINATOR, "before a commit", EXCHANGE, "fill the disk")
    with Stage(tmp_path, deed) as stage, small_disk(stage, COORDINATOR):
        stage.organisations.start()
        assert stage.wait_until_gone(COORDINATOR) == [2]
        assert stage.failure(COORDINATOR).endswith(f"(database or disk is full){NOT_STORED}")
        assert max(message["number"] for message in stage.sent(COORDINATOR)) == EXCHANGE  # the next request stayed here
        make_room(stage, COORDINATOR)
        assert stage.play().differences(calm) == []
        assert two_versions(stage.sent(COORDINATOR)) == []


def test_no_room_for_the_finished_run(calm: Ending, tmp_path: Path) -> None:
    deed = Deed(COORDINATOR, "before saving", None, "fill the disk")
    with Stage(tmp_path, deed) as stage, small_disk(stage, COORDINATOR):
        stage.organisations.start()
        assert stage.wait_until_gone(COORDINATOR) == [2]
        told = stage.failure(COORDINATOR)
        assert told.startswith("Unwritable: the run cannot be saved in ")
        assert told.endswith("(No space left on device); see to the disk")
        make_room(stage, COORDINATOR)
        assert stage.play().differences(calm) == []


@pytest.mark.parametrize("who", [VICTIM, COORDINATOR])
def test_files_that_may_not_grow(who: str, calm: Ending, tmp_path: Path) -> None:
    """The same where nothing can be mounted: the system refuses to write beyond a size."""
    with Stage(tmp_path, Deed(who, "before a commit", EXCHANGE, "stop files from growing")) as stage:
        stage.organisations.start()
        assert stage.wait_until_gone(who) == [2]
        assert stage.failure(who).startswith("Unwritable: the store ") and NOT_STORED in stage.failure(who)
        assert stage.play().differences(calm) == []
