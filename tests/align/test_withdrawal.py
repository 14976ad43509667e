"""People who withdrew: what organisations tell each other about them over a line in memory; alignments after it."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest

from colonnade.align import messages as m
from colonnade.align.files import read_alignment
from colonnade.deploy.withdrawal.exchange import answer_while, ask_all
from colonnade.deploy.withdrawal.side import Side
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


def side(here: Meeting, name: str) -> Side:
    place = here.folder / name
    return Side(place / "withdrawn.json", place, place / "runs", "run.db")


def tell(here: Meeting, hub: Hub | None = None, patience: float = 120.0) -> dict[str, str]:
    """The label holder asks once; all parties are there."""
    hub, over = hub or Hub(here.hub.names), threading.Event()
    name = read_alignment(here.folder / COORDINATOR).name
    threads = [
        threading.Thread(
            target=answer_while,
            args=(
                side(here, party),
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
        return dict(ask_all(side(here, COORDINATOR), line, who, parties, notify, patience))
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
