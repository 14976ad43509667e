"""Killed and started again, said twice, out of order, from another attempt, never: one outcome, or one sentence."""

from __future__ import annotations

import queue
from collections.abc import Iterable

import pytest

from colonnade.align.files import read_alignment
from colonnade.align.messages import Proposal
from colonnade.errors import DataError, IdentityError, LinkError, Refused
from colonnade.wire.messages import COORDINATOR
from colonnade.wire.notice import Notice
from tests.align.conftest import NewMeeting
from tests.align.hub import Killed, Meeting, Side

IDS = [f"c{number}" for number in range(8)]
OTHERS = {"telco": IDS[2:], "shop": IDS[:6]}
SHARED = set(IDS[2:6])


def check(here: Meeting, *sides: Side) -> None:
    """Everybody wrote the same alignment."""
    for side in sides:
        assert side.wait().error is None, side.error
    written = [read_alignment(here.folder / name) for name in (COORDINATOR, *OTHERS)]
    assert len({found.digest for found in written}) == 1
    assert all(set(found.ids) == SHARED for found in written)
    assert len({found.ids for found in written}) == 1, "the same row is the same id everywhere"


@pytest.mark.parametrize("dies_after", [0, 1, 2, 3, 4])  # before HELLO, JOIN, SETUP, RESPONSE, DONE
def test_a_party_is_killed_and_started_again(meeting: NewMeeting, dies_after: int) -> None:
    here = meeting()
    holder, shop = here.label_holder(IDS), here.party("shop", OTHERS["shop"])
    first = here.party("telco", OTHERS["telco"], dies_after)
    assert isinstance(first.wait().error, Killed)
    check(here, holder, shop, here.party("telco", OTHERS["telco"]))
    assert bool(here.told(COORDINATOR, "started over")) == (dies_after >= 2), "only if it had joined"


@pytest.mark.parametrize("dies_after", [1, 3, 4, 5, 6, 7, 8])  # proposals; REQUEST, two RESULT and ROWS, STOP
def test_the_label_holder_is_killed_and_started_again(meeting: NewMeeting, dies_after: int) -> None:
    here = meeting()
    parties = [here.party(name, ids) for name, ids in OTHERS.items()]
    assert isinstance(here.label_holder(IDS, dies_after).wait().error, Killed)
    check(here, here.label_holder(IDS), *parties)  # the answers to its earlier life are still in its box


def test_every_message_comes_twice(meeting: NewMeeting) -> None:
    here = meeting()
    here.hub.change = lambda to, notice: (notice, notice)
    check(here, *here.all(IDS, OTHERS).values())
    assert not here.told(COORDINATOR, "started over")


def test_messages_overtake_each_other(meeting: NewMeeting) -> None:
    here, held = meeting(), dict[tuple[str, str], Notice]()

    def late(to: str, notice: Notice) -> Iterable[Notice]:
        """JOIN after the SETUP that follows it, RESULT after its ROWS."""
        first = {"SETUP": "JOIN", "ROWS": "RESULT"}.get(notice.kind)
        who = to + notice.sender
        if notice.kind in ("JOIN", "RESULT"):
            held[who, notice.kind] = notice
            return ()
        return (notice, held.pop((who, first))) if first is not None else (notice,)

    here.hub.change = late
    check(here, *here.all(IDS, OTHERS).values())
    assert not held


def test_messages_of_an_older_attempt_are_ignored(meeting: NewMeeting) -> None:
    here = meeting()
    check(here, *here.all(IDS, OTHERS).values())
    older, here.events = list(here.hub.sent), []
    others = {"telco": IDS[:1], "shop": IDS[:1]}
    late: list[tuple[str, Notice]] = [(to, notice) for to, notice in older if notice.kind not in ("HELLO", "PROPOSE")]

    def with_old_ones(to: str, notice: Notice) -> Iterable[Notice]:
        """After each new message all old ones again."""
        return (notice, *(old for whom, old in late if whom in (to, "*")))

    here.hub.change = with_old_ones
    sides = here.all(IDS, others)
    assert {side.error for side in sides.values()} == {None}
    assert {side.outcome.ids for side in sides.values() if side.outcome} == {(IDS[0],)}
    assert {facts["kind"] for facts in here.told(COORDINATOR, "ignored")} >= {"JOIN", "SETUP", "RESPONSE", "DONE"}
    assert {facts["kind"] for facts in here.told("telco", "ignored")} >= {"REQUEST", "RESULT", "ROWS", "STOP"}


