"""Typical mistakes with tables: each is refused, or warned of, in one sentence that names what to correct.

Two good tables of a bank and a telephone company; every case spoils one thing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from colonnade.check import check
from colonnade.errors import ColonnadeError

ROWS = 120


@dataclass
class Case:
    """Files in a folder, and what is said about them."""

    folder: Path
    bank: pd.DataFrame
    telco: pd.DataFrame
    csv: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=lambda: {"labels": "churn", "id": "customer"})
    files: dict[str, str] = field(default_factory=lambda: {"bank": "bank.csv", "telco": "telco.csv"})
    content: str | bytes | None = None  # of telco.csv, in place of the frame

    def check(self) -> list[str]:
        self.bank.to_csv(self.folder / "bank.csv", index=False)
        self.telco.to_csv(self.folder / "telco.csv", **{"index": False, **self.csv})
        if self.content is not None:
            raw = self.content if isinstance(self.content, bytes) else self.content.encode()
            (self.folder / "telco.csv").write_bytes(raw)
        found = check({p: self.folder / file for p, file in self.files.items()}, **self.options)
        return [*found.errors, *found.warnings]


@pytest.fixture
def case(tmp_path: Path) -> Case:
    rng = np.random.default_rng(0)
    customer = np.arange(1000, 1000 + ROWS)
    income, minutes = rng.normal(40, 8, ROWS).round(2), rng.gamma(2, 50, ROWS).round(2)
    churn = np.where((income - 40) / 8 - (minutes - 100) / 70 + rng.normal(size=ROWS) > 0, "no", "yes")
    bank = pd.DataFrame({"customer": customer, "income": income, "city": rng.choice(["Bonn", "Ulm"], ROWS)})
    return Case(tmp_path, bank.assign(churn=churn), pd.DataFrame({"customer": customer, "minutes": minutes}))


def telco(case: Case, **columns: Any) -> None:
    case.telco = case.telco.assign(**columns)


def bank(case: Case, **columns: Any) -> None:
    case.bank = case.bank.assign(**columns)


def value(case: Case, row: int, column: str, text: Any) -> None:
    case.telco = case.telco.astype({column: object})
    case.telco.loc[row, column] = text


def option(case: Case, **options: Any) -> None:
    case.options |= options


def with_content(case: Case, text: str | bytes) -> None:
    case.content = text


def rows(text: str, first: str = "customer,minutes") -> str:
    return "\n".join([first, *(text.format(k=1000 + k, m=k % 7) for k in range(ROWS))]) + "\n"


CASES: dict[str, tuple[Callable[[Case], object], str]] = {
    # files
    "no such file": (lambda c: c.files.update(telco="telko.csv"), "telko.csv' does not exist; check the path"),
    "a workbook": (lambda c: c.files.update(telco="telco.xlsx"), "the name must end in one of .csv"),
    "an empty file": (lambda c: with_content(c, ""), "it is empty; needed a line of column names"),
    "column names only": (lambda c: with_content(c, "customer,minutes\n"), "it has no rows"),
    "no column names": (lambda c: c.csv.update(header=False), "where column names are needed"),
    "saved row numbers": (
        lambda c: c.csv.update(index=True),
        "column 1 of 3 has no name in the first line (row numbers?",
    ),
    "a column twice": (
        lambda c: with_content(c, rows("{k},{m},{m}", "customer,minutes,minutes")),
        "has the column 'minutes' more than once",
    ),
    "a row too short": (
        lambda c: with_content(c, rows("{k},{m}") + "1999\n"),
        "line 122 has 1 values and the first line has 2",
    ),
    "a separator in a value": (
        lambda c: with_content(c, rows("{k},{m}") + "1999,1,234\n"),
        "line 122 has 3 values and the first line has 2 names",
    ),
    "two separators": (
        lambda c: with_content(c, rows("{k},{m};{m}", "customer,minutes;calls")),
        "may be separated by commas (2 columns) or semicolons (2 columns)",
    ),
    "two decimal marks": (
        lambda c: with_content(c, rows("{k};{m},5;{m}.25", "customer;minutes;calls")),
        "has numbers with a decimal comma and column 'calls' (0.25) with a point; say decimal",
    ),
    "commas between thousands": (
        lambda c: with_content(c, rows("{k};1,{m}50", "customer;minutes")),
        "the comma may be a decimal mark or mark thousands; say decimal",
    ),
    "Windows text": (
        lambda c: with_content(c, rows("{k},{m},Köln", "customer,minutes,town").encode("cp1252")),
        "is not UTF-8 text and is read as Windows text",
    ),
    "a picture": (
        lambda c: with_content(c, b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00"),
        "it is not text: it has zero bytes",
    ),
    # ids
    "no id column": (lambda c: option(c, id="client"), "has no id column 'client'; columns: 'customer'"),
    "an id name for one party only": (
        lambda c: option(c, id={"bank": "customer"}),
        "id names no column for party 'telco'",
    ),
    "an id twice": (
        lambda c: value(c, 3, "customer", 1001),
        "id column 'customer': 1 ids occur more than once (first: '1001')",
    ),
    "an empty id": (lambda c: value(c, 3, "customer", None), "id column 'customer': 1 ids are empty (first at rows 3"),
    "leading zeros": (
        lambda c: telco(c, customer=[f"0{k}" for k in c.telco["customer"]]),
        "120 ids of party 'bank' and party 'telco' differ only in leading zeros",
    ),
    "ids that were numbers with fractions": (
        lambda c: telco(c, customer=[f"{k}.0" for k in c.telco["customer"]]),
        "differ only in '.0' at the end",
    ),
    "spaces around ids": (
        lambda c: telco(c, customer=[f"{k} " for k in c.telco["customer"]]),
        "differ only in spaces around them",
    ),
    "other ids": (
        lambda c: telco(c, customer=[f"t{k}" for k in range(ROWS)]),
        "no id in column 'customer' is in all tables (first ids: party 'bank' '1000', party 'telco' 't0')",
    ),
    "half of the rows": (
        lambda c: telco(c, customer=c.telco["customer"] + 60),
        "are left out (party 'bank': 60 of 120, party 'telco': 60 of 120)",
    ),
    "ids that only together are one": (
        lambda c: (bank(c, branch=1), telco(c, branch=[1, 2] * 60), option(c, id=["branch", "customer"])),
        "are left out (party 'bank': 60 of 120, party 'telco': 60 of 120)",
    ),
    "no id, and rows that differ": (
        lambda c: (option(c, id=None), setattr(c, "telco", c.telco.iloc[:100])),
        "without an id all tables and the labels must have the same rows in the same order",
    ),
    # types
    "a word among numbers": (
        lambda c: value(c, 3, "minutes", "unknown"),
        "column 'minutes': 1 of 120 values is not a number (first in the row with id '1003')",
    ),
    "a unit behind a number": (
        lambda c: value(c, 5, "minutes", "12 min"),
        "1 of 120 values is not a number (first in the row with id '1005')",
    ),
    "mostly missing values": (
        lambda c: telco(c, minutes=c.telco["minutes"].where(c.telco.index % 3 == 0)),
        "column 'minutes': 80 of 120 values are empty",
    ),
    "infinite values": (lambda c: value(c, 3, "minutes", "inf"), "column 'minutes': 1 of 120 values are infinite"),
    "dates that are not": (
        lambda c: (
            telco(c, since=["2020-01-31", "2020-02-30"] * 60),
            option(c, columns={"telco": {"by_name": {"since": {"kind": "date"}}}}),
        ),
        "kind = 'date', and 60 of 120 values are not written as YYYY-MM-DD (first in the row with id '1001')",
    ),
    "a setting of a column that is not there": (
        lambda c: option(c, columns={"telco": {"by_name": {"minuts": {"kind": "category"}}}}),
        "by_name names 'minuts', which is no column of its table; did you mean 'minutes'",
    ),
    "settings of a party that is not there": (
        lambda c: option(c, columns={"telko": {"scaling": "plain"}}),
        "'telko' is no party with a table; did you mean 'telco'",
    ),
    "dates in other words": (
        lambda c: telco(c, since=["31.12.2020", "01.02.2021"] * 60),
        "column 'since': its values look like dates written as text",
    ),
    "a code for missing": (
        lambda c: telco(c, debt=np.where(np.arange(ROWS) < 5, -999, np.arange(ROWS) / 50)),
        "column 'debt': 5 of 120 values are -999, far from all others",
    ),
    # columns
    "free text": (
        lambda c: telco(c, note=[f"wrote {k}" for k in range(ROWS)]),
        "column 'note' is left out (120 different values in 120 rows)",
    ),
    "row numbers": (
        lambda c: telco(c, number=range(ROWS)),
        "column 'number': every row has another value, as ids have",
    ),
    "a constant": (lambda c: telco(c, country="DE"), "column 'country': all values are 'DE'"),
    "an empty column": (lambda c: telco(c, fax=None), "column 'fax': all values are empty; it tells nothing"),
    "nothing but ids": (
        lambda c: setattr(c, "telco", c.telco[["customer"]]),
        "party 'telco' has no columns besides the id",
    ),
    "the label told": (
        lambda c: bank(c, status=np.where(c.bank["churn"] == "yes", "left", "here")),
        "column 'status' alone tells the label",
    ),
    # labels
    "a misspelled label": (
        lambda c: option(c, labels="chrun"),
        "no table has the label column 'chrun'; did you mean 'churn'",
    ),
    "the label at two parties": (
        lambda c: telco(c, churn=c.bank["churn"]),
        "the label column 'churn' is in the tables of 'bank' and 'telco'",
    ),
    "empty labels": (
        lambda c: bank(c, churn=[None, *c.bank["churn"][1:]]),
        "label column 'churn': 1 of 120 values are empty",
    ),
    "labels that are all the same": (
        lambda c: bank(c, churn="no"),
        "all 120 labels are 'no'; there is nothing to learn",
    ),
    "a class with a few rows": (
        lambda c: bank(c, churn=["maybe"] * 3 + ["no", "yes"] * 58 + ["no"]),
        "class 'maybe' has 3 of 120 rows",
    ),
}


def test_the_tables_that_are_spoiled_are_good(case: Case) -> None:
    assert case.check() == []


@pytest.mark.parametrize("mistake", CASES)
def test_a_typical_mistake_is_named(case: Case, mistake: str, recwarn: pytest.WarningsRecorder) -> None:
    spoil, says = CASES[mistake]
    spoil(case)
    try:
        told = case.check()
    except ColonnadeError as error:
        told = [str(error)]
    told += [str(one.message) for one in recwarn]
    assert any(says in text for text in told), told
    assert all("\n" not in text for text in told)


def test_there_are_forty() -> None:
    assert len(CASES) >= 40
