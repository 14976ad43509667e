"""People who withdrew: what organisations tell each other about them over a line in memory; alignments after it."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from colonnade.align import messages as m
from colonnade.align.files import read_alignment
from colonnade.deploy.decision import Decision, decided
from colonnade.deploy.withdrawal.exchange import answer_while, ask_all
from colonnade.deploy.withdrawal.side import Side, decide_withdrawal
from colonnade.deploy.withdrawal.start import limit_in
from colonnade.deploy.withdrawal.waiting import WithdrawalLimit, admit, read_waiting, waiting_file
from colonnade.errors import ConfigError, RunError
from colonnade.wire.messages import COORDINATOR
from colonnade.wire.notice import Notice
from colonnade.withdrawn import read_withdrawn, withdraw
from tests.align.conftest import NewMeeting
from tests.align.hub import Hub, Meeting
from tests.align.test_more import GROWN, TABLES, extend

EVERYBODY = [f"c{number}" for number in range(2, 10)]  # whom all hold


def aligned(meeting: NewMeeting, keep: str = "all") -> Meeting:
    here = meeting(keep=keep)
    sides = here.all(TABLES[COORDINATOR], {n: TABLES[n] for n in ("telco", "shop")})
    assert all(side.error is None for side in sides.values())
    return here


def side(here: Meeting, name: str, limit: WithdrawalLimit | None = None) -> Side:
    place = here.folder / name
    return Side(place / "withdrawn.json", place, place / "runs", "run.db", lambda: limit or WithdrawalLimit())


def tell(
    here: Meeting, hub: Hub | None = None, patience: float = 120.0, limits: Mapping[str, WithdrawalLimit] | None = None
) -> dict[str, str]:
    """The label holder asks once; all parties are there. `limits`: of some organisations, else the default ones."""
    limits = limits or {}
    hub, over = hub or Hub(here.hub.names), threading.Event()
    name = read_alignment(here.folder / COORDINATOR).name
    threads = [
        threading.Thread(
            target=answer_while,
            args=(
                side(here, party, limits.get(party)),
                m.Sender(hub.line(party), here.credentials[party], name),
                here.notify(party),
                lambda: not over.is_set(),
            ),
        )
        for party in here.settings.parties
    ]
    for thread in threads:
        thread.start()
    who = here.credentials[COORDINATOR]
    try:
        line, parties, notify = hub.line(COORDINATOR), here.settings.parties, here.notify(COORDINATOR)
        return dict(ask_all(side(here, COORDINATOR, limits.get(COORDINATOR)), line, who, parties, notify, patience))
    finally:
        over.set()
        for thread in threads:
            thread.join(30)
        here.hub = hub


def known(here: Meeting, name: str) -> set[str]:
    return set(read_withdrawn(here.folder / name / "withdrawn.json").ids)


@pytest.mark.parametrize("keep", ["all", "partial"])
def test_everybody_leaves_out_whom_anybody_leaves_out(meeting: NewMeeting, keep: str) -> None:
    here = aligned(meeting, keep)
    withdraw(here.folder / "telco/withdrawn.json", ["c2", "c11", "t"], reason="secret reason")  # the shop lacks c11
    withdraw(here.folder / COORDINATOR / "withdrawn.json", ["c3"])
    assert tell(here) == {"telco": "", "shop": ""}
    lacking = {"c11"} if keep == "partial" else set()
    assert known(here, COORDINATOR) == {"c2", "c3"} | lacking
    assert known(here, "shop") == {"c2", "c3"} and known(here, "telco") == {"c2", "c11", "t", "c3"}
    confirmed = read_withdrawn(here.folder / COORDINATOR / "withdrawn.json").confirmed
    assert {who: told.rows for who, told in confirmed.items()} == dict.fromkeys(("telco", "shop"), 2 + len(lacking))
    wire = b"".join(notice.payload for _, notice in here.hub.sent)
    assert b"secret reason" not in wire
    plain = {name for _, notice in here.hub.sent for name in notice.facts}
    assert plain == {"attempt", "alignment", "extends", "key", "signature"}, "all else is encrypted"
    assert [facts["rows"] for facts in here.told("shop", "forgotten")] in ([2], [1, 1])


def test_a_list_that_was_lost_comes_back(meeting: NewMeeting) -> None:
    here = aligned(meeting)
    withdraw(here.folder / "telco/withdrawn.json", ["c2"])
    tell(here)
    for name in ("telco", COORDINATOR):  # both put back from an old copy
        (here.folder / name / "withdrawn.json").unlink()
    assert tell(here) == {"telco": "", "shop": ""}
    assert known(here, "telco") == known(here, COORDINATOR) == {"c2"}


def test_row_numbers_of_another_alignment_are_not_taken_over(meeting: NewMeeting) -> None:
    here, other = aligned(meeting), aligned(meeting)
    withdraw(here.folder / COORDINATOR / "withdrawn.json", ["c2"])
    for file in ("alignment.json", "alignment.csv"):
        (here.folder / "shop" / file).write_bytes((other.folder / "shop" / file).read_bytes())
    told = tell(here)
    assert told["telco"] == "" and "align again" in told["shop"]
    assert known(here, "shop") == set()


def test_an_extended_alignment_has_the_old_row_numbers(meeting: NewMeeting) -> None:
    here = aligned(meeting)
    shop = {file: (here.folder / "shop" / file).read_bytes() for file in ("alignment.json", "alignment.csv")}
    extend(here)
    for file, content in shop.items():  # it was stopped before it could write
        (here.folder / "shop" / file).write_bytes(content)
    withdraw(here.folder / COORDINATOR / "withdrawn.json", ["c3", "n1"])
    assert tell(here) == {"telco": "", "shop": ""}
    assert known(here, "telco") == {"c3", "n1"} and known(here, "shop") == {"c3"}


@pytest.mark.parametrize("kind", ["TELL", "ROWS", "DONE"])
def test_what_was_changed_on_its_way_changes_nothing(meeting: NewMeeting, kind: str) -> None:
    here = aligned(meeting)
    withdraw(here.folder / "telco/withdrawn.json", ["c2"])

    def change(to: str, notice: Notice) -> Iterable[Notice]:
        if notice.kind == kind and "telco" in (to, notice.sender):
            points = bytearray(notice.blobs["points"])
            points[20] ^= 1
            notice = replace(notice, blobs={"points": bytes(points)})
        return (notice,)

    told = tell(here, Hub(here.hub.names, change), patience=2.0)
    assert told["telco"] and not told["shop"]
    assert "telco" not in read_withdrawn(here.folder / COORDINATOR / "withdrawn.json").confirmed
    assert here.told(COORDINATOR if kind != "ROWS" else "telco", "refused")


def test_alignments_leave_them_out(meeting: NewMeeting) -> None:
    here = meeting()
    holder = here.label_holder(TABLES[COORDINATOR])
    parties = [
        here.party("telco", TABLES["telco"], withdrawn=frozenset({"c4"})),
        here.party("shop", TABLES["shop"]),
    ]
    assert all(one.wait().error is None for one in (holder, *parties))
    assert {*read_alignment(here.folder / COORDINATOR).ids} == {*EVERYBODY} - {"c4"}


def test_an_extension_leaves_them_out_and_does_not_miss_them(meeting: NewMeeting) -> None:
    here = aligned(meeting)
    settings = here.settings.model_copy(update={"more": True})
    again = Meeting(Hub(here.hub.names), here.credentials, settings, here.folder)
    without = [id for id in GROWN["telco"] if id != "c2"]  # its owner has deleted the line
    gone = frozenset({"c2", "n1"})
    sides = [
        again.label_holder(GROWN[COORDINATOR]),
        again.party("telco", without, settings={"more": True}, withdrawn=gone),
        again.party("shop", GROWN["shop"], settings={"more": True}),
    ]
    assert [one.wait().error for one in sides] == [None] * 3
    after = read_alignment(here.folder / "telco")
    assert "n2" in after.ids and "n1" not in after.ids and "c2" in after.ids  # old rows keep their numbers
    assert np.array_equal(after.rows_of(["c2"]), [after.ids.index("c2")])


# -- more people than may withdraw unasked --------------------------------------------------------

FEW = WithdrawalLimit(most_rows=2, most_share=0.0)


def decide(here: Meeting, name: str, what: str, approved: bool) -> None:
    decide_withdrawal(side(here, name), what, Decision("", "", approved, "why", by="ann"), here.credentials[name])


def test_many_wait_for_a_person_and_few_do_not(meeting: NewMeeting) -> None:
    """At the label holder, then at the other party; whoever approves is kept, and small ones go on meanwhile."""
    here, limits = aligned(meeting), {COORDINATOR: FEW, "shop": FEW}
    withdraw(here.folder / "telco/withdrawn.json", EVERYBODY[:4])
    assert tell(here, limits=limits) == {"telco": "", "shop": ""}
    assert known(here, COORDINATOR) == known(here, "shop") == set()
    (needed,) = here.told(COORDINATOR, "approval needed")
    assert (needed["party"], needed["people"]) == ("telco", 4) and "colonnade approve withdrawal:telco" in needed[
        "note"
    ]

    withdraw(here.folder / "telco/withdrawn.json", EVERYBODY[4:5])
    assert tell(here, limits=limits) == {"telco": "", "shop": ""}
    assert known(here, COORDINATOR) == known(here, "shop") == {EVERYBODY[4]}
    assert len(here.told(COORDINATOR, "approval needed")) == 1, "it is told once"

    (waits,) = read_waiting(here.folder / COORDINATOR / "withdrawn.json")
    decide(here, COORDINATOR, "withdrawal:telco", True)
    assert known(here, COORDINATOR) == {*EVERYBODY[:5]} and not read_waiting(
        here.folder / COORDINATOR / "withdrawn.json"
    )
    people = read_withdrawn(here.folder / COORDINATOR / "withdrawn.json").people
    assert {one.approved for one in people if one.id in EVERYBODY[:4]} == {"ann"}
    kept = decided(here.folder / COORDINATOR, waits.digest, here.credentials[COORDINATOR])
    assert kept is not None and kept.approved and kept.by == "ann"

    told = tell(here, limits=limits)
    assert told["telco"] == "" and "4 rows wait for a person's approval at shop" in told["shop"]
    decide(here, "shop", "withdrawal:coordinator", True)
    assert tell(here, limits=limits) == {"telco": "", "shop": ""} and known(here, "shop") == {*EVERYBODY[:5]}


def test_what_was_refused_is_not_asked_again(meeting: NewMeeting) -> None:
    here, limits = aligned(meeting), {COORDINATOR: FEW}
    withdraw(here.folder / "telco/withdrawn.json", EVERYBODY[:4])
    tell(here, limits=limits)
    decide(here, COORDINATOR, "withdrawal:telco", False)
    tell(here, limits=limits)
    (one,) = read_waiting(here.folder / COORDINATOR / "withdrawn.json")
    assert one.refused and one.because == "why" and known(here, COORDINATOR) == set()
    assert len(here.told(COORDINATOR, "approval needed")) == 1
    with pytest.raises(
        ConfigError, match="no withdrawal 'withdrawal:shop' waits for approval here; open: withdrawal:t"
    ):
        decide(here, COORDINATOR, "withdrawal:shop", True)
    decide(here, COORDINATOR, "withdrawal:telco", True)  # people may change their minds
    assert known(here, COORDINATOR) == {*EVERYBODY[:4]}


def test_a_limit_counts_a_day_of_one_organisation(tmp_path: Path) -> None:
    path = tmp_path / "withdrawn.json"
    assert admit(path, ["a", "b"], "telco", 2) == (["a", "b"], None)
    new, waits = admit(path, ["a", "b", "c"], "telco", 2)
    assert new == [] and waits is not None and waits.ids == ("c",)
    assert admit(path, ["c", "d"], "shop", 2) == (["c", "d"], None), "each has its own; and c has withdrawn now"
    assert read_waiting(path) == ()
    path = tmp_path / "other.json"
    withdraw(path, ["a", "b"], "telco", approved="ann")  # a person approved these: they do not count
    assert admit(path, ["e", "f"], "telco", 2) == (["e", "f"], None)
    _, first = admit(path, ["g"], "telco", 2)
    _, second = admit(path, ["g", "h"], "telco", 2)
    assert first is not None and second is not None and second.ids == ("g", "h") and first.digest != second.digest
    assert [one.ids for one in read_waiting(path)] == [("g", "h")]
    waiting_file(path).write_text("{")
    with pytest.raises(RunError, match=r"other-waiting\.json cannot be read"):
        admit(path, ["i"], "telco", 2)


def test_the_limit_of_a_policy(tmp_path: Path) -> None:
    assert WithdrawalLimit().allowed(50) == 10 and WithdrawalLimit().allowed(1_000_000) == 10_000
    assert limit_in(None) == WithdrawalLimit()
    policy = tmp_path / "policy.toml"
    policy.write_text("most_rounds = 3\n[withdrawal]\nmost_rows = 4\n")
    assert limit_in(policy) == WithdrawalLimit(most_rows=4)
    policy.write_text("withdrawal = 3\n")
    assert limit_in(policy).allowed(1_000_000) == 0, "what cannot be read lets nobody through unasked"
