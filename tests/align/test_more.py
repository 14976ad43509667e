"""Extending an alignment: old rows keep their numbers, new ones come after them, and nothing else is agreed on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from colonnade.align.files import Alignment, read_alignment, write_alignment
from colonnade.align.label_holder import LabelHolder
from colonnade.align.more import new_ids
from colonnade.align.private import blind
from colonnade.errors import DataError, Refused, RowsDisagree
from colonnade.wire.messages import COORDINATOR
from tests.align.conftest import NewMeeting
from tests.align.hub import Hub, Killed, Meeting, Side

OLD = [f"c{number}" for number in range(12)]
NEW = [f"n{number}" for number in range(6)]
TABLES = {COORDINATOR: OLD, "telco": [*OLD[2:], "t"], "shop": [*OLD[:10], "s"]}
GROWN = {COORDINATOR: [*NEW, *OLD], "telco": [*NEW[:5], *OLD, "t"], "shop": [*NEW[1:], *OLD[:10], "s"]}


def extend(before: Meeting, tables: dict[str, list[str]] = GROWN, more: Sequence[str] | None = None) -> dict[str, Side]:
    """All sides go on in the folders of `before`; those in `more` say so (all of them unless given)."""
    said = tuple(tables) if more is None else more
    settings = before.settings.model_copy(update={"more": COORDINATOR in said})
    here = Meeting(Hub(before.hub.names), before.credentials, settings, before.folder)
    parties = [here.party(n, tables[n], settings={"more": n in said}) for n in settings.parties]
    before.hub = here.hub
    return {side.name: side.wait() for side in (here.label_holder(tables[COORDINATOR]), *parties)}


def align(meeting: NewMeeting, keep: str = "all") -> tuple[Meeting, dict[str, Alignment]]:
    here = meeting(keep=keep)
    sides = here.all(TABLES[COORDINATOR], {n: TABLES[n] for n in ("telco", "shop")})
    assert all(side.error is None for side in sides.values())
    return here, {name: side.outcome for name, side in sides.items()}


@pytest.mark.parametrize("keep", ["all", "partial"])
def test_old_rows_keep_their_numbers_and_new_ones_follow(meeting: NewMeeting, keep: str) -> None:
    here, before = align(meeting, keep)
    sides = extend(here)
    assert all(side.error is None for side in sides.values()), [side.error for side in sides.values()]
    after = {name: read_alignment(here.folder / name) for name in sides}
    assert len({side.digest for side in after.values()}) == 1
    holder = after[COORDINATOR]
    for name, side in after.items():
        old = before[name]
        assert side.ids[: len(old.ids)] == old.ids and side.rows[: len(old.rows)].tolist() == old.rows.tolist()
        assert [holder.ids[row] for row in side.rows] == list(side.ids)
        assert side.extends == (old.digest,)
        known = side.as_of(old.digest)
        assert (known.digest, known.ids, known.rows.tolist()) == (old.digest, old.ids, old.rows.tolist())
        assert known.report == old.report
    if keep == "all":  # c0, c1: the telco has them now, too; n0 and n5 are of two sides only
        assert set(holder.ids[8:]) == {*NEW[1:5], "c0", "c1"}
        assert (holder.complete, holder.agreed.partial) == (14, 0)
    else:
        assert set(holder.ids[12:]) == set(NEW)
        assert (holder.complete, holder.agreed.partial) == (8, 10)
        assert holder.presence is not None
        held = {name: {holder.ids[row] for row in range(18) if column[row]} for name, column in holder.presence.items()}
        assert held["telco"] == {*OLD[2:], *NEW[:5]} and held["shop"] == {*OLD[:10], *NEW[1:]}


def test_nothing_is_said_about_old_rows(meeting: NewMeeting, monkeypatch: pytest.MonkeyPatch) -> None:
    here, before = align(meeting)
    blinded: list[str] = []

    def seen(ids: Sequence[str], name: str, key: bytes) -> bytes:
        blinded.extend(ids)
        return blind(ids, name, key)

    for side in ("label_holder", "party"):
        monkeypatch.setattr(f"colonnade.align.{side}.blind", seen)
    sides = extend(here)
    assert all(side.error is None for side in sides.values())
    assert set(NEW) < set(blinded) and not set(blinded) & set(before[COORDINATOR].ids)
    proposed = next(notice.facts for to, notice in here.hub.sent if notice.kind == "PROPOSE")
    assert (proposed["ids"], proposed["extends"]) == (len(NEW) + 4, before[COORDINATOR].digest)


def test_extended_twice(meeting: NewMeeting) -> None:
    here, before = align(meeting)
    extend(here)
    grown = {name: [*ids, "z1", "z2"] for name, ids in GROWN.items()}
    assert all(side.error is None for side in extend(here, grown).values())
    last = read_alignment(here.folder / "telco")
    assert len(last.extends) == 2 and last.extends[0] == before["telco"].digest
    assert set(last.ids[-2:]) == {"z1", "z2"} and [step.agreed.rows for step in last.former] == [8, 14]


def test_a_side_that_wrote_before_all_were_done_starts_from_where_both_were(meeting: NewMeeting) -> None:
    here, before = align(meeting)
    extend(here)
    first = read_alignment(here.folder / "telco").digest
    for name in (COORDINATOR, "shop"):  # killed before they wrote
        write_alignment(here.folder / name, before[name])
    sides = extend(here)
    assert all(side.error is None for side in sides.values())
    after = read_alignment(here.folder / "telco")
    assert after.digest != first and after.extends == (before["telco"].digest,)
    assert after.digest == read_alignment(here.folder / COORDINATOR).digest


def test_a_label_holder_that_died_before_it_said_stop_extends_again(
    meeting: NewMeeting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parties still wait for its STOP, and have written what it extends now."""
    before, _ = align(meeting)
    settings = before.settings.model_copy(update={"more": True})
    here = Meeting(Hub(before.hub.names), before.credentials, settings, before.folder)
    parties = [here.party(n, [*GROWN[n], "late"], settings={"more": True}) for n in settings.parties]
    with monkeypatch.context() as dying:
        dying.setattr(LabelHolder, "stop", lambda self, why: (_ for _ in ()).throw(Killed()))
        assert isinstance(here.label_holder(GROWN[COORDINATOR]).wait().error, Killed)
    first = read_alignment(here.folder / COORDINATOR).digest
    sides = [here.label_holder([*GROWN[COORDINATOR], "late"]), *parties]
    assert [side.wait().error for side in sides] == [None] * 3
    after = [read_alignment(here.folder / name) for name in (COORDINATOR, *settings.parties)]
    assert len({side.digest for side in after}) == 1
    assert all(side.extends[-1] == first and side.ids[-1] == "late" for side in after)


