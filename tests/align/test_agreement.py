"""Whole alignments: private equals exact, whoever takes part, whatever is kept."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colonnade.align.exact import align_exactly
from colonnade.align.files import Alignment, read_alignment
from colonnade.align.parts import PART
from colonnade.align.settings import AlignSettings
from colonnade.errors import ColonnadeError, ConfigError, RowsDisagree
from colonnade.identity.credentials import Credentials
from colonnade.wire.messages import COORDINATOR
from tests.align.conftest import PARTIES, NewMeeting
from tests.align.hub import Hub, Meeting, Side

IDS = [f"c{number}" for number in range(20)]
TELCO, SHOP = [*IDS[5:], "only-telco"], ["only-shop", *reversed(IDS[:15])]


def outcome(side: Side) -> Alignment:
    assert side.error is None, side.error
    assert side.outcome is not None
    return side.outcome


def as_sets(found: Alignment) -> dict[str, object]:
    """What an alignment says about ids, without the numbers that were drawn."""
    complete = {id for row, id in zip(found.rows, found.ids, strict=True) if row < found.complete}
    held = found.presence or {}
    presence = {name: {found.ids[at] for at in np.flatnonzero(column)} for name, column in held.items()}
    return {"complete": complete, "all": set(found.ids), "presence": presence, "report": found.report.to_json()}


def check_that_sides_fit(sides: Mapping[str, Alignment]) -> None:
    holder = sides[COORDINATOR]
    assert len({side.digest for side in sides.values()}) == 1
    assert holder.rows.tolist() == list(range(len(holder.ids)))
    for side in sides.values():
        assert [holder.ids[row] for row in side.rows] == list(side.ids)
        assert side.rows[: side.complete].tolist() == list(range(side.complete))


@pytest.mark.parametrize("keep", ["all", "partial"])
def test_three_sides_agree_on_the_rows_and_write_them(meeting: NewMeeting, keep: str) -> None:
    here = meeting(keep=keep)
    sides = {name: outcome(side) for name, side in here.all(IDS, {"telco": TELCO, "shop": SHOP}).items()}
    check_that_sides_fit(sides)
    holder = sides[COORDINATOR]
    assert set(holder.ids[: holder.complete]) == set(IDS[5:15])
    assert len(holder.ids) == (10 if keep == "all" else 20)
    for name, side in sides.items():
        written = read_alignment(here.folder / name)
        assert (written.ids, written.digest, written.report) == (side.ids, side.digest, side.report)
        assert written.rows.tolist() == side.rows.tolist()
        assert written.me == name
    assert sides["telco"].report.matches[0].matched == 15
    assert sides["telco"].report.left_out == len(TELCO) - len(sides["telco"].ids)
    assert holder.report.left_out == 20 - len(holder.ids)


def test_a_presence_table_says_who_holds_what(meeting: NewMeeting) -> None:
    here = meeting(keep="partial", own=("branch",))
    sides = {name: outcome(side) for name, side in here.all(IDS, {"telco": TELCO, "shop": SHOP}).items()}
    check_that_sides_fit(sides)
    holder = read_alignment(here.folder / COORDINATOR)
    assert holder.presence is not None and list(holder.presence) == ["telco", "shop", "branch"]
    for row, id in enumerate(holder.ids):
        assert holder.presence["telco"][row] == (id in TELCO)
        assert holder.presence["shop"][row] == (id in SHOP)
        assert holder.presence["branch"][row]
    assert set(sides["telco"].ids) == set(TELCO) & set(IDS)
    assert not (here.folder / "telco" / "presence.csv").exists()


def test_one_party_with_more_than_one_part(meeting: NewMeeting) -> None:
    many = [f"n{number}" for number in range(PART + 300)]
    here = meeting(parties=("telco",))
    sides = here.all(many[:40], {"telco": many})
    assert set(outcome(sides["telco"]).ids) == set(many[:40])
    assert [notice.facts["part"] for _, notice in here.hub.sent if notice.kind == "SETUP"] == [0, 1]


ids_of_a_side = st.lists(st.sampled_from([*"abcdefgh", "Ä", "7", "07", " a", "a,b", 'q"']), min_size=1, unique=True)


@settings(max_examples=12)
@given(ids_of_a_side, ids_of_a_side, ids_of_a_side, st.sampled_from(["all", "partial"]))
def test_private_is_exact(
    credentials: Mapping[str, Credentials], ours: list[str], telco: list[str], shop: list[str], keep: str
) -> None:
    chosen = AlignSettings(name="property", parties=PARTIES, keep=keep, patience=120)  # type: ignore[arg-type]
    others = {"telco": telco, "shop": shop}
    with tempfile.TemporaryDirectory() as folder:
        here = Meeting(Hub((COORDINATOR, *PARTIES)), credentials, chosen, Path(folder))
        sides = here.all(ours, others)
        try:
            expected = align_exactly(chosen, ours, others)
        except RowsDisagree as error:
            assert {type(side.error) for side in sides.values()} == {RowsDisagree}
            assert str(sides[COORDINATOR].error) == str(error)
            return
        found = {name: outcome(side) for name, side in sides.items()}
        check_that_sides_fit(found)
        check_that_sides_fit(expected)
        assert {name: as_sets(side) for name, side in found.items()} == {
            name: as_sets(side) for name, side in expected.items()
        }
        for name, side in found.items():
            assert read_alignment(Path(folder) / name).ids == side.ids


def test_nothing_in_common_is_an_error_on_all_sides_that_shows_no_id(meeting: NewMeeting) -> None:
    here = meeting(keep="partial")
    sides = here.all(IDS, {"telco": ["0" + id for id in IDS], "shop": SHOP})
    for side in sides.values():
        assert isinstance(side.error, RowsDisagree)
        assert "written the same way" in str(side.error)
        assert not any(id in str(side.error) for id in ("c1", "0c"))
    assert "party 'telco' has none of the 20 ids" in str(sides[COORDINATOR].error)
    assert "telco" not in str(sides["shop"].error)
    assert not list(here.folder.rglob("alignment.*"))


def test_rows_of_each_but_none_of_all_is_an_error_that_says_what_helps(meeting: NewMeeting) -> None:
    sides = meeting().all(IDS, {"telco": IDS[:5], "shop": IDS[5:]})
    assert 'keep = "partial"' in str(sides[COORDINATOR].error)
    assert isinstance(sides["shop"].error, RowsDisagree)


def test_no_id_travels_and_no_key_is_used_twice(meeting: NewMeeting) -> None:
    here = meeting()
    for _ in range(2):
        for side in here.all(IDS, {"telco": TELCO, "shop": SHOP}).values():
            outcome(side)
    wire = b"".join(notice.payload for _, notice in here.hub.sent)
    assert b"only-telco" not in wire and b"only-shop" not in wire
    requests = [notice.blobs["points"] for _, notice in here.hub.sent if notice.kind == "REQUEST"]
    assert len(requests) == 2, "sent once to all, in each of two alignments"
    points = [{blob[at : at + 33] for at in range(0, len(blob), 33)} for blob in requests]
    assert not points[0] & points[1]


def test_row_numbers_say_nothing_about_the_order_of_the_table() -> None:
    ids = [f"{number:03d}" for number in range(200)]
    chosen = AlignSettings(name="order", parties=("telco",))
    first, second = (align_exactly(chosen, ids, {"telco": ids})[COORDINATOR].ids for _ in range(2))
    assert first != second and list(first) != ids and sorted(first) == ids


def test_exact_wants_the_ids_of_every_party() -> None:
    with pytest.raises(ConfigError, match="telco"):
        align_exactly(AlignSettings(name="x", parties=("telco",)), ["a"], {})
    with pytest.raises(ColonnadeError, match="repeated"):
        align_exactly(AlignSettings(name="x", parties=("telco",)), ["a", "a"], {"telco": ["a"]})
