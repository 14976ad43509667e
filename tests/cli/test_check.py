"""`colonnade check` on the command line: for a training, for a party alone, for the label holder alone."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Call
from tests.cli.test_bad_input import edit, write_tables

PARTY = """
[party]
name = "telco"
run = "churn"
table = "telco.csv"
id = "customer"
[connection]
server = "tls://nobody:4222"
authority = "a.pem"
certificate = "c.pem"
key = "k.pem"
"""
COORDINATOR = """
[coordinator]
run = "churn"
parties = ["bank"]
table = "telco.csv"
id = "customer"
label = "churn"
[connection]
server = "tls://nobody:4222"
authority = "a.pem"
certificate = "c.pem"
key = "k.pem"
"""


def test_good_tables(cli: Call) -> None:
    write_tables()
    found = cli("check", "tables.toml")
    assert found.code == 0
    assert "0 errors, 0 warnings" in found.out and "note: labels: 0: 30, 1: 30" in found.out
    assert "of the 45 training rows" in found.out
    assert not Path("runs").exists()


def test_train_stops_at_what_check_calls_an_error(cli: Call) -> None:
    write_tables()
    edit("telco.csv", "\n3,", "\n3,x")
    found = cli("check", "tables.toml")
    assert found.code == 1
    assert "error: party 'telco', column 'minutes': 1 of 60 values is not a number" in found.out
    assert "1 error, 0 warnings" in found.out
    stopped = cli("train", "tables.toml", "--out", "here")
    assert stopped.code == 2 and "1 of 60 values is not a number" in stopped.err
    assert not Path("here").exists()


def test_a_file_that_is_written_in_two_ways_needs_a_word(cli: Call) -> None:
    write_tables()
    lines = Path("telco.csv").read_text().replace(",", ";").splitlines()
    Path("telco.csv").write_text("\n".join(line.replace(".", ",") for line in lines) + "\n")
    assert cli("check", "tables.toml", "--set", "data.decimal={telco=','}").code == 0
    refused = cli("check", "tables.toml", "--set", "data.decimal={shop=','}")
    assert refused.code == 2 and "decimal names 'shop', who has no table" in refused.err


def test_json_has_every_column_and_finding(cli: Call) -> None:
    write_tables()
    found = json.loads(cli("check", "tables.toml", "--json").out)
    assert [table["party"] for table in found["tables"]] == ["bank", "telco"]
    assert found["tables"][0]["columns"][0] == {"name": "income", "kind": "numbers", "missing": 0, "distinct": 60}


def test_organisations_look_at_their_own_tables(cli: Call) -> None:
    write_tables()
    edit("telco.csv", "customer,minutes,churn", "customer,minutes,bill")
    Path("party.toml").write_text(PARTY)
    found = cli("check", "party.toml")
    assert found.code == 0 and "telco" in found.out and "0 errors, 0 warnings" in found.out
    assert "2 numbers" in found.out and "1 numbers" in cli("check", "party.toml", "--set", "party.label=bill").out
    write_tables()
    Path("coordinator.toml").write_text(COORDINATOR)
    found = cli("check", "coordinator.toml")
    assert found.code == 0 and "note: labels: 0: 30, 1: 30" in found.out


def test_organisations_say_how_their_files_are_written_and_ids_of_several_columns(cli: Call) -> None:
    rows = [f"{k % 3};{k};{k % 7 + 1},{100 + k};{'yes' if k % 2 else 'no'}" for k in range(60)]
    Path("telco.csv").write_text("\n".join(["shop;line;minutes;churn", *rows]) + "\n")
    Path("party.toml").write_text(PARTY.replace('id = "customer"', 'id = ["shop", "line"]'))
    open_comma = "column 'minutes' (1,100): the comma may be a decimal mark or mark thousands; say decimal = ..."
    refused = cli("check", "party.toml")
    assert refused.code == 2 and open_comma in refused.err
    found = cli("check", "party.toml", "--set", "party.decimal=','")
    assert found.code == 0 and "1 numbers" in found.out
    Path("coordinator.toml").write_text(COORDINATOR.replace('id = "customer"', 'id = ["shop", "line"]\ndecimal = ","'))
    assert "note: labels: no: 30, yes: 30" in cli("check", "coordinator.toml").out
    for said, words in {
        "party.id=[]": "[party] id = [] is not valid",
        "party.id=['shop','shop']": "a column is named twice",
        "party.separator='::'": "[party] separator = '::' is not valid: value error, needed one character",
        "party.separater=';'": "unknown key 'separater' in [party]; did you mean 'separator'?",
    }.items():
        wrong = cli("check", "party.toml", "--set", said)
        assert wrong.code == 2 and words in wrong.err, wrong.err
