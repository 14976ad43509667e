"""An alignment that another one replaced is kept, so that the rows of runs on it are found again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from colonnade.align.files import FORMER, Alignment, Step, read_as_of, set_aside, write_alignment
from colonnade.align.match import Agreed, MatchReport
from colonnade.errors import MissingData, RowsDisagree


def alignment(fold: str, *ids: str) -> Alignment:
    agreed = Agreed("run", fold * 32, ("telco",), "all", len(ids), 0)
    return Alignment("coordinator", agreed, np.arange(len(ids)), ids, None, MatchReport(len(ids), (), len(ids), 0, 0))


def test_each_is_found_by_its_digest(tmp_path: Path) -> None:
    one, two, three = alignment("1", "a", "b"), alignment("2", "b", "c"), alignment("3", "c")
    for new in (one, two, three):
        set_aside(tmp_path, new)
        write_alignment(tmp_path, new)
    for each in (one, two, three):
        assert read_as_of(tmp_path, each.digest).ids == each.ids
    assert len(list((tmp_path / FORMER).iterdir())) == 2
    with pytest.raises(RowsDisagree, match="has no alignment 999"):
        read_as_of(tmp_path, "9" * 64)


def test_one_that_is_written_again_or_extended_is_not_kept(tmp_path: Path) -> None:
    one = alignment("1", "a", "b")
    write_alignment(tmp_path, one)
    set_aside(tmp_path, one)
    extended = alignment("2", "a", "b", "c")
    agreed = replace(extended.agreed, extends=one.digest)

    set_aside(tmp_path, replace(extended, agreed=agreed, former=(Step(one.agreed, one.report, ""),)))
    assert not (tmp_path / FORMER).exists()


def test_there_is_none(tmp_path: Path) -> None:
    set_aside(tmp_path, alignment("1", "a"))
    assert not (tmp_path / FORMER).exists()
    with pytest.raises(MissingData):
        read_as_of(tmp_path, "1" * 64)
