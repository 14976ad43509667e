"""A party's own table: its columns by row number, and how it became them, kept at home with its part of the model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from colonnade import mapped
from colonnade.align.files import Alignment, write_alignment
from colonnade.align.match import Agreed, MatchReport, PartyMatch
from colonnade.check import inspect_party
from colonnade.data.beside import Beside
from colonnade.data.stored import from_bytes
from colonnade.deploy.export import export
from colonnade.deploy.sections import CoordinatorSection
from colonnade.deploy.settings import read_coordinator, read_party, split_of
from colonnade.deploy.start import party_setup
from colonnade.deploy.tables import LabelTable, PartyTable
from colonnade.deploy.undertaking_files import read_undertaking
from colonnade.design import Design
from colonnade.errors import ConfigError, DataError
from colonnade.methods import VIMADMM
from colonnade.models.encoders import ModelSettings
from colonnade.part import Part
from colonnade.privacy.ledger import Ledger
from colonnade.row_split import SplitSettings
from colonnade.tasks.binary import Binary

ROWS = 30


def party_table(folder: Path, frame: pd.DataFrame, categories: tuple[str, ...] = ()) -> PartyTable:
    frame.to_csv(folder / "telco.csv", index=False)
    ids = tuple(str(name) for name in frame["customer"])
    report = MatchReport(ROWS, (PartyMatch("telco", ROWS, ROWS),), ROWS, 0, 10)
    agreed = Agreed("small", "0" * 32, ("telco",), "all", ROWS, 0)
    alignment = Alignment("telco", agreed, np.arange(ROWS), ids, None, report)
    return PartyTable("telco", folder / "telco.csv", "customer", alignment, categories)


def telco() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    customer, branch = [f"c{k}" for k in range(ROWS)], [11, 22, 33] * (ROWS // 3)
    return pd.DataFrame({"customer": customer, "minutes": rng.normal(90, 20, ROWS), "branch": branch})


def test_a_large_table_of_a_party_lies_on_disk_with_the_same_numbers(tmp_path, monkeypatch):
    table = party_table(tmp_path, telco())
    here = table.columns(torch.arange(20), ROWS)
    telco().iloc[::-1].to_csv(table.path, index=False)  # in whatever order
    monkeypatch.setattr(mapped, "IN_MEMORY", 0)
    there = table.columns(torch.arange(20), ROWS)
    assert mapped.is_mapped(there.values) and not mapped.is_mapped(here.values)
    assert torch.equal(there.values, here.values) and there.digest() == here.digest()


def test_the_party_keeps_how_its_table_became_columns(tmp_path: Path) -> None:
    table = party_table(tmp_path, telco(), categories=("branch",))
    columns = table.columns(torch.arange(20), ROWS)
    assert columns.plan is not None
    design = Design("small", VIMADMM(), ModelSettings(), Binary(1), ("telco", "bank"))
    export(tmp_path, {}, Part(design, "telco", (4,), {"w": torch.zeros(2)}, {"telco": columns.plan}), Ledger())
    plan = from_bytes((tmp_path / "columns.skops").read_bytes())["telco"]
    assert (plan.id, plan.label) == ("customer", None)
    new = telco()[["branch", "customer", "minutes"]].astype({"branch": str})
    assert torch.equal(plan.transform(new), columns.values)


def test_columns_of_a_former_run_are_read_as_there_or_refused_by_name(tmp_path: Path) -> None:
    """A run that takes over a part reads the table again, which may have changed since."""
    table = party_table(tmp_path, telco())
    columns = table.columns(torch.arange(20), ROWS)
    again = table.columns(torch.arange(20), ROWS, plan=columns.plan)
    assert torch.equal(again.values, columns.values)
    telco().assign(more=1.5).to_csv(table.path, index=False)
    assert torch.equal(table.columns(torch.arange(20), ROWS, plan=columns.plan).values, columns.values)
    telco().drop(columns="minutes").to_csv(table.path, index=False)
    with pytest.raises(DataError, match="the new table lacks the column 'minutes' that the model was trained with"):
        table.columns(torch.arange(20), ROWS, plan=columns.plan)
    telco().assign(minutes="many").to_csv(table.path, index=False)
    with pytest.raises(DataError, match="column 'minutes' had numbers in training and has text now"):
        table.columns(torch.arange(20), ROWS, plan=columns.plan)


def test_a_party_says_at_home_how_its_columns_become_numbers(tmp_path: Path) -> None:
    frame = telco().assign(minutes=telco()["minutes"].where(telco().index % 5 > 0))
    plain = party_table(tmp_path, frame)
    assert plain.columns(torch.arange(20), ROWS).values.shape == (ROWS, 2 + 1)  # minutes, where empty, branch
    connection = '[connection]\nserver = "tls://x:4222"\ncertificate = "c"\nkey = "k"\nauthority = "a"\n'
    party = '[party]\nname = "telco"\nrun = "r"\ntable = "telco.csv"\nid = "customer"\n'
    said = '[columns]\nmissing = "fill"\nby_name = { branch = { kind = "category" } }\n'
    (tmp_path / "party.toml").write_text(party + connection + said)
    read = read_party(tmp_path / "party.toml")
    found = replace(plain, settings=read.columns).columns(torch.arange(20), ROWS)
    assert found.values.shape == (ROWS, 1 + 3)
    assert inspect_party("telco", frame, "customer", read.columns).errors == []
    with pytest.raises(ConfigError, match=r"unknown key 'mising' in \[columns\]; did you mean 'missing'"):
        read_party(tmp_path / "party.toml", ["columns.mising=fill"])


def test_the_label_in_a_table_of_its_holder_is_no_column_to_learn_from(tmp_path: Path) -> None:
    labelled = telco().assign(churned=["yes", "no"] * (ROWS // 2))
    naive, table = party_table(tmp_path, labelled), replace(party_table(tmp_path, labelled), label="churned")
    expected = party_table(tmp_path, telco()).columns(torch.arange(20), ROWS).values
    labelled.to_csv(table.path, index=False)
    columns = table.columns(torch.arange(20), ROWS)
    assert naive.columns(torch.arange(20), ROWS).values.shape[1] > expected.shape[1]
    assert torch.equal(columns.values, expected)
    assert columns.plan is not None and columns.plan.label == "churned"
    assert torch.equal(columns.plan.transform(labelled.drop(columns="customer")), expected)  # without a warning
    telco().to_csv(table.path, index=False)
    assert torch.equal(table.columns(torch.arange(20), ROWS).values, expected)  # it need not be there


def test_a_table_with_a_label_of_its_own_organisation_is_refused_until_it_is_left_out(tmp_path: Path) -> None:
    labelled = telco().assign(churned=["yes", "no"] * (ROWS // 2))
    write_alignment(tmp_path / "alignment", party_table(tmp_path, labelled).alignment)
    keys = '[connection]\nserver = "tls://x:4222"\ncertificate = "c"\nkey = "k"\nauthority = "a"\n'
    party, holder = tmp_path / "party.toml", tmp_path / "coordinator.toml"
    party.write_text('[party]\nname = "telco"\nrun = "r"\ntable = "telco.csv"\nid = "customer"\n' + keys)
    (tmp_path / "pyproject.toml").write_text("[coordinator]\n= broken")  # whatever else lies there

    def width(*said: str) -> int:
        read = read_party(party, list(said))
        return (
            party_setup(read).columns_of("", torch.arange(20), ROWS, torch.empty(0, dtype=torch.int64)).values.shape[1]
        )

    def held(own: str, table: str) -> None:
        said = f'[coordinator]\nrun = "r"\nparties = ["telco", "bank"]\nown = [{own}]\ntable = "{table}"\n'
        holder.write_text(said + 'id = "customer"\nlabel = "churned"\n' + keys)

    with_it = width()
    held("", "labels.csv")
    assert width() == with_it, "a party of another organisation: the name says nothing"
    for own, table in (('"telco"', "labels.csv"), ("", "telco.csv")):
        held(own, table)
        with pytest.raises(DataError, match=r"'telco.csv' has the column 'churned', which coordinator.toml"):
            width()
        assert width("party.label=churned") < with_it


def test_numbers_are_categories_where_the_party_says_so(tmp_path: Path) -> None:
    assert party_table(tmp_path, telco()).columns(torch.arange(20), ROWS).values.shape == (ROWS, 2)
    assert party_table(tmp_path, telco(), ("branch",)).columns(torch.arange(20), ROWS).values.shape == (ROWS, 1 + 3)
    with pytest.raises(DataError, match="categories names 'brunch', which is no column of the table"):
        party_table(tmp_path, telco(), ("brunch",)).columns(torch.arange(20), ROWS)


def label_table(
    folder: Path,
    frame: pd.DataFrame,
    weights: str | None = None,
    split: SplitSettings | None = None,
    by: str | None = None,
) -> LabelTable:
    frame.to_csv(folder / "labels.csv", index=False)
    alignment = party_table(folder, telco()).alignment
    beside = Beside(weights, split or SplitSettings(validation=0.2, test=0.2), by)
    return LabelTable.read(folder / "labels.csv", "customer", "churned", "binary", alignment, beside)


def test_the_label_holder_may_weigh_rows_by_a_column(tmp_path: Path) -> None:
    months = np.arange(1.0, ROWS + 1)
    frame = telco()[["customer"]].assign(churned=[0.0, 1.0] * (ROWS // 2), months=months)
    assert label_table(tmp_path, frame, None).weights is None
    found = label_table(tmp_path, frame, "months").weights
    assert found is not None and found.tolist() == months.tolist()
    frame.loc[:3, ["churned", "months"]] = float("nan")  # a row without a label is only predicted
    found = label_table(tmp_path, frame, "months").weights
    assert found is not None and found.tolist() == [1.0] * 4 + months[4:].tolist()
    with pytest.raises(DataError, match="no weights column 'years'"):
        label_table(tmp_path, frame, "years")
    frame.loc[7, "months"] = -2.0
    with pytest.raises(DataError, match="row 7 has -2"):
        label_table(tmp_path, frame, "months")


def test_the_label_holder_splits_by_columns_of_its_own_table(tmp_path: Path) -> None:
    frame = telco()[["customer"]].assign(
        churned=[0.0, 1.0, None] * (ROWS // 3), household=np.arange(ROWS) // 5, month=np.arange(ROWS)[::-1] // 3
    )
    by_time = label_table(tmp_path, frame, split=SplitSettings(time="month", test=0.2, validation=0.2), by="household")
    month = torch.from_numpy(frame["month"].to_numpy().copy())
    parts = [month[rows] for rows in (by_time.split.train, by_time.split.validation, by_time.split.test)]
    assert parts[0].max() < parts[1].min() and parts[1].max() < parts[2].min()
    known = frame["churned"].notna().to_numpy()
    assert sorted(torch.cat([by_time.split.train, by_time.split.validation, by_time.split.test]).tolist()) == (
        known.nonzero()[0].tolist()
    )
    assert by_time.by is not None
    assert by_time.by.codes[known.nonzero()[0]].tolist() == frame["household"][known].tolist()
    whole = label_table(tmp_path, frame, split=SplitSettings(groups="household", test=0.2, validation=0.2))
    places = [
        set(frame["household"][rows.numpy()]) for rows in (whole.split.train, whole.split.validation, whole.split.test)
    ]
    assert not places[0] & places[1] and not places[0] & places[2] and not places[1] & places[2]
    with pytest.raises(DataError, match="has no groups column 'flat'"):
        label_table(tmp_path, frame, split=SplitSettings(groups="flat"))


def test_the_label_holder_splits_by_a_column_of_its_id(tmp_path: Path) -> None:
    """An id of person and year: nobody trains and tests."""
    person, year = np.arange(ROWS) // 3, np.arange(ROWS) % 3 + 2020
    frame = pd.DataFrame({"person": person, "year": year, "churned": np.arange(ROWS) % 2})
    frame.to_csv(tmp_path / "labels.csv", index=False)
    alignment = replace(
        party_table(tmp_path, telco()).alignment, ids=tuple(f"{p}|{y}" for p, y in zip(person, year, strict=True))
    )
    for column, values in (("person", person), ("year", year)):
        split = SplitSettings(**{"groups" if column == "person" else "time": column}, test=0.3, validation=0)
        found = LabelTable.read(
            tmp_path / "labels.csv", ("person", "year"), "churned", "binary", alignment, Beside(split=split)
        )
        trained, tested = (set(values[rows.numpy()]) for rows in (found.split.train, found.split.test))
        assert tested and not trained & tested
        assert column == "person" or tested == {2022}


def test_protected_labels_are_not_counted_to_split_the_rows() -> None:
    section = {"run": "small", "parties": ["telco"], "table": "x.csv", "id": "c", "label": "y"}
    assert split_of(CoordinatorSection(**section), protected=False).stratify is None
    assert split_of(CoordinatorSection(**section), protected=True).stratify is False
    assert split_of(CoordinatorSection(**section, stratify=True), protected=True).stratify is True  # refused later


WRITTEN = """
table = "written.csv"
id = ["shop", "line"]
separator = ";"
decimal = ","
encoding = "cp1252"
run = "small"
"""
CONNECTION = """
[connection]
server = "tls://x:4222"
certificate = "c"
key = "k"
authority = "a"
"""


def test_from_the_files_of_a_deployment_to_columns_and_labels_of_a_table_that_leaves_much_open(tmp_path: Path) -> None:
    minutes = np.round(np.arange(ROWS) + 0.125, 3)
    lines = [
        f"{k % 2};{k};{str(value).replace('.', ',')};{'schön' if k % 3 else 'mäßig'}" for k, value in enumerate(minutes)
    ]
    (tmp_path / "written.csv").write_bytes("\n".join(["shop;line;minutes;mood", *lines]).encode("cp1252"))
    agreed = Agreed("small", "0" * 32, ("telco",), "all", ROWS, 0)
    report = MatchReport(ROWS, (PartyMatch("telco", ROWS, ROWS),), ROWS, 0, 10)
    order = np.arange(ROWS)[::-1]
    ids = tuple(f"{k % 2}|{k}" for k in order)
    alignment = Alignment("telco", agreed, np.arange(ROWS), ids, None, report)
    write_alignment(tmp_path / "alignment", alignment)
    (tmp_path / "party.toml").write_text(f'[party]\nname = "telco"\n{WRITTEN}{CONNECTION}')
    columns = party_setup(read_party(tmp_path / "party.toml")).columns(torch.arange(ROWS), ROWS)
    assert columns.plan is not None and columns.plan.id == ("shop", "line")
    standard = (minutes - minutes.mean()) / minutes.std()
    np.testing.assert_allclose(columns.values[:, 0].numpy(), standard[order], atol=1e-6)
    holder = f'[coordinator]\nparties = ["telco"]\nlabel = "mood"\n{WRITTEN}{CONNECTION}'
    (tmp_path / "coordinator.toml").write_text(holder)
    found = read_undertaking(read_coordinator(tmp_path / "coordinator.toml"), alignment)
    assert found.task.classes == ("schön", "mäßig")
    assert found.labels.flatten().tolist() == [float(k % 3 == 0) for k in order]


def test_columns_do_not_depend_on_people_who_withdrew(tmp_path: Path) -> None:
    table, out = party_table(tmp_path, telco(), ("branch",)), torch.tensor([3, 7])
    seen = torch.tensor([row for row in range(20) if row not in (3, 7)])
    before = table.columns(seen, ROWS, out)
    assert not before.held[out].any() and not before.values[out].any() and int(before.held.sum()) == ROWS - 2
    telco().drop(index=[3, 7]).to_csv(table.path, index=False)  # their owner has deleted the lines
    assert table.columns(seen, ROWS, out).digest() == before.digest()
    with pytest.raises(DataError, match="2 of 30 aligned ids are not in"):
        table.columns(seen, ROWS)
    with pytest.raises(DataError, match="1 of 30 aligned ids are not in"):
        table.columns(seen, ROWS, out[:1])


def test_people_who_withdrew_have_no_label(tmp_path: Path) -> None:
    frame = telco()[["customer"]].assign(churned=[0.0, 1.0] * (ROWS // 2))
    label_table(tmp_path, frame, None)
    alignment, beside = party_table(tmp_path, telco()).alignment, Beside(None, SplitSettings(test=0.2), None)
    for lines in (frame, frame.drop(index=[3, 29])):
        lines.to_csv(tmp_path / "labels.csv", index=False)
        read = LabelTable.read(
            tmp_path / "labels.csv", "customer", "churned", "binary", alignment, beside, withdrawn=("c3", "c29")
        )
        split = torch.cat([read.split.train, read.split.validation, read.split.test]).tolist()
        assert sorted(split) == [row for row in range(ROWS) if row not in (3, 29)]
        assert read.labels[4:8].flatten().tolist() == [0, 1, 0, 1]