@pytest.mark.parametrize("more", [(COORDINATOR, "shop"), ("telco",)])
def test_all_sides_extend_or_none(meeting: NewMeeting, more: tuple[str, ...]) -> None:
    here, before = align(meeting)
    sides = extend(here, more=more)
    assert isinstance(sides["telco"].error, Refused) and "say --more on all sides, or on none" in str(
        sides["telco"].error
    )
    assert isinstance(sides[COORDINATOR].error, Refused)
    assert read_alignment(here.folder / COORDINATOR).digest == before[COORDINATOR].digest


def test_an_alignment_of_others_is_not_extended(meeting: NewMeeting) -> None:
    here, _ = align(meeting)
    _, theirs = align(meeting)
    write_alignment(here.folder / "shop", theirs["shop"])
    sides = extend(here)
    assert "align anew on all sides" in str(sides["shop"].error)
    assert theirs["shop"].digest[:12] in str(sides[COORDINATOR].error)


def test_no_new_row(meeting: NewMeeting) -> None:
    here, before = align(meeting)
    tables = {COORDINATOR: [*OLD, "p"], "telco": [*OLD[2:], "q"], "shop": [*OLD[:10], "r"]}
    sides = extend(here, tables)
    assert isinstance(sides[COORDINATOR].error, RowsDisagree)
    assert "none of the 5 new ids has a row" in str(sides[COORDINATOR].error)
    assert "the alignment stays as it is" in str(sides["telco"].error)
    assert read_alignment(here.folder / "shop").digest == before["shop"].digest


def test_rows_that_are_gone_and_ids_that_all_have_rows(meeting: NewMeeting) -> None:
    _, before = align(meeting)
    with pytest.raises(RowsDisagree, match="1 of 8 aligned ids are not in the table any more"):
        new_ids([*OLD[3:], "x"], before["telco"])
    with pytest.raises(DataError, match="all 8 ids of the table have a row already"):
        new_ids(OLD[2:10], before["telco"])


@pytest.mark.parametrize("change", ["rows", "extends", "attempt"])
def test_a_changed_chain_is_refused(meeting: NewMeeting, change: str) -> None:
    here, _ = align(meeting)
    extend(here)
    path: Path = here.folder / "telco" / "alignment.json"
    about = json.loads(path.read_text())
    agreed = about["former"][0]["agreed"]
    if change == "rows":
        agreed["complete"] = 5
    elif change == "extends":
        agreed["extends"] = "0" * 64
    else:
        agreed["attempt"] = "0" * 32
    path.write_text(json.dumps(about))
    with pytest.raises(DataError, match="what it extends does not fit"):
        read_alignment(here.folder / "telco")
