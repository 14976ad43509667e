"""Rows that were aligned after a run began: encoded as its own were; for predictions only, and of no other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from colonnade.align.files import Alignment, write_alignment
from colonnade.align.match import Agreed
from colonnade.align.more import extended
from colonnade.deploy.drift import column_drift
from colonnade.deploy.export import export
from colonnade.deploy.open_rows import OpenRows
from colonnade.deploy.party_setup import Columns, PartySetup
from colonnade.deploy.sections import read_party_file
from colonnade.deploy.tables import PartyTable
from colonnade.design import Design
from colonnade.errors import DataError, Refused, RowsDisagree
from colonnade.methods import VIMADMM
from colonnade.models.encoders import ModelSettings
from colonnade.part import Part
from colonnade.privacy.ledger import Ledger
from colonnade.tasks.binary import Binary
from colonnade.wire.messages import Purpose, Query, Request
from tests.deploy.test_tables import ROWS, party_table, telco

TRAIN = torch.arange(20)
NEW = ("n1", "n2")


def grown(table: PartyTable, values: tuple[float, float] = (100.0, 60.0)) -> PartyTable:
    """The table with two more customers at its top, and the alignment extended by them."""
    more = pd.DataFrame({"customer": NEW, "minutes": values, "branch": [33, 11]})
    pd.concat([more, telco()]).to_csv(table.path, index=False)
    a = table.alignment
    agreed = Agreed(a.name, "1" * 32, a.agreed.parties, "all", 2, 0)
    step = Alignment(a.me, agreed, np.arange(2), NEW, None, a.report)
    return replace(table, alignment=extended(a, step))


def request(named: str, rows: list[int], purpose: Purpose = Purpose.PREDICT) -> Request:
    return Request(9, (Query(purpose, ("telco",), torch.tensor(rows)),), alignment=named)


def test_new_rows_are_encoded_as_the_run_was_and_old_ones_stay(tmp_path: Path) -> None:
    table = party_table(tmp_path, telco(), categories=("branch",))
    before, began = table.columns(TRAIN, ROWS), table.alignment.digest
    after = grown(table)
    assert after.as_of(began).columns(TRAIN, ROWS).digest() == before.digest(), "a restart finds the same columns"
    found = after.further(began, after.alignment.digest, before)
    assert torch.equal(found.columns.values[:ROWS], before.values) and found.columns.held.all()
    assert before.plan is not None
    new = pd.DataFrame({"minutes": [100.0, 60.0], "branch": ["33", "11"]})
    assert torch.equal(found.columns.values[ROWS:], before.plan.transform(new))
    assert found.alignments == {began: ROWS, after.alignment.digest: ROWS + 2}
    assert found.ids(torch.tensor([ROWS, 0])) == ["n1", "c0"]


def test_an_alignment_that_extends_another_is_refused(tmp_path: Path) -> None:
    table = party_table(tmp_path, telco())
    before, began = table.columns(TRAIN, ROWS), table.alignment.digest
    after = grown(table)
    for pair in (("0" * 64, after.alignment.digest), (began, "0" * 64)):
        with pytest.raises(Refused, match="run `colonnade align --more` on all sides"):
            after.further(*pair, before)
    with pytest.raises(RowsDisagree, match="is no extension of 000000000000"):
        after.as_of("0" * 64)


def test_new_rows_in_another_unit_are_told_at_home_and_not_in_a_log(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    """Two rows among many move no share of a bin: the shift of the column says that it is stable."""
    table = party_table(tmp_path, telco())
    before, began = table.columns(TRAIN, ROWS), table.alignment.digest
    assert before.plan is not None and before.reference is not None
    place = tmp_path / "party" / "small"
    place.mkdir(parents=True)
    part = Part(Design("small", VIMADMM(), ModelSettings(), Binary(1), ("telco", "bank")), "telco", (2,), {}, {})
    about = {"proposal": {"run": "small", "alignment": began}}
    export(place, about, replace(part, plans={"telco": before.plan}), Ledger(), reference=before.reference)
    keys = '[connection]\nserver = "tls://x:4222"\ncertificate = "c"\nkey = "k"\nauthority = "a"\n'
    (tmp_path / "party.toml").write_text(
        '[party]\nname = "telco"\ntable = "telco.csv"\nid = "customer"\n' + keys, encoding="utf-8"
    )

    for values, doubts in (((100.0, 60.0), 0), ((10_000.0, 6_000.0), 1)):
        after = grown(table, values)
        rows, setup = OpenRows(began, ROWS), PartySetup(table.columns, further=after.further)
        assert rows.extend(request(after.alignment.digest, [ROWS]), setup, before) is not None
        assert rows.doubts == doubts
        write_alignment(tmp_path / "alignment", after.alignment)
        found = column_drift(read_party_file(tmp_path / "party.toml"), "small")
        assert found.large == 0 and len(found.doubts) == doubts, "the new rows alone are looked at"
    assert not recwarn.list, "a log is no place for columns and their values"
    assert "column 'minutes': 2 of 2 values are far outside" in found.doubts[0]


def test_a_new_row_of_another_kind_is_refused_by_column(tmp_path: Path) -> None:
    table = party_table(tmp_path, telco())
    before, began = table.columns(TRAIN, ROWS), table.alignment.digest
    after = grown(table, ("many", "few"))  # type: ignore[arg-type]
    with pytest.raises(DataError, match="minutes"):
        after.further(began, after.alignment.digest, before)


class TestOpenRows:
    def columns(self) -> Columns:
        return Columns(torch.zeros(4, 1), torch.ones(4, dtype=torch.bool))

    def test_without_a_name_there_are_the_rows_of_the_run(self) -> None:
        rows = OpenRows("a", 4)
        assert rows.extend(request("", [1]), PartySetup(lambda t, n: self.columns()), self.columns()) is None
        assert rows.count(request("", [1])) == rows.count(request("a", [1])) == 4

    def test_a_party_that_knows_no_extension_refuses(self) -> None:
        with pytest.raises(Refused, match="which this party does not know"):
            OpenRows("a", 4).extend(request("b", [1]), PartySetup(lambda t, n: self.columns()), self.columns())

    def test_an_extension_is_read_once_and_for_predictions_only(self, tmp_path: Path) -> None:
        table = party_table(tmp_path, telco())
        before, began, after = table.columns(TRAIN, ROWS), table.alignment.digest, grown(table)
        named, read = after.alignment.digest, list[str]()

        def further(began: str, named: str, columns: Columns):  # type: ignore[no-untyped-def]
            read.append(named)
            return after.further(began, named, columns)

        rows, setup = OpenRows(began, len(before.values)), PartySetup(table.columns, further=further)
        found = rows.extend(request(named, [ROWS]), setup, before)
        assert found is not None and len(found[1].values) == ROWS + 2
        assert rows.extend(request(named, [ROWS]), *found) is None and read == [named]
        assert rows.count(request(named, [ROWS])) == ROWS + 2 and rows.count(request("", [ROWS])) == ROWS
        for purpose in (Purpose.TRAIN, Purpose.EVALUATE):
            with pytest.raises(Refused, match="agreed on nothing else"):
                rows.count(request(named, [ROWS], purpose))