def test_strangers_and_other_alignments_are_not_listened_to(meeting: NewMeeting) -> None:
    here = meeting(parties=("telco",))
    wrong = [
        Notice("trial", 0, "JOIN", "shop", {}),
        Notice("other", 0, "REFUSE", "telco", {}),
        Notice("trial", 0, "STOP", "shop", {}),
        Notice("other", 0, "STOP", COORDINATOR, {}),
    ]
    for notice in wrong:
        here.hub.put(COORDINATOR, notice)
        here.hub.put("telco", notice)
    sides = here.all(IDS, {"telco": OTHERS["telco"]})
    assert {side.error for side in sides.values()} == {None}
    assert len(here.told(COORDINATOR, "refused")) == len(here.told("telco", "refused")) == 4


def test_a_party_refuses_with_its_reason_and_everybody_ends(meeting: NewMeeting) -> None:
    here = meeting()
    asked: list[Proposal] = []

    def never(proposal: Proposal) -> None:
        asked.append(proposal)
        raise Refused("our policy\nallows no alignment with a telco")

    shop = here.party("shop", OTHERS["shop"], agree=never)
    holder, telco = here.label_holder(IDS), here.party("telco", OTHERS["telco"])
    assert isinstance(shop.wait().error, Refused)
    assert isinstance(holder.wait().error, Refused)
    assert "party 'shop' does not agree: our policy allows no alignment with a telco" in str(holder.error)
    assert isinstance(telco.wait().error, Refused) and "policy" not in str(telco.error)
    assert (asked[0].parties, asked[0].ids, asked[0].keep) == (("telco", "shop"), 8, "all")
    assert not [notice for _, notice in here.hub.sent if notice.kind == "REQUEST"], "blinded ids left before all agreed"


def test_too_many_ids_are_refused_on_both_sides(meeting: NewMeeting) -> None:
    here = meeting(parties=("telco",))
    holder, telco = here.label_holder(IDS), here.party("telco", IDS, settings={"most_ids": 7})
    assert "brings 8 ids" in str(telco.wait().error) and isinstance(holder.wait().error, Refused)
    here = meeting(parties=("telco",), most_ids=7)
    holder, telco = here.label_holder(IDS), here.party("telco", IDS)
    assert "party 'telco' brings 8 ids" in str(holder.wait().error) and isinstance(telco.wait().error, Refused)


def test_a_silent_party_is_named(meeting: NewMeeting) -> None:
    here = meeting(patience=2)
    holder, telco = here.label_holder(IDS), here.party("telco", OTHERS["telco"], settings={"patience": 20})
    error = holder.wait().error
    assert isinstance(error, LinkError) and str(error).startswith("party 'shop' said nothing for 2 seconds")
    assert isinstance(telco.wait().error, LinkError)


def test_a_silent_label_holder_is_named(meeting: NewMeeting) -> None:
    error = meeting().party("telco", IDS, settings={"patience": 0.3}).wait().error
    assert isinstance(error, LinkError) and "the label holder said nothing" in str(error)


def test_a_party_that_cannot_write_says_so_and_nobody_keeps_an_alignment(meeting: NewMeeting) -> None:
    here = meeting(parties=("telco",))
    (here.folder / "telco" / "alignment.csv" / "x").mkdir(parents=True)
    sides = here.all(IDS, {"telco": IDS})
    assert isinstance(sides["telco"].error, DataError)
    assert "party 'telco' does not agree: its side ended with a DataError" in str(sides[COORDINATOR].error)
    assert not list(here.folder.rglob("alignment.json"))


def test_a_folder_that_cannot_be_written_is_found_before_any_work(meeting: NewMeeting) -> None:
    here = meeting(parties=("telco",))
    (here.folder / COORDINATOR).write_text("a file")
    assert isinstance(here.label_holder(IDS).wait().error, DataError)
    assert here.hub.sent == []


def test_a_process_that_sends_under_another_name_is_refused(meeting: NewMeeting) -> None:
    here = meeting()
    here.credentials = {**here.credentials, "telco": here.credentials["shop"]}
    assert isinstance(here.party("telco", IDS).wait().error, IdentityError)
    with pytest.raises(queue.Empty):
        here.hub.boxes[COORDINATOR].get(timeout=0.01)
