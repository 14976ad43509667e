"""Each organisation signs its own ledger: what is changed afterwards is named, and no process goes on with it."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from colonnade.deploy.party import PartyProcess
from colonnade.deploy.predict import Wish
from colonnade.deploy.signing import check_own_file
from colonnade.errors import ConfigError, RunError
from colonnade.identity.certificates import make_trial
from colonnade.ledger_files import Verdict, open_ledger, verify
from colonnade.privacy.chain import linked
from colonnade.wire.messages import COORDINATOR
from tests.deploy.memory import Room

PARTIES = ("party_0", "party_1")


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Room:
    """A finished run of two parties, with one prediction."""
    folder = tmp_path_factory.mktemp("room")
    trial = {
        "data": {"widths": (3, 2), "rows": 40},
        "method": {"name": "vimadmm", "local_steps": 1},
        "model": {"hidden": 4, "embedding": 2},
        "training": {"rounds": 2, "evaluate_every": 2, "schedule": {"batch": 10}},
    }
    with Room.of(folder, PARTIES, **trial) as room:
        room.train()
        room.predict(Wish(torch.tensor([1, 2, 3])))
    return room


def authority(room: Room) -> Path:
    return room.trial.folder / "certs" / "ca.crt"


def checked(room: Room, name: str) -> Verdict:
    return verify(open_ledger(room.trial.place(name)), authority(room))


@pytest.mark.parametrize("name", [COORDINATOR, *PARTIES])
def test_everybody_signed_what_it_released(room: Room, name: str) -> None:
    found = checked(room, name)
    assert found.problem == "" and found.head_signed is not None
    assert (found.head_signed.signer, found.head_signed.run) == (name, "test")
    assert found.head_signed.entries == found.entries > 4
    with pytest.raises(ConfigError, match="--authority"):
        verify(open_ledger(room.trial.place(name)))


def test_the_coordinator_s_questions_say_what_they_are(room: Room) -> None:
    lines = open_ledger(room.trial.place(COORDINATOR)).lines
    asked = [(line["rows"], dict(line["parameters"])) for line in lines if line["purpose"] == "PREDICT"]
    assert asked == [(3, {"consent": 1.0}), (3, {})]
    assert all(line["time"] and line["size"] for line in lines)


def test_a_signature_of_another_authority(room: Room, tmp_path: Path) -> None:
    make_trial(tmp_path / "certs", PARTIES)
    found = verify(open_ledger(room.trial.place("party_0")), tmp_path / "certs" / "ca.crt")
    assert "the signature of the end does not hold" in found.problem


def _edit(db: sqlite3.Connection, script: str) -> None:
    names = [name for (name,) in db.execute("select name from sqlite_master where type = 'trigger'")]
    db.executescript("".join(f"drop trigger {name};" for name in names) + script)
    db.commit()


def _new_chain(db: sqlite3.Connection) -> None:
    """What somebody can do who may write the file, and has no key."""
    _edit(db, "")
    lines = [json.loads(body) for (body,) in db.execute("select body from ledger order by id")]
    for line in lines:
        del line["chain"]
    lines[1]["rows"] = 1
    for number, line in enumerate(linked(lines), 1):
        db.execute("update ledger set body = ? where id = ?", (json.dumps(line), number))
    db.commit()


ATTACKS: dict[str, tuple[Callable[[sqlite3.Connection], None], int | None, str]] = {
    "an entry is changed": (
        lambda db: _edit(db, "update ledger set body = json_set(body, '$.rows', 1) where id = 3"), 3, "does not follow"
    ),
    "the last entry is removed": (
        lambda db: _edit(db, "delete from ledger where id = (select max(id) from ledger)"), None, "is missing"
    ),
    "an entry in between is removed": (lambda db: _edit(db, "delete from ledger where id = 2"), 2, "number"),
    "the signature is removed": (lambda db: _edit(db, "delete from head"), None, "the signature is missing"),
    "a new chain, the old signature": (_new_chain, None, "not the one that was signed"),
    "another number in what was signed": (
        lambda db: _edit(db, "update head set body = json_set(body, '$.time', '2026-11-18T00:00:00.000Z')"),
        None,
        "does not hold",
    ),
}  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS)
def test_what_was_changed_is_found_out(room: Room, tmp_path: Path, attack: str) -> None:
    change, place, told = ATTACKS[attack]
    folder = tmp_path / "party_0"
    shutil.copytree(room.trial.place("party_0"), folder)
    (folder / "ledger.jsonl").unlink()
    db = sqlite3.connect(folder / "party.db")
    change(db)
    db.close()
    found = verify(open_ledger(folder), authority(room))
    assert told in found.problem and (place is None or found.place == place)
    link = room.link("party_0")
    with pytest.raises(RunError, match="is not as this process left it"):  # and the process does not go on with it
        PartyProcess(folder, link, link.credentials, room.trial.setup("party_0"), lambda event, **facts: None)


def test_the_coordinator_predicts_nothing_with_a_changed_ledger(room: Room, tmp_path: Path) -> None:
    folder = room.trial.place(COORDINATOR)
    path = folder / "ledger.jsonl"
    kept = path.read_text()
    lines = kept.splitlines()
    try:
        path.write_text("\n".join([*lines[:2], *lines[3:]]) + "\n")
        with pytest.raises(RunError, match="entry 3: its hash does not follow"):
            room.predict(Wish(torch.tensor([1])))
        path.write_text("\n".join(lines[:-1]) + "\n")  # the chain fits, and one entry less than was signed is there
        with pytest.raises(RunError, match="entries were signed"):
            room.predict(Wish(torch.tensor([1])))
    finally:
        path.write_text(kept)
    assert checked(room, COORDINATOR).problem == ""


def test_a_question_that_was_not_signed_is_told_of_and_signed_with_the_next(room: Room) -> None:
    folder = room.trial.place(COORDINATOR)
    head = json.loads((folder / "ledger.head.json").read_text())
    before = room.events[COORDINATOR].copy()
    with room:
        room.predict(Wish(torch.tensor([4])))
        (folder / "ledger.head.json").write_text(json.dumps(head))  # as a process leaves it that dies before it signs
        assert "does not cover it" in checked(room, COORDINATOR).problem
        room.predict(Wish(torch.tensor([5])))
    told = [event for event in room.events[COORDINATOR][len(before) :] if event["event"] == "warning"]
    assert [event["reason"][:34] for event in told] == ["the last 2 entries of the ledger w"]
    assert checked(room, COORDINATOR).problem == ""


def test_a_run_of_an_earlier_version_is_signed_before_anything_else_leaves(room: Room, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(room.trial.place(COORDINATOR), folder)
    lines = [json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines()]
    old = [{k: v for k, v in line.items() if k not in ("chain", "time", "size")} for line in lines]
    (folder / "ledger.jsonl").write_text("".join(json.dumps(line) + "\n" for line in old))
    (folder / "ledger.head.json").unlink()
    (folder / "run.db").unlink()
    assert check_own_file(folder, room.link(COORDINATOR).credentials, "test") == 0
    found = verify(open_ledger(folder), authority(room))
    assert found.problem == "" and found.unlinked == found.entries == len(old) and found.head_signed is not None


def test_entries_added_without_a_key_are_not_covered(room: Room, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(room.trial.place(COORDINATOR), folder)
    lines = [json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines()]
    more = {**{k: v for k, v in lines[-1].items() if k != "chain"}, "rows": 9}
    (folder / "ledger.jsonl").write_text("".join(json.dumps(line) + "\n" for line in linked([*lines, more])))
    found = verify(open_ledger(folder), authority(room))
    assert found.place == len(lines) + 1 and "does not cover it" in found.problem
