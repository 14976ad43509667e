"""Alignment files: what was written is read again, and nothing else is."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from colonnade.align import files
from colonnade.align.exact import align_exactly
from colonnade.align.files import Alignment, read_alignment, write_alignment
from colonnade.align.match import MatchReport, PartyMatch, number_rows, report_of
from colonnade.align.settings import AlignSettings
from colonnade.errors import DataError, MissingData, RowsDisagree
from colonnade.wire.messages import COORDINATOR

IDS = ["a", "b,c", 'd"e', "é", " f", "7", "07"]


def aligned(keep: str = "partial") -> dict[str, Alignment]:
    settings = AlignSettings(name="files", parties=("telco",), own=("branch",), keep=keep)  # type: ignore[arg-type]
    return align_exactly(settings, IDS, {"telco": [*IDS[:4], "else"]})


@pytest.mark.parametrize("name", [COORDINATOR, "telco"])
def test_what_is_written_is_read(tmp_path: Path, name: str) -> None:
    side = aligned()[name]
    write_alignment(tmp_path, side)
    found = read_alignment(tmp_path)
    assert (found.ids, found.agreed, found.report, found.me) == (side.ids, side.agreed, side.report, name)
    assert found.rows.tolist() == side.rows.tolist()
    assert (found.presence is None) == (side.presence is None) == (name == "telco")
    for party, held in (side.presence or {}).items():
        assert found.presence is not None and found.presence[party].tolist() == held.tolist()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        ["alignment.csv", "alignment.json", *(["presence.csv"] if name == COORDINATOR else [])]
    )


def test_the_files_are_what_people_expect(tmp_path: Path) -> None:
    write_alignment(tmp_path, aligned()[COORDINATOR])
    lines = (tmp_path / "alignment.csv").read_text().splitlines()
    assert lines[0] == "row,id" and [line.split(",")[0] for line in lines[1:]] == [str(row) for row in range(7)]
    presence = (tmp_path / "presence.csv").read_text().splitlines()
    assert presence == ["row,telco,branch", *(f"{row},{int(row < 4)},1" for row in range(7))]
    about = json.loads((tmp_path / "alignment.json").read_text())
    assert (about["agreed"]["complete"], about["agreed"]["partial"], about["rows"]) == (4, 3, 7)
    assert about["report"]["matches"][0] == {
        "party": "telco", "ids": 5, "matched": 4, "own": False, "rate_of_label_ids": 4 / 7, "rate_of_its_ids": 0.8
    }  # fmt: skip


def test_a_second_alignment_replaces_the_first_whole(tmp_path: Path) -> None:
    write_alignment(tmp_path, aligned("partial")[COORDINATOR])
    second = aligned("all")[COORDINATOR]
    write_alignment(tmp_path, second)
    assert read_alignment(tmp_path).digest == second.digest
    assert not (tmp_path / "presence.csv").exists()


@pytest.mark.parametrize("name", [COORDINATOR, "telco"])
@pytest.mark.parametrize("renamed", [0, 1, 2])
def test_a_kill_between_the_renames_leaves_the_old_one_or_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, renamed: int
) -> None:
    """Neither would be lost rows for every model: row numbers are drawn anew when an alignment is made again."""
    old, new = aligned()[name], aligned("all")[name] if name == "telco" else other_presence()
    write_alignment(tmp_path, old)
    left, real = [renamed], Path.replace

    def killed(self: Path, target: Path) -> Path:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        return real(self, target)

    monkeypatch.setattr(Path, "replace", killed)
    with suppress(KeyboardInterrupt):
        write_alignment(tmp_path, new)
    monkeypatch.undo()
    assert read_alignment(tmp_path).digest == (new if renamed else old).digest
    assert read_alignment(tmp_path).rows.tolist() == (new if renamed else old).rows.tolist()
    write_alignment(tmp_path, old)
    assert read_alignment(tmp_path).digest == old.digest


def other_presence() -> Alignment:
    settings = AlignSettings(name="files", parties=("telco",), own=("branch",), keep="partial")
    return align_exactly(settings, [*IDS, "new"], {"telco": IDS})[COORDINATOR]


def test_an_alignment_that_is_written_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = aligned()[COORDINATOR], other_presence()
    write_alignment(tmp_path, first)
    real, written = files._read_files, list[str]()

    def late(folder: Path, about: files._About) -> dict[str, bytes]:
        if not written:
            written.append("between alignment.json and the other files")
            write_alignment(tmp_path, second)
        return real(folder, about)

    monkeypatch.setattr(files, "_read_files", late)
    assert read_alignment(tmp_path).digest == second.digest


def shorter(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def about(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        values = json.loads((folder / "alignment.json").read_text())
        change(values)
        (folder / "alignment.json").write_text(json.dumps(values))

    return damage


def rewritten(folder: Path, name: str, old: str, new: str) -> None:
    """A file changed by somebody who also knew to change its digest."""
    import hashlib

    text = (folder / name).read_text()
    assert old in text
    content = text.replace(old, new, 1).encode()
    (folder / name).write_bytes(content)
    about(lambda v: v["files"].update({name: hashlib.sha256(content).hexdigest()}))(folder)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "csv cut": lambda folder: shorter(folder / "alignment.csv"),
    "csv gone": lambda folder: (folder / "alignment.csv").unlink(),
    "presence cut": lambda folder: shorter(folder / "presence.csv"),
    "json cut": lambda folder: shorter(folder / "alignment.json"),
    "json of something else": lambda folder: (folder / "alignment.json").write_text("[]"),
    "other version": about(lambda v: v.update(format=2)),
    "another count": about(lambda v: v["agreed"].update(complete=5)),
    "another number of rows": about(lambda v: v.update(rows=6)),
    "a file elsewhere": about(lambda v: v["files"].update({"../x": "0"})),
    "no files": about(lambda v: v.update(files={})),
    "no report": about(lambda v: v.update(report={})),
    "rows out of order": lambda folder: rewritten(folder, "alignment.csv", "\n3,", "\n1,"),
    "a row without a number": lambda folder: rewritten(folder, "alignment.csv", "\n3,", "\nx,"),
    "an id twice": lambda folder: rewritten(folder, "alignment.csv", "07", "7"),
    "another head": lambda folder: rewritten(folder, "alignment.csv", "row,id", "id,row"),
    "presence of other rows": lambda folder: rewritten(folder, "presence.csv", "\n6,", "\n8,"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_found_and_said(tmp_path: Path, name: str) -> None:
    write_alignment(tmp_path, aligned()[COORDINATOR])
    DAMAGE[name](tmp_path)
    with pytest.raises(DataError, match=r"is damaged .*; run `colonnade align` again"):
        read_alignment(tmp_path)


def test_no_alignment_is_said_too(tmp_path: Path) -> None:
    with pytest.raises(MissingData, match=r"no alignment in .*run `colonnade align` first"):
        read_alignment(tmp_path)


def test_the_report_is_a_table_for_people() -> None:
    matches = (PartyMatch("telco", 900, 800), PartyMatch("branch", 1000, 1000, own=True))
    report = MatchReport(1000, matches, complete=800, partial=200, left_out=0)
    assert report.lines() == [
        "party           ids  matched  of the label holder's  of its own",
        "telco           900      800                 80.0 %      88.9 %",
        "branch (own)  1,000    1,000                100.0 %     100.0 %",
        "800 rows of all, 200 of some; 0 ids here are in no row",
    ]
    assert MatchReport.from_json(json.loads(json.dumps(report.to_json()))) == report


def test_complete_rows_come_first_and_only_they_if_all_must_hold_them() -> None:
    have = {"a": np.array([1, 1, 0, 0, 1], dtype=bool), "b": np.array([1, 0, 1, 0, 1], dtype=bool)}
    everything = number_rows(have, "partial")
    assert (set(everything.order[:2]), set(everything.order[2:])) == ({0, 4}, {1, 2})
    assert (everything.complete, everything.partial) == (2, 2)
    assert set(number_rows(have, "all").order) == {0, 4}
    with pytest.raises(RowsDisagree, match="party 'b' has none of the 5 ids"):
        report_of(5, (PartyMatch("a", 3, 3), PartyMatch("b", 3, 0)), everything)
