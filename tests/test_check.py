"""`colonnade check`: what is wrong or doubtful about tables is said before anything runs."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import colonnade as cn
from colonnade.check import check, inspect_label_table, inspect_party
from colonnade.data.frames import read_table
from colonnade.errors import DataError, DoubtfulData
from colonnade.run import Training

ROWS = 400


def tables() -> dict[str, pd.DataFrame]:
    """Nothing is doubtful about these."""
    rng = np.random.default_rng(0)
    income, minutes = rng.normal(size=(2, ROWS))
    churn = np.where(income + minutes + rng.normal(size=ROWS) > 0, "yes", "no")
    bank = {"customer": range(ROWS), "income": income, "city": rng.choice(["Bonn", "Ulm"], ROWS), "churn": churn}
    return {
        "bank": pd.DataFrame(bank),
        "telco": pd.DataFrame({"customer": range(ROWS), "minutes": minutes}).iloc[::-1],
    }


def five_times(made: dict[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """The same rows, each five times, of other customers."""
    longer = {party: pd.concat([table] * 5, ignore_index=True) for party, table in made.items()}
    return {party: table.assign(customer=range(len(table))) for party, table in longer.items()}


def with_column(party: str, name: str, values: object) -> dict[str, pd.DataFrame]:
    made = tables()
    made[party] = made[party].assign(**{name: values})
    return made


def test_nothing_is_said_against_good_tables():
    found = check(tables(), labels="churn", id="customer")
    assert not found.errors and not found.warnings
    assert found.federation is not None and found.federation.rows == ROWS
    assert [(table.party, table.rows, len(table.columns)) for table in found.tables] == [
        ("bank", ROWS, 2), ("telco", ROWS, 1),
    ]  # fmt: skip
    assert "party 'bank': 400 of 400 ids are in all tables" in found.notes
    assert any(note.startswith("labels: no: ") for note in found.notes)


@pytest.mark.parametrize(
    ("name", "values", "says"),
    [
        (
            "age",
            ["31"] * 9 + ["44", "52", "x"] + ["60"] * (ROWS - 12),
            "'age': 1 of 400 values is not a number .first in the row with id",
        ),
        ("lasts", pd.to_timedelta(range(ROWS), unit="D"), "column 'lasts' has type timedelta64"),
        ("debt", [np.inf, *range(ROWS - 1)], "'debt': 1 of 400 values are infinite"),
    ],
)
def test_what_a_plan_refuses_is_an_error(name, values, says):
    found = check(with_column("telco", name, values), labels="churn", id="customer")
    assert len(found.errors) == 1 and found.federation is None
    with pytest.raises(DataError, match=says):
        found.data()


@pytest.mark.parametrize(
    ("name", "values", "says"),
    [
        ("same", 7, "'same': all values are 7; it tells nothing, drop it"),
        ("nearly", [1] + [0] * (ROWS - 1), r"'nearly': 99\.8% of the values are 0; it tells next to nothing"),
        ("name", [f"n{k}" for k in range(ROWS)], r"'name' is left out \(400 different values in 400 rows\)"),
        ("number", np.random.default_rng(1).permutation(ROWS) + 1000, "'number': every row has another value"),
        ("visit", ["31.12.2020", "01.01.2021"] * (ROWS // 2), "'visit': its values look like dates written as text"),
        ("debt", [-999, -999] + [0.5, 0.7] * (ROWS // 2 - 1), "'debt': 2 of 400 values are -999, far from all others"),
    ],
)
def test_what_trains_but_is_hardly_meant_is_a_warning(name, values, says):
    found = check(with_column("telco", name, values), labels="churn", id="customer")
    assert not found.errors and len(found.warnings) == 1
    with pytest.warns(DoubtfulData, match=f"party 'telco', column {says}"):
        assert found.data().rows == ROWS


@pytest.mark.parametrize(
    ("values", "says"),
    [
        (lambda y: np.where(y == "yes", "closed", "open"), r"100\.0% right by its categories"),
        (lambda y: (y == "yes") * 5 + np.linspace(0, 1, ROWS), r"AUC 1\.0000"),
        (lambda y: (y == "no") * 5 + np.linspace(0, 1, ROWS), r"AUC 1\.0000"),
    ],
)
def test_a_column_that_tells_the_label_is_found_at_its_holder_only(values, says):
    leak = values(tables()["bank"]["churn"].to_numpy())
    found = check(with_column("bank", "status", leak), labels="churn", id="customer")
    assert len(found.warnings) == 1
    with pytest.warns(DoubtfulData, match=rf"'bank', column 'status' alone tells the label \({says}\); if it is only"):
        found.data()
    elsewhere = with_column("telco", "status", leak[::-1])  # the table of telco is the other way round
    assert not check(elsewhere, labels="churn", id="customer").warnings  # it would be a release


def test_what_was_said_about_a_column_is_not_doubted_again():
    made = with_column("telco", "debt", [-999, -999] + [0.5, 0.7] * (ROWS // 2 - 1))
    said = {"telco": {"by_name": {"debt": {"empty": [-999]}}}}
    found = check(made, labels="churn", id="customer", columns=said)
    assert found.warnings == []
    debt = next(one for table in found.tables for one in table.columns if one.name == "debt")
    assert (debt.missing, debt.distinct) == (2, 2)


def test_a_number_that_is_the_label_in_disguise():
    made = tables()
    made["bank"]["churn"] = np.random.default_rng(3).normal(size=ROWS)
    made["bank"]["euro"] = made["bank"]["churn"] * 1.96
    found = check(made, labels="churn", id="customer", task="regression")
    assert any(r"column 'euro' alone tells the label (correlation 1.0000)" in text for text in found.warnings)


def test_small_and_rare_classes_are_told():
    made = tables()
    made["bank"]["churn"] = ["yes"] * 10 + ["no"] * (ROWS - 10)
    (text,) = check(made, labels="churn", id="customer").warnings
    assert text.startswith("class 'yes' has 10 of 400 rows; at least 20 are needed")


def test_a_rare_class_is_told_with_count_share_and_what_to_set():
    made = five_times(tables())
    made["bank"]["churn"] = ["yes"] * 40 + ["no"] * 1960
    found = check(made, labels="churn", id="customer")
    (text,) = found.warnings
    assert text.startswith("class 'yes' is rare: 40 of 2,000 rows (2 %), so a model may never predict it")
    assert 'training.decision.decide_by = "f1"' in text
    assert found.answered(Training()).warnings == [text]
    assert not found.answered(Training(decision={"decide_by": "f1"})).warnings
    assert not found.answered(Training(class_weights="balanced")).warnings


def test_a_rare_class_of_several_has_no_threshold():
    made = five_times(tables())
    made["bank"]["churn"] = ["a"] * 40 + ["b"] * 960 + ["c"] * 1000
    found = check(made, labels="churn", id="customer")
    (text,) = found.warnings
    assert "threshold" not in text
    assert found.answered(Training(decision={"decide_by": "f1"})).warnings == [text]
    assert not found.answered(Training(class_weights="balanced")).warnings


def test_categories_that_no_training_row_has_are_told():
    made = tables()
    split = cn.RowSplit.random(ROWS)
    made["bank"]["city"] = np.where(np.arange(ROWS) == int(split.test[0]), "Köln", made["bank"]["city"])
    found = check(made, labels="churn", id="customer", split=split)
    assert found.warnings == [
        "party 'bank', column 'city': 1 of 400 values are categories that training did not see; they count "
        "as 'other', none of the known ones"
    ]


def test_rows_that_do_not_meet_are_counted():
    made = tables()
    made["telco"] = made["telco"].iloc[:300]
    found = check(made, labels="churn", id="customer")
    assert "party 'bank': 300 of 400 ids are in all tables" in found.notes
    assert found.warnings[0].startswith("rows whose id not every table has are left out (party 'bank': 100 of 400")


def test_dates_and_empty_values_are_no_errors():
    made = with_column("bank", "when", pd.date_range("2020-01-01", periods=ROWS))
    made["bank"] = made["bank"].assign(age=[None, *range(ROWS - 1)], note=[None, "a", "b", None] * (ROWS // 4))
    found = check(made, labels="churn", id="customer")
    assert found.errors == [] and found.federation is not None
    assert {one.name: one.missing for one in found.tables[0].columns if one.missing} == {"age": 1, "note": ROWS // 2}


def test_errors_of_ids_and_labels_come_beside_those_of_columns():
    made = with_column("telco", "age", [np.inf, *range(ROWS - 1)])
    made["bank"].loc[1, "customer"] = 0
    found = check(made, labels="churn", id="customer")
    assert len(found.errors) == 2
    with pytest.raises(
        DataError, match=r"'bank', id column 'customer': 1 ids occur more than once.*\(and 1 more: colonn"
    ):
        found.data()


def test_a_party_checks_its_own_table_alone():
    found = inspect_party("telco", with_column("telco", "same", 7)["telco"], "customer")
    assert len(found.warnings) == 1 and found.tables[0].rows == ROWS and found.federation is None
    with pytest.raises(DataError, match="party 'telco' has no id column 'client'"):
        inspect_party("telco", tables()["telco"], "client")


def test_the_label_holder_checks_its_own_table_alone():
    labels = tables()["bank"].assign(status=lambda frame: frame["churn"])
    labels.loc[:2, "churn"] = None
    found = inspect_label_table(labels, "customer", "churn", None)
    assert "3 of 400 rows have no label; they are only predicted" in found.notes
    assert "column 'status' alone tells the label" in found.warnings[0]
    with pytest.raises(DataError, match="the table of labels has no column 'y'"):
        inspect_label_table(labels, "customer", "y", None)


def test_numbers_that_begin_with_a_zero_are_doubted_until_somebody_says_what_they_are(tmp_path):
    made = tables()
    codes = np.where(np.arange(ROWS) % 2, "01067", "10115")
    made["bank"].assign(zip=codes, hour="07", calls="10").to_csv(tmp_path / "bank.csv", index=False)
    files = {"bank": tmp_path / "bank.csv", "telco": made["telco"]}
    keywords = {"labels": "churn", "id": "customer"}
    found = [one for one in check(files, **keywords).warnings if "begin with a zero" in one]
    assert len(found) == 1  # of 'hour' all values are the same, which is told
    assert found[0].startswith("party 'bank', column 'zip': some of its numbers begin with a zero")
    for kind in ("category", "number", "ignore"):
        said = {"bank": {"by_name": {"zip": {"kind": kind}}}}
        assert not any("begin with a zero" in one for one in check(files, **keywords, columns=said).warnings)
    alone = inspect_party("bank", read_table(tmp_path / "bank.csv", id="customer"), "customer").warnings
    assert any(one.startswith("party 'bank', column 'zip': some of its numbers") for one in alone)
    text = read_table(tmp_path / "bank.csv", id="customer", categories=["zip"])
    assert not any("begin with a zero" in one for one in inspect_party("bank", text, "customer").warnings)


def test_words_of_a_file_that_may_be_values_are_not_read_as_empty_without_being_said(tmp_path):
    made = tables()
    heating, age = np.where(np.arange(ROWS) % 3, "gas", "None"), np.where(np.arange(ROWS) % 3, "7", "NA")
    made["bank"].assign(heating=heating, age=age).to_csv(tmp_path / "bank.csv", index=False)
    files, keywords = {"bank": tmp_path / "bank.csv", "telco": made["telco"]}, {"labels": "churn", "id": "customer"}
    found = [one for one in check(files, **keywords).warnings if "read as empty" in one]
    assert len(found) == 1  # of 'age' there is no doubt: among numbers it is no value
    assert found[0].startswith("party 'bank': the file writes words such as 'None' in its text, and they are read")
    assert "(columns: 'heating')" in found[0]
    said = {"bank": {"by_name": {"heating": {"kind": "category"}}}}
    assert not any("read as empty" in one for one in check(files, **keywords, columns=said).warnings)


def test_files_and_json_do_as_well(tmp_path):
    for party, frame in tables().items():
        frame.to_csv(tmp_path / f"{party}.csv", index=False)
    found = check({party: tmp_path / f"{party}.csv" for party in tables()}, labels="churn", id="customer")
    assert not found.errors and json.loads(json.dumps(found.to_json()))["tables"][0]["rows"] == ROWS
    assert "note: " in str(found)
